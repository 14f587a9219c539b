"""Contexts of clients, of files: whom they trust, what they show, which names they take."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from bkstore.errors import BookieUnavailable, InvalidArgument, NoSuchLedger
from bkstore.testing.servers import ServerFactory
from bkstore.wire.client import WireClient, client_tls
from bkstore.wire.server import BookieServer, server_tls
from tests.wire.certificates import made_certificate, needs_openssl
from tests.wire.server.peer import AUTHORITY, CLIENT, SERVER

REFUSED = "no TLS connection: .*CERTIFICATE_VERIFY_FAILED"


def _asked(server: BookieServer, context: ssl.SSLContext) -> None:
    """Ask an empty bookie, which says that it knows no ledger."""
    client = WireClient(server.address, tls=context, timeout=2)
    with client, pytest.raises(NoSuchLedger):
        client.read_entry(7, 0)


def test_whom_to_trust(bkstore_server: ServerFactory) -> None:
    """Certificates of the named authority are taken, by default those that the system trusts."""
    server = bkstore_server(server={"tls": server_tls(*SERVER)})
    _asked(server, client_tls(AUTHORITY))
    with pytest.raises(BookieUnavailable, match=REFUSED):
        _asked(server, client_tls())


@needs_openssl
def test_names(bkstore_server: ServerFactory, tmp_path: Path) -> None:
    """A certificate must name the host that was connected to, unless any will do; whom it is of
    counts in either case."""
    pem = made_certificate(tmp_path, "DNS:elsewhere.example")
    server = bkstore_server(server={"tls": server_tls(pem)})
    with pytest.raises(BookieUnavailable, match=f"{REFUSED}.*IP address mismatch"):
        _asked(server, client_tls(pem))
    _asked(server, client_tls(pem, check_host=False))
    with pytest.raises(BookieUnavailable, match=REFUSED):
        _asked(server, client_tls(AUTHORITY, check_host=False))


def test_what_is_shown(bkstore_server: ServerFactory) -> None:
    """A bookie that asks for a certificate is shown one."""
    server = bkstore_server(server={"tls": server_tls(*SERVER, AUTHORITY)})
    _asked(server, client_tls(AUTHORITY, *CLIENT))
    with pytest.raises(BookieUnavailable):
        _asked(server, client_tls(AUTHORITY))


def test_files(tmp_path: Path) -> None:
    """A file that is missing, or is not what it should be, is named; TLS 1.2 is the least."""
    with pytest.raises(FileNotFoundError, match=r"none\.pem"):
        client_tls(tmp_path / "none.pem")
    with pytest.raises(InvalidArgument, match=r"client.key: cannot load certificates"):
        client_tls(CLIENT[1])
    with pytest.raises(
        InvalidArgument, match=r"client.pem and .*server.key: not a certificate and"
    ):
        client_tls(AUTHORITY, CLIENT[0], SERVER[1])
    with pytest.raises(InvalidArgument, match="a key needs a certificate"):
        client_tls(AUTHORITY, key=CLIENT[1])

    assert client_tls(AUTHORITY).minimum_version == ssl.TLSVersion.TLSv1_2
