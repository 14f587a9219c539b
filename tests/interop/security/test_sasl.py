"""SASL between the two: the real client and our server, our clients and the real server.

The users of all of them are those of one JAAS file, read by the JVM and by ours.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bkstore import Bookie
from bkstore.cluster import MemoryStore
from bkstore.cluster.audit import AuditOptions, Auditor
from bkstore.errors import BookieUnavailable, CorruptionError, InvalidArgument, UnauthorizedAccess
from bkstore.formats.entry import Coder, Entry
from bkstore.network import AuditedBookies, Client
from bkstore.wire.client import SaslUser, WireClient
from bkstore.wire.sasl import DigestServer, SaslUsers
from bkstore.wire.sasl.digest_md5 import DigestClient
from bkstore.wire.sasl.jaas import read_jaas
from bkstore.wire.server import BookieServer, server_tls
from tests.interop.bookies import Cluster, Place
from tests.interop.clients import (
    OK,
    UNAUTHORIZED,
    add,
    payload_hex,
    read,
    real_client,
)
from tests.interop.driver import RealBookKeeper, RealError
from tests.wire.certificates import client_context, made_certificate, needs_openssl
from tests.wire.server.peer import AUTHORITY, SERVER
from tests.worlds.audits import closed

RECORD = Coder("CRC32C", "pw").encode(Entry(7, 0, -1, 5, b"hello"))
KEY = b"k" * 20
DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"
JAAS = f"""
Bookie {{
  {DIGEST} required
    user_bookkeeper="s\\"cret \u00e4\u20ac"
    user_other="other"
    user_pulsar="pulsar";
}};
BookKeeper {{ {DIGEST} required username="bookkeeper" password="s\\"cret \u00e4\u20ac"; }};
Wrong {{ {DIGEST} required username="bookkeeper" password="nope"; }};
Other {{ {DIGEST} required username="other" password="other"; }};
"""
ALLOWED = "bookkeeper|pulsar"
PROTOCOLS = pytest.mark.parametrize("protocol", ["v2", "v3"])
REAL_CLIENT = {
    "clientAuthProviderFactoryClass": "org.apache.bookkeeper.sasl.SASLClientProviderFactory"
}
REAL_BOOKIE = {
    "bookieAuthProviderFactoryClass": "org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory",
    "saslJaasClientAllowedIds": ALLOWED,
}


@pytest.fixture
def jaas(real: RealBookKeeper, tmp_path: Path) -> Iterator[Path]:
    """Yield a JAAS file that the JVM goes by."""
    path = tmp_path / "jaas.conf"
    path.write_text(JAAS, encoding="utf-8")
    real.call("jaas_use", file=str(path))
    yield path
    real.call("jaas_none")


@pytest.fixture
def server(jaas: Path, tmp_path: Path) -> Iterator[BookieServer]:
    """Yield our server, which asks for SASL."""
    users = SaslUsers.from_jaas(jaas, allowed_ids=ALLOWED)
    with (
        Bookie.open(tmp_path / "b") as bookie,
        BookieServer(bookie, sasl=users) as serving,
    ):
        yield serving


@PROTOCOLS
def test_real_client(real: RealBookKeeper, server: BookieServer, protocol: str) -> None:
    """A real client that authenticates adds and reads."""
    with real_client(real, server.address, protocol, REAL_CLIENT) as client:
        assert [OK] * 60 == client.codes(*(add(7, entry) for entry in range(60)))
        found = client.do(*(read(7, entry) for entry in range(60)))

    assert payload_hex(7, range(60)) == [answer["payload"] for answer in found]


@PROTOCOLS
def test_real_client_without(real: RealBookKeeper, server: BookieServer, protocol: str) -> None:
    """A real client that does not authenticate is told so, add or read."""
    with real_client(real, server.address, protocol) as client:
        assert [UNAUTHORIZED] * 2 == client.codes(add(7, 0), read(7, 0))


@PROTOCOLS
def test_a_server_that_asks_nobody(
    real: RealBookKeeper, jaas: Path, protocol: str, tmp_path: Path
) -> None:
    """A real client that would authenticate is served by our server that asks nobody to."""
    with (
        Bookie.open(tmp_path / "b") as bookie,
        BookieServer(bookie) as server,
        real_client(real, server.address, protocol, REAL_CLIENT) as client,
    ):
        assert [OK, OK] == client.codes(add(7, 0), add(7, 1))


@pytest.fixture
def real_bookie(real_cluster: Cluster, jaas: Path, tmp_path: Path) -> Iterator[int]:
    """Yield the port of a real bookie that asks for SASL."""
    place = Place(real_cluster.new_id(), [tmp_path / "ledgers"], [tmp_path / "journal"])
    with real_cluster.bookie(place, "sorted", REAL_BOOKIE) as bookie:
        yield bookie.port


@PROTOCOLS
def test_real_server(real_bookie: int, jaas: Path, protocol: Any) -> None:
    """Our client authenticates at a real bookie, over both its connections."""
    user = SaslUser.from_jaas(jaas)
    with WireClient(("127.0.0.1", real_bookie), protocol, sasl=user) as client:
        assert 0 == client.add_entry(RECORD, KEY)
        assert RECORD == client.read_entry(7, 0)
        assert [[0, 0]] == client.availability(7).ranges().tolist()


@PROTOCOLS
def test_real_server_without(real_bookie: int, jaas: Path, protocol: Any) -> None:
    """A real bookie refuses ours without credentials, and says nothing to wrong ones and to a
    user that is not allowed."""
    address = ("127.0.0.1", real_bookie)
    with WireClient(address, protocol) as client, pytest.raises(UnauthorizedAccess):
        client.read_entry(7, 0)
    for section in ("Wrong", "Other"):
        user = SaslUser.from_jaas(jaas, section)
        with (
            WireClient(address, protocol, timeout=0.5, sasl=user) as client,
            pytest.raises(BookieUnavailable, match="no answer to authentication"),
        ):
            client.read_entry(7, 0)


def test_a_cluster_of_real_bookies(real_cluster: Cluster, real_bookie: int, jaas: Path) -> None:
    """Our cluster client writes and reads by URI, and an audit over the wire lists, where the
    bookie asks for SASL."""
    user = SaslUser.from_jaas(jaas)
    with Client(real_cluster.uri, sasl=user) as client:
        ledger = client.create_ledger(1, 1, 1)
        ledger.append_many([b"one", b"two"])

        assert [b"one", b"two"] == [e.payload for e in client.open_ledger(ledger.id).read_batch(0)]
    store = MemoryStore()
    store.register_bookie(f"127.0.0.1:{real_bookie}")
    store.create(closed(ledger.id, last=1, ensemble=(f"127.0.0.1:{real_bookie}",)))
    with AuditedBookies(store, sasl=user) as asked:
        report = Auditor(store, asked, options=AuditOptions(rechecks=0)).run()

    assert [] == list(report.violations)
    assert {} == report.unlisted


def test_verdicts_of_java(real: RealBookKeeper) -> None:
    """A response with any few bytes changed convinces Java's server only where it convinces ours,
    and gets the same proof. Ours refuses some that Java lets pass: of another syntax than the
    RFC's, or with another count of uses than 1."""
    chance = random.Random(7)
    user = SaslUser("hd", "testpwd")
    users = SaslUsers({"hd": "testpwd"}, allowed_ids=".*")
    agreed, milder, refusal = 0, [], ""
    for _ in range(300):
        challenge = bytes.fromhex(real.call("digest_challenge", user="hd", password="testpwd"))
        nonce = challenge.split(b'nonce="')[1].split(b'"')[0]
        response = _mutated(DigestClient(user).respond(challenge), chance)
        ours = DigestServer(users, nonce)
        assert challenge == ours.respond(b"")
        try:
            there: str | None = real.call("digest_verdict", response=response.hex())
        except RealError:
            there = None
        try:
            here: str | None = ours.respond(response).hex()
        except CorruptionError:
            here, refusal = None, "syntax"
        except UnauthorizedAccess as error:
            here, refusal = None, "count" if "used before" in str(error) else str(error)
        if here is not None or there is None:
            assert there == here
            agreed += 1
        else:
            milder.append(refusal)

    assert agreed > 250
    assert {"syntax", "count"} >= set(milder)


def _mutated(response: bytes, chance: random.Random) -> bytes:
    """Return a response as it is, with a directive dropped, moved or doubled, or bytes changed."""
    parts = response.split(b",")
    at = chance.randrange(len(parts))
    kind = chance.randrange(6)
    if kind == 0:
        del parts[at]
    elif kind == 1:
        parts.append(parts[at])
    elif kind == 2:
        chance.shuffle(parts)
    elif kind == 3:
        parts[at] = parts[at].replace(b'"', b"")
    elif kind == 4:
        parts[at] = bytes([*parts[at][:3], chance.choice(b' ,="\\aA0'), *parts[at][4:]])
    return b" , ".join(parts) if chance.random() < 0.2 else b",".join(parts)


TEXTS = [
    JAAS,
    "",
    "A { x.Y required; };",
    'A { x.Y required a=b c="d e" f=""; z.Z optional; };',
    'A { x.Y REQUIRED; }; B { x.Y sufficient "q r"="s"; };',
    "A { }; B { x.Y required; };",
    "// comment\nA { /* more\n */ x.Y required a=b; // end\n};",
    'A { x.Y required a="b\\n\\"c\\\\d\\t\\101\\7e"; };',
    "A { x.Y required a=b.c-d_e$f*g; };",
    "A { x.Y required a=\u00e4\u20ac; };",
    "A { x.Y required a=b a=c; };",
    '"A" { "x.Y" "required" a=b; };',
    "A { x.Y required a=b }",
    "A { x.Y required a=b; }",
    "A { x.Y required a=b; } B { x.Y required; };",
    "A { x.Y needed a=b; };",
    "A { x.Y required a b; };",
    "A { x.Y required a=; };",
    "A { x.Y required a='b'; };",
    "A { x.Y required a=12; };",
    "A { x.Y required a=-b; };",
    "A { x.Y required a=b,c=d; };",
    "A { x.Y required; }; A { z.Z required; };",
    'A { x.Y required a="b; };',
    "# comment\nA { x.Y required; };",
    "A { x.Y required a=${no.such.property}; };",
]


@pytest.mark.parametrize("text", TEXTS)
def test_jaas_files(text: str, real: RealBookKeeper, tmp_path: Path) -> None:
    """The JVM reads out of a JAAS file what ours does, and refuses what ours refuses."""
    path = tmp_path / "jaas.conf"
    path.write_text(text, encoding="utf-8")
    names = ["A", "B", "Bookie", "BookKeeper", "Wrong", "Other"]
    try:
        there: object = real.call("jaas_sections", file=str(path), sections=names)
    except RealError:
        there = None
    finally:
        real.call("jaas_none")
    try:
        read_here = read_jaas(path)
        here: object = {
            name: [[each.name, each.options] for each in modules]
            for name, modules in read_here.items()
            if modules
        }
    except InvalidArgument:
        here = None

    assert there == here


def test_real_client_over_tls(real: RealBookKeeper, jaas: Path, tmp_path: Path) -> None:
    """A real client of v3 sends START_TLS and the first step of its authentication together, and
    the rest in TLS. With v2 it fails at real servers, too."""
    users = SaslUsers.from_jaas(jaas, allowed_ids=ALLOWED)
    tls = {"tlsProviderFactoryClass": "PemTls", "pemCertificate": str(AUTHORITY)}
    with (
        Bookie.open(tmp_path / "b") as bookie,
        BookieServer(bookie, sasl=users, tls=server_tls(*SERVER)) as server,
        real_client(real, server.address, "v3", REAL_CLIENT | tls) as client,
    ):
        assert [OK] * 10 == client.codes(*(add(7, entry) for entry in range(10)))


@needs_openssl
def test_real_server_over_tls(real_cluster: Cluster, jaas: Path, tmp_path: Path) -> None:
    """Our client authenticates at a real bookie behind START_TLS, in v2 and v3."""
    place = Place(real_cluster.new_id(), [tmp_path / "ledgers"], [tmp_path / "journal"])
    trusting = client_context(made_certificate(tmp_path))
    settings = {
        "tlsProviderFactoryClass": "PemTls",
        "pemCertificate": str(tmp_path / "cert.pem"),
        "pemKey": str(tmp_path / "key.pem"),
    }
    user = SaslUser.from_jaas(jaas)
    with real_cluster.bookie(place, "sorted", REAL_BOOKIE | settings) as bookie:
        for entry, protocol in enumerate(("v2", "v3")):
            address = ("127.0.0.1", bookie.port)
            with WireClient(address, protocol, tls=trusting, sasl=user) as client:
                record = Coder("CRC32C", "pw").encode(Entry(7, entry, -1, 5, b"hello"))

                assert entry == client.add_entry(record, KEY)
                assert record == client.read_entry(7, entry)
