"""Dumps that are interrupted: nothing appears before it is whole, and the next run goes on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.offline.dump import DumpResult, dump
from tests.paths import ROOT
from tests.worlds.dumps import Watched, contents, fill, idx, rocks3, rows

pytest.importorskip("pyarrow")

PIECES = 5000
"""Rows a piece: two pieces of the index files, three of RocksDB."""


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return two bookies, with index files and with three databases."""
    top = tmp_path_factory.mktemp("two")
    for name, make in (("a", idx), ("b", rocks3)):
        fill(make(top / name))
    return [top / "a", top / "b"]


@pytest.fixture(scope="module")
def whole(two: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dump that nothing interrupted."""
    out = tmp_path_factory.mktemp("whole") / "out"
    dump(two, out, piece_rows=PIECES)
    return out


class Stopped(Exception):
    """What ends a dump in the middle."""


def _stopping(call: int) -> Watched:
    """Return a file layer whose call number `call` fails, and all behind it."""
    calls = 0

    def tell(what: str, path: str) -> None:
        nonlocal calls
        calls += 1
        if calls >= call:
            raise Stopped(what)

    return Watched(tell)


def _calls(two: list[Path], out: Path) -> list[str]:
    seen: list[str] = []
    dump(two, out, piece_rows=PIECES, files=Watched(lambda what, path: seen.append(what)))
    return seen


def _check_goes_on(two: list[Path], whole: Path, out: Path) -> DumpResult | None:
    """The place holds nothing, or the whole dump; the same dump again gives the whole."""
    if out.exists():  # ended between the last rename and the removal of what it left
        assert contents(whole) == contents(out)
        return None
    again = dump(two, out, piece_rows=PIECES)

    assert contents(whole) == contents(out)
    assert not out.with_name("out.partial").exists()
    return again


def test_ends_at_every_call(two: list[Path], whole: Path, tmp_path: Path) -> None:
    """Wherever a dump ends, nothing partial has the final name and the next run makes it whole.

    Work that was recorded is not done again.
    """
    calls = _calls(two, tmp_path / "counted")
    renamed = [at for at, what in enumerate(calls) if what == "replace"]
    kept = []
    for call in sorted(
        {*range(1, len(calls), len(calls) // 6), *renamed[-3:], renamed[-1] + 1, len(calls)}
    ):
        out = tmp_path / f"at-{call}" / "out"
        out.parent.mkdir()
        with pytest.raises(Stopped):
            dump(two, out, piece_rows=PIECES, files=_stopping(call))
        again = _check_goes_on(two, whole, out)
        kept += [again.reused_pieces] if again else []

    assert sorted(kept) == kept
    assert 0 == kept[0] < kept[-1]


KILLED = """
import os, signal, sys
from bkstore.offline.dump import dump
from tests.worlds.dumps import Watched
left = int(sys.argv[1])
def tell(what, path):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
dump(sys.argv[4:], sys.argv[2], piece_rows=5000, jobs=int(sys.argv[3]), files=Watched(tell))
"""


def _killed(call: int, out: Path, two: list[Path], jobs: int) -> int:
    words = [str(call), str(out), str(jobs), *map(str, two)]
    command = [sys.executable, "-c", KILLED, *words]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


@pytest.mark.parametrize(("share", "jobs"), [(0.3, 1), (0.6, 2), (0.95, 1)])
def test_killed(two: list[Path], whole: Path, tmp_path: Path, share: float, jobs: int) -> None:
    """A driver that is killed in the middle leaves nothing under the final name."""
    calls = _calls(two, tmp_path / "counted")
    number = int(len(calls) * share)
    if jobs > 1:  # the driver itself renames, records and syncs; workers write
        number = int(sum(what != "pwrite" for what in calls) * share * 0.7)
    code = _killed(number, tmp_path / "out", two, jobs)

    assert -9 == code
    assert not (tmp_path / "out").exists()
    assert (tmp_path / "out.partial").is_dir()
    again = _check_goes_on(two, whole, tmp_path / "out")
    assert again is not None
    assert 0 < again.reused_pieces < again.pieces


@pytest.mark.long
def test_killed_at_every_call(two: list[Path], whole: Path, tmp_path: Path) -> None:
    """So it is for a kill at any call that changes something."""
    calls = len(_calls(two, tmp_path / "counted"))
    for call in range(1, calls + 1, 7):
        out = tmp_path / f"at-{call}" / "out"
        out.parent.mkdir()

        assert -9 == _killed(call, out, two, 1)
        _check_goes_on(two, whole, out)


def test_begin_anew(two: list[Path], whole: Path, tmp_path: Path) -> None:
    """With resume=False nothing of an earlier run is kept."""
    with pytest.raises(Stopped):
        dump(two, tmp_path / "out", piece_rows=PIECES, files=_stopping(150))
    again = dump(two, tmp_path / "out", piece_rows=PIECES, resume=False)

    assert 0 == again.reused_pieces
    assert contents(whole) == contents(tmp_path / "out")


# -- what is kept must fit


@pytest.fixture
def halfway(two: list[Path], tmp_path: Path) -> tuple[Path, list[Path]]:
    """Return OUT of a dump that ended before its last step, and copies of its bookies."""
    for bookie in two:
        shutil.copytree(bookie, tmp_path / bookie.name)
    copies = [tmp_path / bookie.name for bookie in two]
    calls = _calls(copies, tmp_path / "counted")
    with pytest.raises(Stopped):
        dump(copies, tmp_path / "out", piece_rows=PIECES, files=_stopping(len(calls) - 2))
    return tmp_path / "out", copies


def _add_entry(bookie: Path) -> None:
    with HierarchicalIndex(bookie / "ledgers", writable=True) as index:
        index.put_many(9, [5], [(7 << 32) + 9000])


def _age(bookie: Path) -> None:
    path = next(bookie.rglob("9.idx"))
    os.utime(path, ns=(5, 5))


@pytest.mark.parametrize("change", [_add_entry, _age])
def test_changed_source(
    halfway: tuple[Path, list[Path]], tmp_path: Path, change: Callable[[Path], None]
) -> None:
    """A piece whose source has changed since is made again, the others are kept."""
    out, copies = halfway
    change(copies[0])
    again = dump(copies, out, piece_rows=PIECES)
    dump(copies, tmp_path / "fresh", piece_rows=PIECES)

    assert contents(tmp_path / "fresh") == contents(out)
    assert 1 == again.pieces - again.reused_pieces


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _scribble(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4] + b"XXXX")


@pytest.mark.parametrize("damage", [_cut, _scribble, Path.unlink])
def test_damaged_files_are_made_again(
    halfway: tuple[Path, list[Path]], tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    """A kept file of another size, or without its footer, is not believed."""
    out, copies = halfway
    damage(sorted(out.with_name("out.partial").rglob("entries/*.parquet"))[1])
    again = dump(copies, out, piece_rows=PIECES)

    assert 1 == again.pieces - again.reused_pieces
    assert contents(tmp_path / "counted") == contents(out)


def test_other_bookies(halfway: tuple[Path, list[Path]], tmp_path: Path) -> None:
    """What an earlier run made of a bookie that is no longer asked for is not in the dump."""
    out, copies = halfway
    again = dump(copies[1:], out, piece_rows=PIECES)
    dump(copies[1:], tmp_path / "fresh", piece_rows=PIECES)

    assert again.pieces == again.reused_pieces
    assert contents(tmp_path / "fresh") == contents(out)
    assert {"b"} == {row[0] for row in rows(out, "ledgers")}


def test_other_options(halfway: tuple[Path, list[Path]]) -> None:
    """Pieces without lengths are of no use to a dump with lengths."""
    out, copies = halfway
    again = dump(copies, out, piece_rows=PIECES, length=True)

    assert 2 == again.reused_pieces  # those of the entry logs
    assert {"no such entry log"} == {row[2].rpartition(": ")[2] for row in rows(out, "findings")}


# -- the order of what is made durable


def test_everything_is_synced_before_it_appears(two: list[Path], tmp_path: Path) -> None:
    """Files are synced before their rename, folders behind it, all before OUT; then its parent."""
    events: list[tuple[str, str]] = []
    out = tmp_path / "out"
    dump(two, out, piece_rows=PIECES, files=Watched(lambda *event: events.append(event)))
    unsynced: set[str] = set()
    names: set[str] = set()
    appeared = None
    for at, (what, path) in enumerate(events):
        if what == "pwrite":
            unsynced.add(path)
        elif what == "fsync":
            unsynced.discard(path)
        elif what == "sync_dir":
            names.discard(path)
        elif what == "replace":
            source, target = path.split("\n")

            assert source not in unsynced
            names.add(str(Path(target).parent))
            if target == str(out):
                assert {str(tmp_path)} == names
                appeared = at
        elif what in ("mkdir", "unlink"):
            names.add(str(Path(path).parent))

    assert appeared is not None
    assert ("sync_dir", str(tmp_path)) in events[appeared:]
