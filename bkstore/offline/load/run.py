"""Loading a dump into a new index: `entries` and `ledgers` of one bookie, RocksDB or index files.

The single-process way, and the frame of every way: an `Engine` writes the rows as pieces
(`offline.index_building`), this module has them put together, compares the result with the dump
and gives it its name. Spark's engine is `bkstore.spark.load`. Rules: `docs/spark.md`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from bkstore.arguments import optional, truth, whole
from bkstore.errors import CorruptionError, UnsupportedLayout
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.user_outputs import refuse_inputs
from bkstore.ids import LedgerId
from bkstore.index.api import EntryIndex, Finding, IndexBatch, LedgerState
from bkstore.offline.index_building.assembly import build, currents
from bkstore.offline.index_building.ledger_states import check_states, compare_states
from bkstore.offline.index_building.row_comparison import compare_rows
from bkstore.offline.index_building.row_writers import TableFile, row_writer
from bkstore.offline.load.dump_rows import LoadSource, open_dump
from bkstore.offline.load.dumped_states import read_states
from bkstore.offline.load.key_order import RUN_ROWS, OrderedRows, survey
from bkstore.offline.reading.places import is_remote, only_path
from bkstore.offline.staging_directory import StagingDirectory, check_target
from bkstore.storage.directories.layout import check_layout
from bkstore.storage.read_only.bookie_dir import open_index

To = Literal["rocksdb", "idx"]


class LoadProgress(NamedTuple):
    """How far a load is: what it is at, rows done of all (reading, writing, comparing)."""

    step: str
    done: int
    total: int
    rows: int


@dataclass
class LoadResult:
    """What a load made. `rows` are in the index; `duplicates` of the dump lost against others."""

    bookie: str
    to: To
    rows: int = 0
    duplicates: int = 0
    ledgers: int = 0
    directories: int = 1
    compared: bool = False
    findings: list[Finding] = field(default_factory=list)


@dataclass(frozen=True)
class LoadJob:
    """What an engine is to do: read `source`, write pieces for layout `to` below `work`."""

    source: LoadSource
    states: dict[LedgerId, LedgerState]
    to: To
    work: Path
    files: Files
    report: Callable[[str, int], None]


class Engine(Protocol):
    """Writes the rows of a dump as pieces, and compares them with an index afterwards."""

    def write(self, job: LoadJob) -> tuple[list[TableFile], int]:
        """Write ordered, distinct rows; return the pieces, and how many duplicates there were."""

    def compare(self, job: LoadJob, index: EntryIndex, data: Path) -> int:
        """Return how many rows both have; `CorruptionError` where the index differs."""


class LocalEngine:
    """One process: rows in order go straight through, others are sorted on disk."""

    def __init__(self, run_rows: int = RUN_ROWS) -> None:
        self._run_rows = whole(1)("run_rows", run_rows)
        self._ordered: list[OrderedRows] = []

    def write(self, job: LoadJob) -> tuple[list[TableFile], int]:
        """Read all rows twice, once to see how they lie. Some 0.3 us a row to RocksDB."""
        seen = survey(job.source)
        scratch = job.work / "sorted"
        self._ordered = [
            OrderedRows(job.source, seen, at, scratch, self._run_rows, job.files)
            for at in range(job.source.directories)
        ]
        writer = row_writer(job.to, job.work / "local", job.files, job.states)
        rows = 0
        for directory, ordered in enumerate(self._ordered):
            for part in ordered:
                writer.add(directory, part)
                rows += part.entry_id.size
                job.report("written", rows)
        return writer.finish(), sum(ordered.duplicates for ordered in self._ordered)

    def compare(self, job: LoadJob, index: EntryIndex, data: Path) -> int:
        """Read the rows again, and the index beside them."""
        return compare_rows(self._expected(job), index.scan(), data)

    def _expected(self, job: LoadJob) -> Iterator[IndexBatch]:
        rows = 0
        for ordered in self._ordered:
            for part in ordered:
                yield part
                rows += part.entry_id.size
                job.report("compared", rows)


def load(
    dump: str | os.PathLike[str],
    out: str | os.PathLike[str],
    to: To = "rocksdb",
    progress: Callable[[LoadProgress], None] | None = None,
    *,
    bookie: str | None = None,
    directories: int | None = None,
    compare: bool = True,
    engine: Engine | None = None,
    files: Files = OS_FILES,
) -> LoadResult:
    """Make `out`, new or an empty folder, the index of a bookie of a dump; say what it has.

    `dump` is a path, or a URI (`docs/spark.md`). `bookie` says which, where it has several.
    Entries may come in any order, and more than once: the highest location (log id, then
    position) wins, which is the one that was put last. Ledgers have their master keys, flags and
    explicit LACs. A RocksDB bookie of several directories becomes ``out/ledgers0``, ...; else
    `out` has one ``current/``. Unless `compare` is False, the index is then opened, and each row
    and state of it compared with the dump. All grows in ``OUT.partial``, and appears as `out` by
    one rename; a folder of that name which no load began is refused as it is.

    Raises `InvalidArgument` for bad arguments, `CorruptionError` for a file that is not as a
    dump's, `UnsupportedLayout` for one with other columns, or a state or directories that the
    layout cannot have, `WriteFailed` where the system refuses. Nothing is under `out` then.
    Memory: some 300 bytes a ledger, and about 300 MiB.

    >>> import tempfile
    >>> from bkstore import open_index
    >>> from bkstore.index.hierarchical import HierarchicalIndex
    >>> from bkstore.offline.dump import dump
    >>> with tempfile.TemporaryDirectory() as top:
    ...     with HierarchicalIndex(f"{top}/b", writable=True) as index:
    ...         index.put_many(7, [0, 1, 3], [1028, 1100, 1200])
    ...     result = dump([f"{top}/b"], f"{top}/dump")
    ...     made = load(f"{top}/dump", f"{top}/rocks", "rocksdb")
    ...     with open_index(f"{top}/rocks") as index:
    ...         made.rows, index.layout, index.get(7, 3)
    (3, 'rocksdb', 1200)
    """
    _check_arguments(to, directories, compare)
    only_path(out, "an index")
    source = open_dump(dump, bookie, directories)
    target = Path(out)
    _check_target(source, target, to)
    result = LoadResult(source.bookie, to, findings=list(source.findings))
    result.directories = source.directories
    states = read_states(source, result.findings)
    check_states(states, to)
    with StagingDirectory(target, "load", files) as staging:
        report = _reporter(progress, source.rows, 2 if compare else 1)
        job = LoadJob(source, states, to, staging.work, files, report)
        engine = engine or LocalEngine()
        made, result.duplicates = engine.write(job)
        result.rows, result.ledgers = sum(piece.rows for piece in made), len(states)
        build(to, currents(staging.data, source.directories), made, states, files)
        if compare:
            _compare(engine, job, staging.data, result)
        staging.publish()
    return result


def _check_arguments(to: Any, directories: Any, compare: Any) -> None:
    check_layout("to", to)
    optional(whole(1))("directories", directories)
    truth("compare", compare)


def _check_target(source: LoadSource, out: Path, to: To) -> None:
    check_target(out)
    if not is_remote(source.dump):
        refuse_inputs(out, [source.dump])
    if to == "idx" and source.directories > 1:
        raise UnsupportedLayout(
            f"bookie {source.bookie} has {source.directories} directories, each with entry logs "
            "of the same ids, which index files cannot tell apart: load to rocksdb"
        )


def _reporter(
    progress: Callable[[LoadProgress], None] | None, total: int, passes: int
) -> Callable[[str, int], None]:
    def report(step: str, rows: int) -> None:
        if progress is not None:
            before = total if step == "compared" else 0
            progress(LoadProgress(step, before + rows, passes * total, rows))

    return report


def _compare(engine: Engine, job: LoadJob, data: Path, result: LoadResult) -> None:
    states = job.states
    with ExitStack() as stack:
        index = stack.enter_context(open_index(data, layout=job.to))
        rows = engine.compare(job, index, data)
        if rows != result.rows:
            reason = f"has {rows} rows, {result.rows} were written"
            raise CorruptionError(data, None, reason)
        compare_states(index, states, data)
        known = set(index.ledgers())
        if not known >= states.keys() or (job.to == "rocksdb" and known != states.keys()):
            odd = sorted(known ^ states.keys())[0]
            raise CorruptionError(data, None, f"ledger {odd} is not in both index and dump")
    result.compared = True
