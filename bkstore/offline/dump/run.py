"""Dumping bookie directories to Parquet: every table of the design, many bookies in one dataset.

OUT gets a folder for each table, in it files for each bookie, and `manifest.json`. Format and
rules: `docs/formats/dump.md`. The parts: `plan` (what is to be read), `piece` (one
piece of it), `workers` (processes), `partial_dump` (the folder until it is whole).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from bkstore.arguments import optional, truth, whole
from bkstore.errors import BkstoreError, InvalidArgument
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.user_outputs import refuse_inputs
from bkstore.index.api import Finding
from bkstore.offline.dump.parquet import ParquetFile
from bkstore.offline.dump.partial_dump import PartialDump, dumped_name
from bkstore.offline.dump.piece import FileDone, PieceDone
from bkstore.offline.dump.plan import (
    PIECE_ROWS,
    BookiePlan,
    DumpSource,
    file_name,
    fingerprint,
    plan_bookie,
)
from bkstore.offline.dump.workers import Task, Unread, run_tasks
from bkstore.offline.reading.manifest import encode_manifest, finding_to_json, read_manifest
from bkstore.offline.reading.places import only_path
from bkstore.offline.staging_directory import check_target
from bkstore.offline.worker_pool import TaskLost
from bkstore.storage.read_only.bookie_dir import BookieDir
from bkstore.tables import (
    BOOKIE_FINDINGS,
    Schema,
    Table,
    require_pyarrow,
)
from bkstore.tables.dump import DUMP_TABLES
from bkstore.tables.safe_text import encodable

__all__ = [
    "TABLES",
    "BookieDump",
    "DumpProgress",
    "DumpResult",
    "DumpSource",
    "described",
    "dump",
    "listed",
]

TABLES: tuple[Schema, ...] = tuple(DUMP_TABLES.values())

_Bookie = BookieDir | DumpSource | str | os.PathLike[str]


class DumpProgress(NamedTuple):
    """How far a dump is: the bookie at hand, work done of all (both in about rows), rows."""

    bookie: str
    done: int
    total: int
    rows: int


@dataclass
class BookieDump:
    """What became of one bookie. `failed` says why it was not read, None if it was."""

    bookie_id: str
    path: str
    failed: Finding | None = None
    layout: str | None = None
    directories: dict[str, list[str]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)


@dataclass
class DumpResult:
    """What a dump wrote, by bookie in the order given; `kept` pieces are of an earlier run."""

    bookies: list[BookieDump] = field(default_factory=list)
    pieces: int = 0
    kept: int = 0

    @property
    def rows(self) -> dict[str, int]:
        """Rows by table."""
        return {s.name: sum(b.rows.get(s.name, 0) for b in self.bookies) for s in TABLES}

    @property
    def findings(self) -> list[Finding]:
        """What was met in all bookies, and which were not read."""
        return [found for bookie in self.bookies for found in bookie.findings]


def dump(
    bookies: Sequence[_Bookie],
    out: str | os.PathLike[str],
    progress: Callable[[DumpProgress], None] | None = None,
    *,
    jobs: int | None = 1,
    length: bool = False,
    resume: bool = True,
    piece_rows: int = PIECE_ROWS,
    files: Files = OS_FILES,
) -> DumpResult:
    """Write the tables of every bookie into the new or empty folder `out`; say what was written.

    A bookie is an open `BookieDir`, a path, or a `DumpSource`; they need distinct ids. Damage
    does not stop a dump, nor does a bookie that cannot be read: both are findings. `jobs`
    processes read beside each other (None: one a CPU, where each has a few million rows to
    read: to start one takes half a second). With `length`, the sizes of records are read from the
    entry logs. Until all is done, what is made is in ``OUT.partial``; with `resume`, pieces of
    an earlier run that are there and fit their source as it is now are kept. A folder of that
    name which no dump began is refused as it is.

    Raises `InvalidArgument` for bad arguments, `WriteFailed` where the system refuses (a full
    disk), the first bookie's error where none can be read, and `BkstoreError` where a process
    of its own ended early; nothing is under `out` then. Memory: a row group of each table, and
    some 300 bytes a ledger of a piece, for each job.

    >>> import tempfile
    >>> from bkstore.index.hierarchical import HierarchicalIndex
    >>> with tempfile.TemporaryDirectory() as top:
    ...     with HierarchicalIndex(f"{top}/b", writable=True) as index:
    ...         index.put_many(7, [0, 1, 3], [1028, 1100, 1200])
    ...     dump([f"{top}/b"], f"{top}/out").rows["entries"]
    3
    """
    require_pyarrow("dump")
    jobs = optional(whole(1, 1 << 12))("jobs", jobs)  # a process each
    piece_rows = whole(1)("piece_rows", piece_rows)
    truth("length", length), truth("resume", resume)
    target = Path(out)
    only_path(out, "a dump")
    _check_out(target)
    looked = [_look(bookie, length, piece_rows, target) for bookie in bookies]
    _check_names([found.bookie_id for found, _, _ in looked])
    run = _Run(looked, progress)
    run.check_some()
    with PartialDump(target, resume=resume, files=files) as partial:
        run.make(partial, jobs, files)
        if not any(made.failed is None for made in run.made.values()):
            partial.discard()
        run.check_some()
        run.finish(partial, {"length": length}, files)
    return run.result


def _check_out(out: Path) -> None:
    """Refuse what is there; of a finished dump say that it is one."""
    try:
        check_target(out)
    except InvalidArgument:
        try:
            manifest = read_manifest(out)
        except BkstoreError:
            manifest = {}
        if "made_at" not in manifest:
            raise
        how = "" if manifest.get("complete") else ", without the bookies that could not be read"
        raise InvalidArgument(
            f"{out}: this dump is finished (at {manifest['made_at']}{how}), there is nothing to go "
            "on with: to dump again, name another folder or remove this one"
        ) from None


_Looked = tuple[BookieDump, BookiePlan | None, BkstoreError | None]


def _look(given: _Bookie, length: bool, piece_rows: int, out: Path) -> _Looked:
    """Plan one bookie; where it cannot be opened, say so. One given open stays open."""
    if isinstance(given, BookieDir):
        return _planned(given, length, piece_rows, out)
    source = given if isinstance(given, DumpSource) else DumpSource(given)
    path = os.fspath(source.path)
    refuse_inputs(out, [path])
    try:
        with source.open() as bookie:
            return _planned(bookie, length, piece_rows, out)
    except InvalidArgument:
        raise
    except BkstoreError as error:
        name = source.bookie_id or encodable(Path(path).resolve().name)
        return BookieDump(name, path, _not_read(name, Finding.of(error))), None, error


def _planned(bookie: BookieDir, length: bool, piece_rows: int, out: Path) -> _Looked:
    bookie.refuse_output(out)
    folders = bookie.folders
    roles = {"ledger": folders.ledger, "index": folders.index, "journal": folders.journal}
    directories = {role: list(map(str, currents)) for role, currents in roles.items()}
    made = BookieDump(bookie.bookie_id, str(bookie.path), None, bookie.layout, directories)
    try:
        plan = plan_bookie(bookie, length, piece_rows)
    except BkstoreError as error:
        made.failed = _not_read(made.bookie_id, Finding.of(error))
        return made, None, error
    return made, plan, None


def _not_read(name: str, found: Finding) -> Finding:
    detail = f"bookie {name} was not read: {found.detail}"
    return Finding("damage", detail, found.file, found.offset, found.ledger)


def _check_names(ids: list[str]) -> None:
    if len({file_name(name).casefold() for name in ids}) != len(ids):
        raise InvalidArgument(
            f"bookie ids are not distinct as file names: {', '.join(ids)}; give --bookie-id"
        )


def _worth(tasks: Sequence[Task]) -> int:
    """Return how many processes are worth their start."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(min(cpus or 1, sum(task.piece.weight for task in tasks) // PIECE_ROWS), 1)


