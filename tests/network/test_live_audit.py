"""`bkstore audit URI`: what a running cluster holds, by what its bookies say over sockets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bkstore.cli.main import main
from bkstore.cluster import ZooKeeperStore
from bkstore.cluster.audit import AuditOptions, Auditor
from bkstore.formats.metadata.service_info import ServiceInfo
from bkstore.formats.metadata.underreplication import UnderreplicatedMark
from bkstore.ids import LedgerId
from bkstore.network import AuditedBookies, RegisteredBookie
from bkstore.testing.zookeeper_server import ZooKeeperServer
from bkstore.wire.server import server_tls
from tests.cluster.store.samples import new_uri
from tests.models.audit import BOOKIES, random_world
from tests.network.bookies_on_sockets import audited, cluster_of, registered, rows_of
from tests.wire.certificates import made_certificate, needs_openssl
from tests.wire.server.peer import AUTHORITY, CLIENT, SERVER
from tests.worlds.audits import closed

Capsys = pytest.CaptureFixture[str]
B3 = ("b1", "b2", "b3")
WHOLE = range(6)
SCOPED = LedgerId(5, 2**63 + 7)


@pytest.fixture
def uri(zookeeper: ZooKeeperServer) -> str:
    """Return the service URI of a root that nobody had before."""
    return new_uri(zookeeper)


@pytest.fixture
def running(uri: str, tmp_path: Path) -> Iterator[dict[str, RegisteredBookie]]:
    """Yield three bookies; of ledgers 1 to 4 there are fewer and fewer replicas of entry 4."""
    names = [LedgerId.of(ledger) for ledger in range(1, 5)] + [SCOPED]
    held: dict[str, dict[LedgerId, Any]] = {b: dict.fromkeys(names, WHOLE) for b in B3}
    for bookie, ledgers in {"b3": (2, 3, 4), "b2": (3, 4), "b1": (4,)}.items():
        for ledger in ledgers:
            held[bookie][LedgerId.of(ledger)] = [0, 1, 2, 3, 5]
    ledgers = [closed(name) for name in names]  # type: ignore[arg-type]
    with cluster_of(uri, tmp_path, ledgers, held) as bookies:
        yield bookies


def test_every_category_of_durability(
    uri: str, running: dict[str, RegisteredBookie], capsys: Capsys
) -> None:
    """Losses at bookies of all storages are found over the wire, in the category of the worst
    entry; a ledger of a scope is judged with the others."""
    code, rows, err = audited(capsys, uri)
    found = {(row["category"], row["ledger_id"], row["bookie"]) for row in rows}

    assert 1 == code
    assert {
        ("below_write_quorum", 2, "b3"),
        ("below_ack_quorum", 3, "b2"),
        ("below_ack_quorum", 3, "b3"),
        *(("no_replica", 4, name) for name in B3),
    } == found
    assert {str([[4, 4]])} == {str(row["missing"]) for row in rows}
    assert "5 of 5 ledgers checked (0 of them empty), 15 answers of bookies" in err


def test_the_other_categories(
    uri: str, running: dict[str, RegisteredBookie], tmp_path: Path, capsys: Capsys
) -> None:
    """Overdue marks, placement, and a ledger that is being repaired, from a running cluster."""
    (tmp_path / "places").write_text("b1 /r1\nb2 /r1\nb3 /r1\n")
    with ZooKeeperStore(uri) as store:
        store.mark_underreplicated(3, UnderreplicatedMark(1_000_000.0, ("b2",)))
        store.mark_underreplicated(4, UnderreplicatedMark(time.time(), ("b2",)))
    words = ["--grace-period", 60, "--placement", "rack", "--places", tmp_path / "places"]
    code, rows, err = audited(capsys, uri, *words)
    found = sorted((row["category"], row["ledger_id"]) for row in rows if not row["scope_id"])

    assert 1 == code
    assert [
        ("below_write_quorum", 2),
        ("overdue", 3),
        ("placement", 1),
        ("placement", 2),
    ] == found
    assert "skipped: 2 underreplicated" in err


def test_bookies_that_are_not_there(
    uri: str, running: dict[str, RegisteredBookie], tmp_path: Path, capsys: Capsys
) -> None:
    """A bookie that is in no list is one row; one that is registered and silent a row a ledger;
    either is judged from its directory, if that is given beside."""
    running["b2"].server.close()  # it stays registered
    running["b3"].close()
    code, rows, err = audited(capsys, uri, "--look-delay", 0.125)
    silent = [row for row in rows if row["category"] == "bookie_unavailable"]
    absent, *others = silent

    assert (1, 6) == (code, len(silent))
    assert err.startswith("some bookies did not answer: retrying in 0.125 s\n")
    assert (None, "b3") == (absent["ledger_id"], absent["bookie"])
    assert "it is not registered" in absent["detail"]
    assert {"b2"} == {row["bookie"] for row in others}
    assert "no connection" in others[0]["detail"]

    running["b2"].bookie.close()
    words = [f"{name}={tmp_path / name}" for name in ("b2", "b3")]
    code, rows, _ = audited(capsys, uri, *words)

    assert {"below_write_quorum", "below_ack_quorum", "no_replica"} == {
        row["category"] for row in rows
    }


@pytest.mark.long
def test_a_read_only_bookie_answers(
    uri: str, running: dict[str, RegisteredBookie], capsys: Capsys
) -> None:
    """Read-only bookies are registered, and asked like others."""
    running["b3"]._registration.set_read_only(True)
    _, rows, err = audited(capsys, uri)

    assert 6 == len(rows)
    assert "15 answers of bookies" in err


def test_over_tls(uri: str, tmp_path: Path, capsys: Capsys) -> None:
    """With --tls bookies are asked over TLS, and one that shows no certificate that is trusted
    has given no answer; words that go with --tls alone are refused without it."""
    tls = ["--tls", "--tls-ca", AUTHORITY, "--looks", 0]
    shown = ["--tls-certificate", CLIENT[0], "--tls-key", CLIENT[1]]
    held: dict[str, dict[LedgerId, Any]] = {b: {SCOPED: WHOLE} for b in B3}
    context = server_tls(*SERVER, AUTHORITY)
    with cluster_of(uri, tmp_path, [closed(SCOPED)], held, tls=context):
        assert 0 == audited(capsys, uri, *tls, *shown)[0]

        for words in (tls, ["--tls", *shown, "--looks", 0]):
            code, rows, _ = audited(capsys, uri, *words)

            assert 1 == code
            assert {"bookie_unavailable"} == {row["category"] for row in rows}
        assert all("no TLS connection" in row["detail"] for row in rows)
    for words in (tls[1:], ["--tls-any-host"], shown[:2], ["--tls", *shown[2:]]):
        with pytest.raises(SystemExit):
            main(["audit", uri, *map(str, words)])

        assert "--tls" in capsys.readouterr().err


@needs_openssl
def test_certificates_of_other_hosts(uri: str, tmp_path: Path, capsys: Capsys) -> None:
    """A certificate that names another host is as good as none, but with --tls-any-host."""
    pem = made_certificate(tmp_path, "DNS:elsewhere.example")
    tls = ["--tls", "--tls-ca", pem, "--looks", 0]
    held: dict[str, dict[LedgerId, Any]] = {b: {SCOPED: WHOLE} for b in B3}
    with cluster_of(uri, tmp_path, [closed(SCOPED)], held, tls=server_tls(pem)):
        assert 1 == audited(capsys, uri, *tls)[0]
        assert 0 == audited(capsys, uri, *tls, "--tls-any-host")[0]


def test_a_bookie_that_comes_back(
    uri: str, running: dict[str, RegisteredBookie], tmp_path: Path, capsys: Capsys
) -> None:
    """A bookie that was down at the first look, and is back at another port at the second, is
    judged by what it says then."""
    running["b2"].close()
    store = ZooKeeperStore(uri)
    store.register("b2", ServiceInfo.at("127.0.0.1", 1))  # nobody is there
    waits = []

    def back(seconds: float) -> None:
        waits.append(seconds)
        time.sleep(0.25)  # its registration is not read more often
        store.unregister_bookie("b2")
        running["b2"] = registered(uri, tmp_path, "b2")

    with store, AuditedBookies(store) as bookies:
        auditor = Auditor(
            store, bookies, options=AuditOptions(rechecks=2, recheck_delay=9.0), wait=back
        )
        report = auditor.run()
    running["b2"].close()

    assert [9.0] == waits
    assert {"below_write_quorum", "below_ack_quorum", "no_replica"} == set(report.counts)
    assert [2, 3, 3, 4, 4, 4] == [row.ledger.ledger for row in report.violations if row.ledger]


def test_the_way_it_is_while_ledgers_change(uri: str, running: dict[str, RegisteredBookie]) -> None:
    """A ledger that is deleted while it is judged is gone, one that was marked is skipped, one
    whose metadata changed is judged anew: nothing is said by what was read before."""
    with ZooKeeperStore(uri) as store, AuditedBookies(store) as bookies:

        class Changing:
            """Bookie b1, and what happens when it is asked for the first time."""

            asked = 0

            def availability(self, ledger: Any) -> Any:
                return bookies["b1"].availability(ledger)

            def availability_many(self, *words: Any) -> Any:
                self.asked += 1
                if self.asked == 1:
                    store.delete(2)
                    store.mark_underreplicated(3, UnderreplicatedMark(None))
                    store.write(closed(4, last=3, length=40), 0)
                return bookies["b1"].availability_many(*words)  # type: ignore[attr-defined]

        changing = Changing()
        others = {name: bookies[name] for name in ("b2", "b3")}
        report = Auditor(store, {"b1": changing, **others}, options=AuditOptions(rechecks=0)).run()

    assert [] == report.violations
    assert {"gone": 1, "underreplicated": 1} == dict(report.skipped)
    assert (1, 2) == (report.redone, changing.asked)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 9))]
)
def test_live_and_from_directories_the_same(
    seed: int, uri: str, tmp_path: Path, capsys: Capsys
) -> None:
    """Random clusters: over the wire, from the directories of the same bookies, and by sets of
    entries the same rows come out."""
    world = random_world(seed, ledgers=8)
    with cluster_of(uri, tmp_path, world.ledgers, world.held):
        live = audited(capsys, uri)
    directories = [f"{name}={tmp_path / name}" for name in BOOKIES]
    offline = audited(capsys, uri, "--offline", *directories)
    expected = {(row[0], row[1].qualified_name, row[2], row[3]) for row in world.rows()}

    assert expected == {row[:4] for row in rows_of(live[1])}
    assert rows_of(live[1]) == rows_of(offline[1])
    assert live[2].splitlines()[-1] == offline[2].splitlines()[-1]
