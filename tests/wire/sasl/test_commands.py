"""SASL as the commands have it: `bkstore serve` of a conf that asks for it, `bkstore audit`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bkstore.cli.main import main
from bkstore.errors import BookieUnavailable, UnauthorizedAccess
from bkstore.network import Client
from bkstore.storage.bookie import Bookie
from bkstore.testing.zookeeper_server import ZooKeeperServer
from bkstore.wire import v2
from bkstore.wire.client import SaslUser, WireClient
from bkstore.wire.sasl import SaslUsers
from bkstore.wire.status_codes import Status
from tests.cluster.store.samples import new_uri
from tests.network.bookies_on_sockets import audited, cluster_of
from tests.wire.serve_process import served
from tests.wire.server.peer import KEY, Peer, record
from tests.worlds.audits import B3, closed

DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"
FILE = f"""
Bookie {{ {DIGEST} required user_bookkeeper="secret" user_guest="1234"; }};
Users {{ {DIGEST} required user_hd="testpwd" user_guest="1234"; }};
Kerberos {{ com.sun.security.auth.module.Krb5LoginModule required; }};
BookKeeper {{ {DIGEST} required username="bookkeeper" password="secret"; }};
Hd {{ {DIGEST} required username="hd" password="testpwd"; }};
Guest {{ {DIGEST} required username="guest" password="1234"; }};
"""
SASL = "bookieAuthProviderFactoryClass: org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory\n"


@pytest.fixture
def uri(zookeeper: ZooKeeperServer) -> str:
    """Return the service URI of a root that nobody had before."""
    return new_uri(zookeeper)


@pytest.fixture
def jaas(tmp_path: Path) -> Path:
    """Return a JAAS file."""
    path = tmp_path / "jaas.conf"
    path.write_text(FILE)
    return path


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """Return the `bk_server.conf` of a bookie."""
    Bookie.open(tmp_path / "bookie").close()
    path = tmp_path / "bookie" / "bk_server.conf"
    path.write_text("ledgerDirectories=ledgers\njournalDirectories=journal\n")
    return path


def asks(conf: Path, *lines: str) -> Path:
    """Add lines to a conf."""
    conf.write_text(conf.read_text() + "".join(lines))
    return conf


def user(jaas: Path, section: str) -> dict[str, SaslUser]:
    """Return a client's user."""
    return {"sasl": SaslUser.from_jaas(jaas, section)}


def test_a_conf_that_asks_for_sasl(conf: Path, jaas: Path) -> None:
    """It is served with it: the section and the ids that it names are those that count."""
    names = "saslJaasBookieSectionName Users\nsaslJaasClientAllowedIds = h.\n"
    with served(str(asks(conf, SASL, names)), "--jaas", str(jaas)) as (_, address, _line):
        with WireClient(address, **user(jaas, "Hd")) as client:
            assert 0 == client.add_entry(record(7, 0), KEY)
        with WireClient(address) as client, pytest.raises(UnauthorizedAccess):
            client.read_entry(7, 0)
        for section in ("Guest", "BookKeeper"):
            with (
                WireClient(address, timeout=0.3, **user(jaas, section)) as client,
                pytest.raises(BookieUnavailable, match="no answer to authentication"),
            ):
                client.read_entry(7, 0)


def test_options_without_a_conf(tmp_path: Path, jaas: Path) -> None:
    """A directory alone is served with SASL where options ask for it, which go before a conf's."""
    folder = str(tmp_path / "new")
    options = ["--jaas", str(jaas), "--jaas-section", "Users", "--sasl-allowed-ids", "guest"]
    with served(folder, "--create", *options) as (_, address, _line):
        with WireClient(address, "v3", **user(jaas, "Guest")) as client:
            assert 0 == client.add_entry(record(7, 0), KEY)
        with Peer(address) as peer:
            assert peer.ask(v2.ReadRequest(7, 0))[0].status is Status.EUA


@pytest.mark.parametrize(
    ("lines", "options", "reason"),
    {
        "no file": (
            SASL,
            [],
            "asks for SASL: give the file of the JVM's java.security.auth.login.config",
        ),
        "other": (
            "bookieAuthProviderFactoryClass=com.example.Provider\n",
            ["--jaas", "JAAS"],
            "bookieAuthProviderFactoryClass: com.example.Provider is not supported, only SASL is",
        ),
        "section": ("", ["--jaas-section", "A"], "--jaas-section and --sasl-allowed-ids need"),
        "ids": ("", ["--sasl-allowed-ids", "A"], "--jaas-section and --sasl-allowed-ids need"),
        "missing": (
            SASL + "saslJaasBookieSectionName=Server\n",
            ["--jaas", "JAAS"],
            "has no section 'Server' (existing: Bookie,",
        ),
        "kerberos": (
            SASL,
            ["--jaas", "JAAS", "--jaas-section", "Kerberos"],
            "section Kerberos uses Kerberos",
        ),
        "nobody": (
            SASL + "saslJaasClientAllowedIds=x.*\n",
            ["--jaas", "JAAS"],
            "no client could connect",
        ),
        "pattern": (
            SASL,
            ["--jaas", "JAAS", "--sasl-allowed-ids", "("],
            "not a regular expression",
        ),
        "gone": (SASL, ["--jaas", "JAAS.gone"], "cannot be read: No such file"),
    }.values(),
)
def test_what_is_not_served(
    lines: str,
    options: list[str],
    reason: str,
    conf: Path,
    jaas: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An authentication that cannot be had as it was asked for is refused by name, before
    anything listens, and without a password on the screen."""
    words = [option.replace("JAAS", str(jaas)) for option in options]

    assert 2 == main(["serve", str(asks(conf, lines)), "--port", "0", *words])
    told = capsys.readouterr().err
    assert reason.replace("Bookie,", "BookKeeper, Bookie,") in told
    assert not any(secret in told for secret in ("testpwd", "secret", "1234"))


def test_a_conf_that_does_not_ask(conf: Path) -> None:
    """A comment asks for nothing: everybody is served."""
    with served(str(asks(conf, f"# {SASL}"))) as (_, address, _line), Peer(address) as peer:
        assert peer.ask(v2.ReadRequest(7, 0))[0].status is Status.ENOLEDGER


def test_a_cluster_that_asks_for_sasl(
    uri: str, jaas: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A client by URI appends and reads with its user; the audit of the cluster asks bookies with
    the user of --jaas, and without it has no answer from them."""
    users = SaslUsers.from_jaas(jaas)
    held: dict[str, dict[Any, Any]] = {b: {7: range(6)} for b in B3}
    with cluster_of(uri, tmp_path, [closed(7)], held, sasl=users):
        with Client(uri, **user(jaas, "BookKeeper")) as client:
            ledger = client.create_ledger(3, 3, 2)
            ledger.append_many([b"one", b"two"])
            ledger.close()

            read = client.open_ledger(ledger.id).read_batch(0)
            assert [b"one", b"two"] == [entry.payload for entry in read]
        assert 0 == audited(capsys, uri, "--jaas", jaas, "--looks", 0)[0]
        code, rows, _ = audited(capsys, uri, "--looks", 0)
        assert 1 == code
        assert {"bookie_unavailable"} == {row["category"] for row in rows}
    for words in (["--jaas-section", "BookKeeper"], ["--jaas", jaas, "--jaas-section", "Bookie"]):
        assert 2 == audited(capsys, uri, *words)[0]
