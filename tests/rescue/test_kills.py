"""A rescue killed at its calls: the same command again ends as one that nothing interrupts."""

from __future__ import annotations

import random
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bkstore import BookieDir
from bkstore.cluster import DirectoryStore
from bkstore.formats.metadata.json_file import ClusterMetadata, decode_file, encode_file
from bkstore.offline.check import Check
from tests.rescue.killed_rescues import RescueRun, run_rescues
from tests.rescue.rescue_runs import fingerprints
from tests.rescue.rescue_worlds import RescueWorld

FORMS = ("folders", "parquet", "bookies", "registered bookies")
_SIGKILLED = -signal.SIGKILL


class KilledWorld:
    """A world whose rescue is killed, each time with another folder for OUT."""

    def __init__(self, top: Path, form: str) -> None:
        self.world = RescueWorld(top / "world", seed=1)
        ledgers = tuple(each.metadata for each in self.world.ledgers.values())
        metadata = top / "metadata.json"
        metadata.write_bytes(encode_file(ClusterMetadata(ledgers), passwords=True))
        bookies = [f"{bookie}={self.world.path(bookie)}" for bookie in self.world.bookies]
        self._words = ["rescue", str(metadata), *bookies]
        self._outputs = top / "outputs"
        self._form = form

    def _out(self, name: str) -> Path:
        return self._outputs / name / "out"

    def _run(self, name: str, last_call: int = 0) -> RescueRun:
        """Return a run that writes into a folder of its own, and is killed before a call."""
        self._out(name).parent.mkdir(parents=True, exist_ok=True)
        words = [*self._words, str(self._out(name)), "--as", self._form.rpartition(" ")[2]]
        if self._is_registered:
            words += ["--store", str(self._store(name))]
        return RescueRun(words, last_call)

    @property
    def _is_registered(self) -> bool:
        return self._form.startswith("registered")

    def _store(self, name: str) -> Path:
        return self._outputs / name / "store"

    def run_undisturbed(self) -> tuple[int, object]:
        """Return the number of calls of a run that is not killed, and its output."""
        (end,) = run_rescues([self._run("undisturbed")])
        assert end.exit_code == 0
        return end.calls, self._read_output("undisturbed")

    def _read_output(self, name: str) -> object:
        """Return what OUT has: files of bytes; of bookies the ledgers, as any reader sees them."""
        out = self._out(name)
        if not self._form.endswith("bookies"):
            files = fingerprints(out)
            return {str(Path(path).relative_to(out)): digest for path, digest in files.items()}
        metadata = decode_file((out / "metadata.json").read_bytes()).ledgers
        folders = sorted(path for path in out.iterdir() if path.is_dir())
        if self._is_registered:
            store = DirectoryStore(self._store(name), read_only=True)
            stored = {each: store.read(each).metadata for each in store.ledgers()}
            assert stored == {each.ledger: each for each in metadata}
        return metadata, [_read_bookie(folder) for folder in folders]

    def check_kills(self, calls: Sequence[int], expected: object) -> None:
        """Kill the rescue before each of these calls, run it again, and compare the outputs. Every
        second time, the run that follows is killed too."""
        runs: dict[str, list[RescueRun]] = {}
        for number, call in enumerate(calls):
            name = str(call)
            kills = [self._run(name, call), *([self._run(name, 20)] if number % 2 else [])]
            runs[name] = [*kills, self._run(name)]
        ends = iter(run_rescues([run for group in runs.values() for run in group]))
        for name, group in runs.items():
            *killed, last = [next(ends).exit_code for _ in group]
            assert killed[0] == _SIGKILLED
            if last == 0:
                names = {each.name for each in self._out(name).parent.iterdir()}
                assert names - {"store"} == {"out"}
            else:  # killed after OUT was published: it is complete, and left as it is
                assert last == 2
            assert self._read_output(name) == expected, f"killed before call {name}"


def _read_bookie(folder: Path) -> object:
    with BookieDir(folder) as bookie:
        assert [] == [each for each in Check(bookie) if each.severity == "damage"]
        ledgers: dict[Any, Any] = {}
        for ledger_id in bookie.index.ledgers():
            entries = bookie.index.entries(ledger_id).tolist()
            records = [bookie.read_entry(ledger_id, entry) for entry in entries]
            ledgers[ledger_id] = (entries, records, bookie.index.state(ledger_id))
        return bookie.bookie_id, bookie.layout, ledgers


@pytest.mark.parametrize("form", FORMS[:3])
def test_killed_here_and_there(tmp_path: Path, form: str) -> None:
    """At some calls, among them one of the last ones."""
    killed = KilledWorld(tmp_path, form)
    calls, expected = killed.run_undisturbed()
    chosen = random.Random(form).sample(range(calls // 3, calls), 4)

    killed.check_kills([*sorted(chosen), calls - 12], expected)


def test_killed_between_store_and_out(tmp_path: Path) -> None:
    """While it registers, and before and after OUT gets its name."""
    killed = KilledWorld(tmp_path, "registered bookies")
    calls, expected = killed.run_undisturbed()

    killed.check_kills([calls - 21, calls - 17, calls - 14, calls - 10, calls - 5], expected)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(4))
@pytest.mark.parametrize("form", FORMS)
def test_killed_anywhere(tmp_path: Path, form: str, first: int) -> None:
    """Before each call once."""
    killed = KilledWorld(tmp_path, form)
    calls, expected = killed.run_undisturbed()

    killed.check_kills(range(1 + first, calls + 1, 4), expected)
