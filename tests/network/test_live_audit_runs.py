"""Runs of live audits: interrupted, through failures of ZooKeeper, and without a trace."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bkstore.cli.main import main
from bkstore.cluster import ZooKeeperStore
from bkstore.cluster.audit import AuditOptions, Auditor, AuditReport
from bkstore.formats.metadata.underreplication import UnderreplicatedMark
from bkstore.ids import LedgerId
from bkstore.network import AuditedBookies, Client, RegisteredBookie
from bkstore.testing.zookeeper_server import ZooKeeperServer
from tests.cluster.store.samples import new_uri
from tests.network.bookies_on_sockets import audited, cluster_of, registered, serving
from tests.worlds.audits import closed
from tests.worlds.zookeeper import expire, raw_client

Capsys = pytest.CaptureFixture[str]
B3 = ("b1", "b2", "b3")
LEDGERS = 40


class Killed(BaseException):
    """The process goes down."""


@pytest.fixture
def uri(zookeeper: ZooKeeperServer) -> str:
    """Return the service URI of a root that nobody had before."""
    return new_uri(zookeeper)


def _held() -> dict[str, dict[LedgerId, Any]]:
    """Return what three bookies hold of many ledgers: b3 lacks an entry of every third."""
    names = list(map(LedgerId.of, range(LEDGERS)))
    held: dict[str, dict[LedgerId, Any]] = {b: dict.fromkeys(names, range(6)) for b in B3}
    held["b3"] |= {name: [0, 1, 2, 4, 5] for name in names[::3]}
    return held


@pytest.fixture
def running(uri: str, tmp_path: Path) -> Iterator[dict[str, RegisteredBookie]]:
    """Yield three bookies with many ledgers."""
    with cluster_of(uri, tmp_path, map(closed, range(LEDGERS)), _held()) as bookies:
        yield bookies


def _run(store: ZooKeeperStore, **more: Any) -> AuditReport:
    with AuditedBookies(store) as bookies:
        options = AuditOptions(batch=4, rechecks=1, recheck_delay=0.0)
        return Auditor(store, bookies, options=options, wait=lambda _: None).run(**more)


def _told(report: AuditReport) -> Any:
    counts = (report.counts, report.skipped, report.checked, report.unanswered)
    return [report.violations, *map(str, counts)]


def _tree(store: ZooKeeperStore) -> dict[str, Any]:
    """Return every node of the server below the cluster's folder, with all that tells a change."""
    raw, found = raw_client(store), {}
    todo = [store.uri.root.rpartition("/")[0]]
    while todo:
        path = todo.pop()
        data, stat = raw.get(path)
        found[path] = (data, stat.mzxid, stat.pzxid, stat.version, stat.cversion, stat.aversion)
        found[path] += (stat.ephemeralOwner,)
        todo += [f"{path}/{name}" for name in raw.get_children(path)]
    return found


