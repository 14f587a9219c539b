"""Faults of running bookies: what clients, ZooKeeper and `bkstore ensemble status` see of them."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kazoo", reason="kazoo is not installed")

from bkstore.cli.main import main
from bkstore.cluster import ZooKeeperStore
from bkstore.errors import (
    BookieUnavailable,
    CorruptionError,
    IllegalOperation,
    InvalidArgument,
    MissingDependency,
)
from bkstore.network import Client
from bkstore.testing.ensemble import Ensemble
from bkstore.wire.client import WireClient
from tests.testing.ensemble.processes import alive, all_end

Capsys = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    """Yield an ensemble of three bookies for all tests; skip without Java or a ZooKeeper."""
    try:
        ensemble = Ensemble(tmp_path_factory.mktemp("faults") / "e", 3, ["sorted", "db"])
    except MissingDependency as error:
        pytest.skip(str(error))
    with ensemble:
        yield ensemble


@pytest.fixture
def ensemble(shared: Ensemble) -> Ensemble:
    """Return the ensemble, whole: what the last test left is mended."""
    return shared.restore()


def _until(condition: Callable[[], bool]) -> bool:
    """Return whether a condition comes to hold."""
    until = time.monotonic() + 30
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)
    return condition()


def _writable(ensemble: Ensemble) -> frozenset[str]:
    with ZooKeeperStore(ensemble.uri) as store:
        return frozenset(store.writable_bookies())


def _status(ensemble: Ensemble, capsys: Capsys) -> tuple[int, dict[str, tuple[Any, Any, bool]]]:
    """Return the exit code of `status`, and (state, faults, whether it has a pid) by bookie."""
    capsys.readouterr()
    code = main(["ensemble", "status", "--dir", str(ensemble.path), "--format", "json"])
    rows = json.loads(capsys.readouterr().out)
    return code, {
        row["bookie"]: (row["state"], row["faults"], row["pid"] is not None) for row in rows
    }


WELL = ("writable", "", True)


@pytest.mark.parametrize(
    ("fault", "seconds", "state", "shown"),
    [
        ("frozen", None, "frozen", "frozen"),
        ("partitioned", None, "writable", "partitioned"),
        ("slow-disk", 90.0, "writable", "slow-disk 90 s"),
    ],
)
def test_a_bookie_that_gives_no_answer(
    fault: Any, seconds: float, state: str, shown: str, ensemble: Ensemble, capsys: Capsys
) -> None:
    """A writer replaces it, status shows the fault, and once it is healed it answers again with
    what it has, without a restart."""
    with Client(ensemble.uri, timeout=1.0) as client:
        ledger = client.create_ledger(2, 2, 2)
        ledger.append(b"zero")
        bookie = ledger.metadata.segments[0].ensemble[0]
        pid = ensemble.bookies[bookie].pid

        assert (0, dict.fromkeys(ensemble.bookies, WELL)) == _status(ensemble, capsys)
        ensemble.fault(bookie, fault, seconds)
        faulty = dict.fromkeys(ensemble.bookies, WELL) | {bookie: (state, shown, True)}
        assert (1, faulty) == _status(ensemble, capsys)
        assert {fault: seconds or 0} == ensemble.bookies[bookie].faults
        ledger.append(b"one")

        assert 2 == len(ledger.metadata.segments)
        assert bookie not in ledger.metadata.segments[1].ensemble
        ensemble.heal(bookie)
        assert {} == ensemble.bookies[bookie].faults
        assert pid == ensemble.bookies[bookie].pid
    ensemble.heal(bookie)  # nothing to heal
    assert _until(lambda: bookie in _writable(ensemble))
    with WireClient(ensemble.bookies[bookie].address, timeout=20) as client_of_it:
        assert client_of_it.read_entry(ledger.ledger, 0).endswith(b"zero")


@pytest.mark.parametrize("fault", ["full-disk", "read-only"])
def test_a_bookie_that_takes_no_entries(fault: Any, ensemble: Ensemble, capsys: Capsys) -> None:
    """It is registered as read-only soon, and gets no new ledgers; healed it is writable."""
    assert 0 == main(["ensemble", "fault", "bookie-2", fault, "--dir", str(ensemble.path)])
    assert f"bkstore: bookie-2: {fault}, until" in capsys.readouterr().err
    assert _until(lambda: {"bookie-1", "bookie-3"} == _writable(ensemble))
    code, rows = _status(ensemble, capsys)

    assert (1, ("read-only", fault, True)) == (code, rows["bookie-2"])
    with Client(ensemble.uri) as client:
        ledger = client.create_ledger(2, 2, 2)
        assert {"bookie-1", "bookie-3"} == set(ledger.metadata.segments[0].ensemble)
    assert 0 == main(["ensemble", "heal", "--dir", str(ensemble.path)])
    assert "bkstore: all bookies: all faults ended\n" == capsys.readouterr().err
    assert _until(lambda: "bookie-2" in _writable(ensemble))
    assert not (ensemble.path / "bookie-2.faults").exists()


def test_a_journal_that_failed(ensemble: Ensemble, capsys: Capsys) -> None:
    """After a failed write the bookie stays read-only when its disk is healed, as a real one does:
    it has to be started again. A disk that is full is so for the next process too, which says so.
    `restore` mends all of it."""
    with Client(ensemble.uri) as client, client.create_ledger(2, 2, 2) as ledger:
        bookie = ledger.metadata.segments[0].ensemble[0]
        ensemble.fault(bookie, "failing-disk")
        ledger.append(b"zero")

        assert bookie not in ledger.metadata.segments[0].ensemble
        assert _until(lambda: bookie not in _writable(ensemble))
        ensemble.heal(bookie, "failing-disk")
        assert ("read-only", "", True) == _status(ensemble, capsys)[1][bookie]
        assert "writing a journal failed" in ensemble.bookies[bookie].log.read_text()
        ensemble.fault(bookie, "full-disk")
        ensemble.stop(bookie)
        with pytest.raises(BookieUnavailable, match=r" ended \(2\): .*No space left on device"):
            ensemble.start(bookie)
        ensemble.restore()

        assert bookie in _writable(ensemble)
        assert {} == ensemble.bookies[bookie].faults
        ensemble.fault(bookie, "failing-disk")
        old = ensemble.bookies[bookie].pid
        ensemble.restore()
        assert not alive(old)


def test_status_right_after_a_kill(ensemble: Ensemble, capsys: Capsys) -> None:
    """ZooKeeper lists a killed bookie for seconds, and the state file has its process: status says
    that it has ended. A frozen one that is killed has no fault; nobody can freeze it."""
    bookie = ensemble.bookies["bookie-3"]
    pid = bookie.pid
    assert pid is not None
    ensemble.fault(bookie, "frozen")
    os.kill(pid, signal.SIGKILL)
    assert all_end([pid])
    code, rows = _status(ensemble, capsys)

    assert (1, ("ended", "", False)) == (code, rows["bookie-3"])
    assert "bookie-3" in _writable(ensemble)
    assert WELL == rows["bookie-1"]
    with pytest.raises(IllegalOperation, match="bookie-3 is not running"):
        ensemble.fault(bookie, "frozen")
    line = "bkstore: bookie bookie-3 is not running as a process of the ensemble\n"
    assert 2 == main(["ensemble", "fault", "bookie-3", "frozen", "--dir", str(ensemble.path)])
    assert line == capsys.readouterr().err


def test_a_frozen_bookie_is_stopped_in_order(ensemble: Ensemble) -> None:
    """It is continued for its stop, which else would have to kill it."""
    bookie = ensemble.bookies["bookie-2"]
    assert 0 == main(["ensemble", "fault", "bookie-2", "frozen", "--dir", str(ensemble.path)])
    assert {"frozen": 0} == bookie.faults
    ensemble.stop(bookie)

    assert 0 == bookie.exit_code


def test_what_is_refused(ensemble: Ensemble, capsys: Capsys, tmp_path: Path) -> None:
    """Unknown bookies and faults, seconds of faults that have none, other directories; a fault
    file that says nonsense is named."""
    place = str(ensemble.path)
    with pytest.raises(InvalidArgument, match="no bookie 'bookie-9'"):
        ensemble.fault("bookie-9", "full-disk")
    with pytest.raises(InvalidArgument, match=r"fault .*'tired'"):
        ensemble.fault("bookie-1", "tired")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"fault .*'tired'"):
        ensemble.heal("bookie-1", "tired")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="seconds"):
        ensemble.fault("bookie-1", "slow-disk", 0)
    wrong = {
        "full-disk has no seconds: only slow-disk has": ["fault", "bookie-1", "full-disk"],
        "no bookie 'bookie-9': there are bookie-1, bookie-2, bookie-3": ["heal", "bookie-9"],
    }
    for why, words in wrong.items():
        extra = ["--seconds", "1"] if words[0] == "fault" else []
        assert 2 == main(["ensemble", *words, *extra, "--dir", place])
        assert why in capsys.readouterr().err
    assert 2 == main(["ensemble", "fault", "bookie-1", "full-disk", "--dir", str(tmp_path)])
    assert "not an ensemble's directory" in capsys.readouterr().err
    for text in ("[]", '{"tired": 0}', '{"slow-disk": -1}', '{"slow-disk": true}', "no"):
        file = ensemble.path / "bookie-1.faults"
        file.write_text(text)
        with pytest.raises(CorruptionError, match=r"bookie-1\.faults"):
            _ = ensemble.bookies["bookie-1"].faults
        file.unlink()
