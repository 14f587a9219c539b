"""START_TLS between the two: the real client and our server, our client and the real server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bkstore import Bookie
from bkstore.formats.entry import Coder, Entry
from bkstore.wire.client import WireClient
from bkstore.wire.server import BookieServer, server_tls
from tests.interop.bookies import Cluster, Place
from tests.interop.clients import OK, add, payload_hex, read, real_client
from tests.interop.driver import RealBookKeeper
from tests.wire.certificates import client_context, made_certificate, needs_openssl
from tests.wire.server.peer import AUTHORITY, SERVER

RECORD = Coder("CRC32C", "pw").encode(Entry(7, 0, -1, 5, b"hello"))
REAL_CLIENT = {"tlsProviderFactoryClass": "PemTls", "pemCertificate": str(AUTHORITY)}


@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_real_client(real: RealBookKeeper, protocol: str, tmp_path: Path) -> None:
    """A real client that is told to encrypts what it says to our server; adds and reads go on."""
    with (
        Bookie.open(tmp_path / "b") as bookie,
        BookieServer(bookie, tls=server_tls(*SERVER)) as server,
        real_client(real, server.address, protocol, REAL_CLIENT) as client,
    ):
        assert [OK] * 60 == client.codes(*(add(7, entry) for entry in range(60)))
        found = client.do(*(read(7, entry) for entry in range(60)))

    assert payload_hex(7, range(60)) == [answer["payload"] for answer in found]


@needs_openssl
@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_real_server(real_cluster: Cluster, protocol: Any, tmp_path: Path) -> None:
    """Our client encrypts what it says to a real bookie that has a certificate."""
    place = Place(real_cluster.new_id(), [tmp_path / "ledgers"], [tmp_path / "journal"])
    trusting = client_context(made_certificate(tmp_path))
    settings = {
        "tlsProviderFactoryClass": "PemTls",
        "pemCertificate": str(tmp_path / "cert.pem"),
        "pemKey": str(tmp_path / "key.pem"),  # PKCS #8, which is what Java reads
    }
    with (
        real_cluster.bookie(place, "sorted", settings) as bookie,
        WireClient(("127.0.0.1", bookie.port), protocol, tls=trusting) as client,
    ):
        assert 0 == client.add_entry(RECORD, b"k" * 20)
        assert RECORD == client.read_entry(7, 0)