def _files(top: Path) -> dict[str, str]:
    """Return the bytes of every file below a folder, as digests."""
    files = (path for path in sorted(top.rglob("*")) if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_nothing_is_written(
    uri: str, running: dict[str, RegisteredBookie], tmp_path: Path, capsys: Capsys
) -> None:
    """An audit with everything leaves each node of ZooKeeper, ephemeral ones too, at its version
    and transaction, and each file of the bookies as it was."""
    with ZooKeeperStore(uri) as store:
        store.mark_underreplicated(5, UnderreplicatedMark(1.0, ("b2",)))
        for each in running.values():
            each.bookie.checkpoint()
        tree, files = _tree(store), {name: _files(tmp_path / name) for name in B3}
        words = ["--grace-period", 9, "--resume", tmp_path / "kept", "--rate", 1000]
        code, rows, _ = audited(capsys, uri, *words, "--textfile", tmp_path / "audit.prom")

        assert (1, 15) == (code, len(rows))
        assert any(owner for *_, owner in tree.values())  # the registrations are in it
        assert tree == _tree(store)
        assert files == {name: _files(tmp_path / name) for name in B3}


def test_a_bookie_that_dies_and_an_audit_that_is_resumed(
    uri: str, running: dict[str, RegisteredBookie], tmp_path: Path
) -> None:
    """A bookie goes in the middle of a run, then the run; with the bookie back the resumed run
    reports what an uninterrupted one does."""

    def die(done: int, _: int) -> None:
        if done == 8:
            running["b2"].close()
        if done == 20:
            raise Killed

    with ZooKeeperStore(uri) as store:
        whole = _run(store)
        with pytest.raises(Killed):
            _run(store, resume=tmp_path / "kept", progress=die)
        running["b2"] = registered(uri, tmp_path, "b2")
        seen: list[int] = []
        resumed = _run(store, resume=tmp_path / "kept", progress=lambda done, _: seen.append(done))
        running["b2"].close()

    assert 20 == seen[0]
    assert 14 == len(whole.violations)
    assert _told(whole) == _told(resumed)


@pytest.mark.long
def test_a_bookie_that_is_killed_and_an_audit_that_is_resumed(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    """The same with a process that is killed, which stays registered: its ledgers are looked at
    again when the run goes on."""
    uri, folder = new_uri(zookeeper), tmp_path / "b1"
    with ZooKeeperStore.format(uri) as store:
        process = serving(folder, uri, "--create", "--bookie-id", "b1", "--session-timeout", "4")
        try:
            with Client(uri) as client:
                for _ in range(LEDGERS):
                    with client.create_ledger(1, 1, 1) as ledger:
                        ledger.append(b"x")
                store.create(closed(1000, ensemble=("b1",)))  # of which it has nothing

            def die(done: int, _: int) -> None:
                if done == 8:
                    process.kill()
                    process.communicate()
                if done == 20:
                    raise Killed

            whole = _run(store)
            with pytest.raises(Killed):
                _run(store, resume=tmp_path / "kept", progress=die)
            assert store.registered_bookies() == {"b1"}
            process = serving(folder, uri)
            resumed = _run(store, resume=tmp_path / "kept")
        finally:
            process.kill()
            process.communicate()

    assert ["no_replica"] == [row.category for row in whole.violations]
    assert _told(whole) == _told(resumed)
    assert LEDGERS + 1 == resumed.checked


def test_a_file_of_another_instance_is_refused(
    uri: str, running: dict[str, RegisteredBookie], tmp_path: Path, capsys: Capsys
) -> None:
    """A cluster is told by URI and instance id: after it was formatted anew under the same URI,
    the verdicts of the old one are not taken for its."""

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    kept = tmp_path / "kept"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("bkstore.cluster.audit.availability_queries._query_bookie", stopped)

        assert 130 == main(["audit", uri, "--resume", str(kept)])
    capsys.readouterr()
    with ZooKeeperStore(uri) as store:
        before = store.instance_id()
        raw_client(store).set(f"{store.uri.root}/INSTANCEID", b"another")
        code, _, err = audited(capsys, uri, "--resume", kept)

        assert 2 == code
        assert f"instance {before}" in err
        raw_client(store).set(f"{store.uri.root}/INSTANCEID", str(before).encode())
    code, rows, _ = audited(capsys, uri, "--resume", kept)

    assert (1, 14, False) == (code, len(rows), kept.exists())


def test_the_session_expires_in_the_middle(uri: str, running: dict[str, RegisteredBookie]) -> None:
    """A session that ends while the run is on costs nothing of the report."""
    with ZooKeeperStore(uri) as store:
        whole = _run(store)
        told = _run(store, progress=lambda done, _: expire(store) if done in (8, 16) else None)

    assert _told(whole) == _told(told)


@pytest.mark.long
def test_zookeeper_is_restarted_in_the_middle(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    """ZooKeeper killed and started again in the middle of a run: the same report."""
    with ZooKeeperServer(tmp_path / "server", sync=True) as server:
        uri = server.uri("/cluster/ledgers")

        def restart(done: int, _: int) -> None:
            if done == 12:
                server.kill()
                server.start()

        with (
            cluster_of(uri, tmp_path, map(closed, range(LEDGERS)), _held()),
            ZooKeeperStore(uri) as store,
        ):
            assert _told(_run(store)) == _told(_run(store, progress=restart))


def test_the_textfile(
    uri: str, running: dict[str, RegisteredBookie], tmp_path: Path, capsys: Capsys
) -> None:
    """--textfile has upstream's gauges, ledgers by outcome and the times; it replaces what was
    there, and nothing is left beside it. A run that fails leaves the old one."""
    folder = tmp_path / "collector"
    folder.mkdir()
    target = folder / "audit.prom"
    target.write_text("old")

    assert 1 == audited(capsys, uri, "--textfile", target)[0]
    text = target.read_text()
    values = dict(re.findall(r"^([a-zA-Z_]+(?:{.*})?) (\S+)$", text, re.MULTILINE))

    assert [target] == list(folder.iterdir())
    name = "replication_auditor_NUM_LEDGERS_HAVING_LESS_THAN_WQ_REPLICAS_OF_AN_ENTRY"
    assert "14.0" == values[name]
    assert "40.0" == values['bkstore_audit_ledgers{outcome="checked"}']
    assert "0.0" == values["bkstore_audit_clean"]
    assert float(values["bkstore_audit_start_time_seconds"]) < float(
        values["bkstore_audit_end_time_seconds"]
    )
    assert 2 == audited(capsys, f"{uri}x", "--textfile", target)[0]
    assert text == target.read_text()