class _Run:
    """One run: from plans to files that are kept, and to the manifest."""

    def __init__(
        self, looked: list[_Looked], progress: Callable[[DumpProgress], None] | None
    ) -> None:
        self.made = {made.bookie_id: made for made, _, _ in looked}
        self.plans = [plan for _, plan, _ in looked if plan is not None]
        self.errors = [error for _, _, error in looked if error is not None]
        self.result = DumpResult(list(self.made.values()))
        self._progress = progress
        self._done: dict[str, PieceDone] = {}
        self._lost: list[str] = []
        self._rows: dict[str, int] = {}
        self._running: dict[str, int] = {}
        self._weight = 0

    def check_some(self) -> None:
        """Raise the first error if no bookie is read."""
        failed = [made.failed for made in self.result.bookies if made.failed is not None]
        if not self.result.bookies:
            raise InvalidArgument("no bookie to dump")
        if len(failed) < len(self.result.bookies):
            return
        if len(failed) == len(self.errors) == 1:
            raise self.errors[0]
        raise BkstoreError(str(failed[0]))

    # -- pieces

    def make(self, partial: PartialDump, jobs: int | None, files: Files) -> None:
        """Write all pieces that are not there yet."""
        tasks = []
        for plan in self.plans:
            for piece in plan.pieces:
                task = Task(piece, fingerprint(piece))
                kept = None if piece.live else partial.kept(piece, task.key)
                if kept is None:
                    tasks.append(task)
                else:
                    self._take(task, kept)
                    self.result.kept += 1
        self.result.pieces = len(tasks) + self.result.kept
        count = _worth(tasks) if jobs is None else jobs
        ended = run_tasks(tasks, partial.work, count, self._report, self._wanted, files)
        with closing(ended):  # ends the workers, also where an error leaves here
            for task, outcome in ended:
                if isinstance(outcome, PieceDone):
                    partial.keep(task.piece, task.key, outcome)
                    self._take(task, outcome)
                else:
                    self._failed(task, outcome)
        if self._lost:
            more = f" (and {len(self._lost) - 1} more)" if len(self._lost) > 1 else ""
            raise BkstoreError(
                f"{self._lost[0]}{more}; {partial.out} was not made, what is done is kept in "
                f"{partial.top}: the same dump again goes on from there"
            )
        for plan in self.plans:
            self._check_unchanged(plan)

    def _wanted(self, task: Task) -> bool:
        return self.made[task.piece.bookie].failed is None

    def _take(self, task: Task, done: PieceDone) -> None:
        self._done[task.piece.name] = done
        self._running.pop(task.piece.name, None)
        self._weight += task.piece.weight
        self._rows[task.piece.name] = sum(f.rows for f in done.files if f.table == "entries")

    def _failed(self, task: Task, outcome: Unread | TaskLost) -> None:
        name = task.piece.bookie
        self._running.pop(task.piece.name, None)
        if not isinstance(outcome, Unread):
            self._lost.append(f"bookie {name}, {task.piece}: {outcome.reason}")
        elif self.made[name].failed is None:
            self.made[name].failed = _not_read(name, outcome.finding)

    def _report(self, task: Task, rows: int) -> None:
        name, weight = task.piece.name, task.piece.weight
        self._rows[name], self._running[name] = rows, min(rows, weight)
        if self._progress is not None:
            total = sum(piece.weight for plan in self.plans for piece in plan.pieces)
            done = self._weight + sum(self._running.values())
            told = DumpProgress(task.piece.bookie, done, total, sum(self._rows.values()))
            self._progress(told)

    def _check_unchanged(self, plan: BookiePlan) -> None:
        made = self.made[plan.bookie_id]
        if made.failed is None:
            try:
                plan.bookie.check_unchanged()
            except BkstoreError as error:
                made.failed = _not_read(made.bookie_id, Finding.of(error))
                self.errors.append(error)

    # -- the end

    def finish(self, partial: PartialDump, options: dict[str, Any], files: Files) -> None:
        """Write findings and manifest, and let the dump appear."""
        tables: dict[str, list[dict[str, Any]]] = {schema.name: [] for schema in TABLES}
        for plan in self.plans:
            self._settle(plan, tables)
        for made in self.result.bookies:
            if made.failed is not None:
                made.findings.append(made.failed)
            self._add_findings(made, partial, files, tables)
        findings = [(m.bookie_id, found) for m in self.result.bookies for found in m.findings]
        names = [file["path"] for listed in tables.values() for file in listed]
        bookies = list(map(described, self.result.bookies))
        partial.finish(names, encode_manifest(bookies, tables, findings, options))

    def _settle(self, plan: BookiePlan, tables: dict[str, list[dict[str, Any]]]) -> None:
        """Add up what the pieces of a bookie gave; nothing where it was not read."""
        made = self.made[plan.bookie_id]
        if made.failed is not None:
            return
        for piece in plan.pieces:
            done = self._done[piece.name]
            made.findings += done.findings
            for file in done.files:
                made.rows[file.table] = made.rows.get(file.table, 0) + file.rows
                path = dumped_name(file.table, piece.bookie, piece.number)
                tables[file.table].append(listed(path, piece.bookie, file))
        made.findings += plan.findings

    def _add_findings(
        self,
        made: BookieDump,
        partial: PartialDump,
        files: Files,
        tables: dict[str, list[dict[str, Any]]],
    ) -> None:
        rows = [(made.bookie_id, *finding_to_json(found).values()) for found in made.findings]
        name = f"{file_name(made.bookie_id)}-findings"
        with ParquetFile(partial.work / name, BOOKIE_FINDINGS, files) as file:
            file.write(Table.from_rows(BOOKIE_FINDINGS, rows))
        done = FileDone("findings", name, file.rows, file.bytes)
        path = dumped_name("findings", made.bookie_id, 0)
        partial.add(done, path)
        made.rows["findings"] = len(rows)
        tables["findings"].append(listed(path, made.bookie_id, done))


def listed(path: str, bookie_id: str, file: FileDone) -> dict[str, Any]:
    """Return what the manifest says of a file."""
    said = {"path": path, "bookie": bookie_id, "rows": file.rows, "bytes": file.bytes}
    return {**said, **file.order}


def described(made: BookieDump) -> dict[str, Any]:
    """Return what the manifest says of a bookie."""
    severities = [found.severity for found in made.findings]
    return {
        "id": made.bookie_id,
        "path": made.path,
        "read": made.failed is None,
        "reason": None if made.failed is None else str(made.failed),
        "layout": made.layout,
        "directories": made.directories,
        "rows": {schema.name: made.rows.get(schema.name, 0) for schema in TABLES},
        "damage": severities.count("damage"),
        "oddities": severities.count("oddity"),
    }
