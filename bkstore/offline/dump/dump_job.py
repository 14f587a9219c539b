"""Dump bookie directories to Parquet: all tables, many bookies in one dataset.

OUT gets `manifest.json` and a folder of files for each table. Format: `docs/formats/dump.md`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from bkstore.arguments import boolean, integer, optional
from bkstore.errors import BkstoreError, InvalidArgument
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.user_outputs import refuse_inputs
from bkstore.index.api import Finding
from bkstore.offline.dump.dump_piece import PieceResult, WrittenFile
from bkstore.offline.dump.file_names import dump_file_path, file_name
from bkstore.offline.dump.incremental import SOURCES, EarlierDump, encode_sources
from bkstore.offline.dump.log_rows import find_missing_logs
from bkstore.offline.dump.parquet import ParquetTableWriter
from bkstore.offline.dump.partial_dump import PartialDump
from bkstore.offline.dump.plan import PIECE_ROWS, BookiePlan, DumpSource, fingerprint, plan_bookie
from bkstore.offline.dump.workers import PieceTask, UnreadablePiece, run_tasks
from bkstore.offline.reading.file_locations import require_local_path
from bkstore.offline.reading.manifest import (
    MANIFEST,
    encode_manifest,
    finding_to_json,
    read_manifest,
)
from bkstore.offline.staging_directory import check_target
from bkstore.offline.worker_pool import TaskLost
from bkstore.storage.read_only.bookie_dir import BookieDir
from bkstore.tables import BOOKIE_FINDINGS, Schema, Table, require_pyarrow
from bkstore.tables.dump import DUMP_TABLES
from bkstore.tables.safe_text import escape_surrogates

__all__ = [
    "TABLES",
    "BookieDump",
    "DumpProgress",
    "DumpResult",
    "DumpSource",
    "bookie_to_json",
    "dump",
    "file_to_json",
]

TABLES: tuple[Schema, ...] = tuple(DUMP_TABLES.values())

_BookieArgument = BookieDir | DumpSource | str | os.PathLike[str]


class DumpProgress(NamedTuple):
    """Progress of a dump: current bookie, work done and in total (roughly rows), rows written."""

    bookie: str
    done: int
    total: int
    rows: int


@dataclass
class BookieDump:
    """The outcome of one bookie; `failure` is the reason why it was not read, if so."""

    bookie_id: str
    path: str
    failure: Finding | None = None
    layout: str | None = None
    directories: dict[str, list[str]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)


@dataclass
class DumpResult:
    """What a dump wrote, by bookie in the caller's order; of its `pieces`, `reused_pieces` are an
    earlier run's, and `unchanged_pieces` those of the dump `since`."""

    bookies: list[BookieDump] = field(default_factory=list)
    pieces: int = 0
    reused_pieces: int = 0
    unchanged_pieces: int = 0

    @property
    def rows(self) -> dict[str, int]:
        """Rows by table."""
        return {s.name: sum(b.rows.get(s.name, 0) for b in self.bookies) for s in TABLES}

    @property
    def findings(self) -> list[Finding]:
        """The findings of all bookies, also those of bookies that were not read."""
        return [finding for bookie in self.bookies for finding in bookie.findings]


def dump(
    bookies: Sequence[_BookieArgument],
    out: str | os.PathLike[str],
    progress: Callable[[DumpProgress], None] | None = None,
    *,
    jobs: int | None = 1,
    length: bool = False,
    pulsar: bool = False,
    since: str | os.PathLike[str] | None = None,
    resume: bool = True,
    piece_rows: int = PIECE_ROWS,
    files: Files = OS_FILES,
) -> DumpResult:
    """Write the tables of every bookie into the new or empty folder `out`; return a summary.

    A bookie is an open `BookieDir`, a path, or a `DumpSource`; their ids must be distinct. Damage
    and unreadable bookies do not stop a dump: both are findings. `jobs` processes read in parallel
    (None: one per CPU if each has a few million rows to read, since starting one takes half a
    second). With `length`, the sizes of records are read from the entry logs; with `pulsar`, also
    the publish times and numbers of messages of Apache Pulsar's topics. `since` is an earlier
    dump of the same bookies: its files of pieces whose sources have not changed are hard-linked, or
    copied, and only the others are read; the dump is as complete as any. An unfinished dump is
    in ``OUT.partial``; with `resume`, an earlier run's pieces there are kept if their source is
    unchanged. A folder of that name that is not from a dump is refused unchanged.

    Raises `InvalidArgument` for bad arguments, `WriteFailed` if the system refuses (a full disk),
    the first bookie's error if none can be read, `BkstoreError` if a worker process ended early;
    `out` does not exist then. Memory a job: a row group a table, 300 bytes a ledger of a piece.

    >>> import tempfile
    >>> from bkstore.index.hierarchical import HierarchicalIndex
    >>> with tempfile.TemporaryDirectory() as top:
    ...     with HierarchicalIndex(f"{top}/b", writable=True) as index:
    ...         index.put_many(7, [0, 1, 3], [1028, 1100, 1200])
    ...     dump([f"{top}/b"], f"{top}/out").rows["entries"]
    3
    """
    require_pyarrow("dump")
    jobs = optional(integer(1, 1 << 12))("jobs", jobs)  # a process each
    piece_rows = integer(1)("piece_rows", piece_rows)
    boolean("length", length), boolean("pulsar", pulsar), boolean("resume", resume)
    options = {"length": length or pulsar, **({"pulsar": True} if pulsar else {})}
    target = Path(out)
    require_local_path(out, "a dump")
    _check_out(target)
    earlier = _open_earlier(since, target)
    settings = _PlanSettings(target, length or pulsar, pulsar, piece_rows, earlier)
    planned = [_open_and_plan(bookie, settings) for bookie in bookies]
    _check_distinct_names([each.outcome.bookie_id for each in planned])
    run = _DumpRun(planned, progress)
    run.raise_if_none_read()
    with PartialDump(target, resume=resume, files=files) as partial:
        run.write_pieces(partial, jobs, files, earlier)
        if not any(outcome.failure is None for outcome in run.outcomes.values()):
            partial.discard()
        run.raise_if_none_read()
        run.finish(partial, options, files)
    return run.result


def _check_out(out: Path) -> None:
    """Refuse a target that is not empty; the message for a finished dump says that it is one."""
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
            f"{out}: this dump is already complete (at {manifest['made_at']}{how}): to "
            "dump again, choose another folder or remove this one"
        ) from None


class _Planned(NamedTuple):
    """A bookie's outcome so far, and its plan, or instead the error why it cannot be read."""

    outcome: BookieDump
    plan: BookiePlan | None = None
    error: BkstoreError | None = None


class _PlanSettings(NamedTuple):
    """What planning a bookie depends on, besides the bookie."""

    out: Path
    with_lengths: bool
    with_messages: bool
    piece_rows: int
    earlier: EarlierDump | None


def _open_earlier(since: str | os.PathLike[str] | None, out: Path) -> EarlierDump | None:
    if since is None:
        return None
    require_local_path(since, "a dump with files to link")
    refuse_inputs(out, [since])
    return EarlierDump(since)


def _open_and_plan(argument: _BookieArgument, settings: _PlanSettings) -> _Planned:
    """Plan one bookie, or record why it cannot be opened. An open `BookieDir` is not closed."""
    if isinstance(argument, BookieDir):
        return _plan(argument, settings)
    source = argument if isinstance(argument, DumpSource) else DumpSource(argument)
    path = os.fspath(source.path)
    refuse_inputs(settings.out, [path])
    try:
        with source.open() as bookie:
            return _plan(bookie, settings)
    except InvalidArgument:  # the caller's mistake: it ends the dump
        raise
    except BkstoreError as error:
        bookie_id = source.bookie_id or escape_surrogates(Path(path).resolve().name)
        outcome = BookieDump(bookie_id, path, _read_failure(bookie_id, Finding.of(error)))
        return _Planned(outcome, error=error)


def _plan(bookie: BookieDir, settings: _PlanSettings) -> _Planned:
    """Plan an open bookie: cut its index into pieces, at the ledgers of an earlier dump if any."""
    bookie.refuse_output(settings.out)
    folders = bookie.folders
    roles = {"ledger": folders.ledger, "index": folders.index, "journal": folders.journal}
    directories = {role: list(map(str, currents)) for role, currents in roles.items()}
    outcome = BookieDump(bookie.bookie_id, str(bookie.path), None, bookie.layout, directories)
    earlier = settings.earlier
    cuts = {} if earlier is None else earlier.first_ledgers(bookie.bookie_id)
    try:
        plan = plan_bookie(
            bookie,
            settings.with_lengths,
            settings.piece_rows,
            cuts,
            with_messages=settings.with_messages,
        )
    except BkstoreError as error:
        outcome.failure = _read_failure(outcome.bookie_id, Finding.of(error))
        return _Planned(outcome, error=error)
    return _Planned(outcome, plan)


def _read_failure(bookie_id: str, finding: Finding) -> Finding:
    detail = f"bookie {bookie_id} was not read: {finding.detail}"
    return Finding("damage", detail, finding.file, finding.offset, finding.ledger)


def _check_distinct_names(bookie_ids: list[str]) -> None:
    """Raise `InvalidArgument` if two bookies would have the same file names, on file systems that
    ignore case, too."""
    names = Counter(file_name(bookie_id).casefold() for bookie_id in bookie_ids)
    alike = [each for each in bookie_ids if names[file_name(each).casefold()] > 1]
    if alike:
        raise InvalidArgument(
            f"bookie ids are not distinct as file names: {', '.join(alike)}; pass NAME=DIR to give "
            "a directory another id"
        )


def _useful_process_count(tasks: Sequence[PieceTask]) -> int:
    """Return the number of processes whose work exceeds the cost of starting them."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(min(cpus or 1, sum(task.piece.weight for task in tasks) // PIECE_ROWS), 1)


class _DumpRun:
    """One dump, from the plans to the files and the manifest."""

    def __init__(
        self, planned: list[_Planned], progress: Callable[[DumpProgress], None] | None
    ) -> None:
        self.outcomes = {each.outcome.bookie_id: each.outcome for each in planned}
        self.plans = [each.plan for each in planned if each.plan is not None]
        self.errors = [each.error for each in planned if each.error is not None]
        self.result = DumpResult(list(self.outcomes.values()))
        self._progress = progress
        self._lost_tasks: list[str] = []  # messages
        # By name of a piece: its result if it is done, its rows so far, its weight done if it runs.
        self._results: dict[str, PieceResult] = {}
        self._entry_rows: dict[str, int] = {}
        self._running_weight: dict[str, int] = {}
        self._done_weight = 0  # of the pieces that are done

    def raise_if_none_read(self) -> None:
        """Raise the first error if no bookie is read."""
        failures = [bookie.failure for bookie in self.result.bookies if bookie.failure is not None]
        if not self.result.bookies:
            raise InvalidArgument("no bookie to dump")
        if len(failures) < len(self.result.bookies):
            return
        if len(failures) == len(self.errors) == 1:
            raise self.errors[0]  # the only bookie's own error, with its type
        raise BkstoreError(str(failures[0]))

    # -- pieces

    def write_pieces(
        self, partial: PartialDump, jobs: int | None, files: Files, earlier: EarlierDump | None
    ) -> None:
        """Write all pieces that no earlier run has written, and that `earlier` does not have. Raise
        `BkstoreError` if one is lost, as when its process was killed."""
        all_tasks = [
            PieceTask(piece, fingerprint(piece)) for plan in self.plans for piece in plan.pieces
        ]
        tasks = [
            task
            for task in all_tasks
            if not (
                self._resume_piece(task, partial) or self._keep_piece(task, partial, earlier, files)
            )
        ]
        self.result.pieces = len(all_tasks)
        count = _useful_process_count(tasks) if jobs is None else jobs
        outcomes = run_tasks(tasks, partial.work, count, self._report_rows, self._is_wanted, files)
        with closing(outcomes):  # ends the workers, also after an error
            for task, outcome in outcomes:
                if isinstance(outcome, PieceResult):
                    partial.store_piece(task.piece, task.fingerprint, outcome)
                    self._note_result(task, outcome)
                else:
                    self._note_failure(task, outcome)
        if self._lost_tasks:
            more = f" (and {len(self._lost_tasks) - 1} more)" if len(self._lost_tasks) > 1 else ""
            hint = f"; run the same dump again to resume from {partial.staging_path}"
            raise BkstoreError(
                f"{self._lost_tasks[0]}{more}; {partial.out} was not created"
                f"{hint if partial.resumes else ''}"
            )
        for plan in self.plans:
            self._check_unchanged(plan)

    def _resume_piece(self, task: PieceTask, partial: PartialDump) -> bool:
        """Take the result of an interrupted run for the piece; return whether there is one. A
        running bookie's pieces are read again."""
        result = None if task.piece.live else partial.find_piece(task.piece, task.fingerprint)
        if result is not None:
            self._note_result(task, result)
            self.result.reused_pieces += 1
        return result is not None

    def _keep_piece(
        self, task: PieceTask, partial: PartialDump, earlier: EarlierDump | None, files: Files
    ) -> bool:
        """Link or copy the files of the piece from the dump `since`, `earlier`; return whether it
        has the piece."""
        kept_piece = None if earlier is None else earlier.find_piece(task.piece)
        if kept_piece is not None:
            kept_piece.place_files(partial.work, files)
            partial.store_piece(task.piece, task.fingerprint, kept_piece.result)
            self._note_result(task, kept_piece.result)
            self.result.unchanged_pieces += 1
        return kept_piece is not None

    def _is_wanted(self, task: PieceTask) -> bool:
        return self.outcomes[task.piece.bookie_id].failure is None

    def _note_result(self, task: PieceTask, result: PieceResult) -> None:
        """Keep the result of a piece, and count its rows and weight as done."""
        row_count = sum(file.rows for file in result.files if file.table == "entries")
        self._results[task.piece.name], self._entry_rows[task.piece.name] = result, row_count
        self._running_weight.pop(task.piece.name, None)
        self._done_weight += task.piece.weight

    def _note_failure(self, task: PieceTask, outcome: UnreadablePiece | TaskLost) -> None:
        """Note a lost task, which ends the dump, or an unreadable bookie, which is left out."""
        bookie_id = task.piece.bookie_id
        self._running_weight.pop(task.piece.name, None)
        if isinstance(outcome, TaskLost):
            self._lost_tasks.append(f"bookie {bookie_id}, {task.piece}: {outcome.reason}")
        elif self.outcomes[bookie_id].failure is None:
            self.outcomes[bookie_id].failure = _read_failure(bookie_id, outcome.finding)

    def _report_rows(self, task: PieceTask, rows: int) -> None:
        """Report the progress of the dump: `task` has now read `rows` rows."""
        piece = task.piece
        self._entry_rows[piece.name] = rows
        self._running_weight[piece.name] = min(rows, piece.weight)  # a weight is an estimate
        if self._progress is not None:
            total = sum(piece.weight for plan in self.plans for piece in plan.pieces)
            done = self._done_weight + sum(self._running_weight.values())
            self._progress(
                DumpProgress(piece.bookie_id, done, total, sum(self._entry_rows.values()))
            )

    def _check_unchanged(self, plan: BookiePlan) -> None:
        """If a bookie's files changed while they were read, make that its failure."""
        outcome = self.outcomes[plan.bookie_id]
        if outcome.failure is None:
            try:
                plan.bookie_dir.check_unchanged()
            except BkstoreError as error:
                outcome.failure = _read_failure(outcome.bookie_id, Finding.of(error))
                self.errors.append(error)

    # -- the end

    def finish(self, partial: PartialDump, options: dict[str, Any], files: Files) -> None:
        """Write findings and manifest, and publish the dump."""
        tables: dict[str, list[dict[str, Any]]] = {schema.name: [] for schema in TABLES}
        for plan in self.plans:
            self._collect_pieces(plan, tables)
        for outcome in self.result.bookies:
            if outcome.failure is not None:
                outcome.findings.append(outcome.failure)
            self._write_findings(outcome, partial, files, tables)
        outcomes = self.result.bookies
        findings = [(outcome.bookie_id, f) for outcome in outcomes for f in outcome.findings]
        paths = [file_object["path"] for objects in tables.values() for file_object in objects]
        bookies = list(map(bookie_to_json, outcomes))
        manifest = encode_manifest(bookies, tables, findings, options)
        partial.finish(paths, {SOURCES: self._encode_sources(), MANIFEST: manifest})

    def _encode_sources(self) -> bytes:
        read = (plan for plan in self.plans if self.outcomes[plan.bookie_id].failure is None)
        pieces = [piece for plan in read for piece in plan.pieces]
        return encode_sources((piece, self._results[piece.name]) for piece in pieces)

    def _collect_pieces(self, plan: BookiePlan, tables: dict[str, list[dict[str, Any]]]) -> None:
        """Add findings and row counts to the outcome of a read bookie, its files to `tables`."""
        outcome = self.outcomes[plan.bookie_id]
        if outcome.failure is not None:
            return
        findings = list(outcome.findings)
        for piece in plan.pieces:
            result = self._results[piece.name]
            findings += [*result.findings, *find_missing_logs(piece, result.log_ids)]
            for file in result.files:
                outcome.rows[file.table] = outcome.rows.get(file.table, 0) + file.rows
                path = dump_file_path(file.table, piece.bookie_id, piece.number)
                tables[file.table].append(file_to_json(path, piece.bookie_id, file))
        # Neighboring pieces, and planning, may find the same damage: it is listed once.
        outcome.findings = list(dict.fromkeys([*findings, *plan.findings]))

    def _write_findings(
        self,
        outcome: BookieDump,
        partial: PartialDump,
        files: Files,
        tables: dict[str, list[dict[str, Any]]],
    ) -> None:
        """Write a bookie's file of the table `findings`, and add its manifest object."""
        rows = [(outcome.bookie_id, *finding_to_json(f).values()) for f in outcome.findings]
        name = f"{file_name(outcome.bookie_id)}-findings"
        with ParquetTableWriter(partial.work / name, BOOKIE_FINDINGS, files) as file:
            file.write(Table.from_rows(BOOKIE_FINDINGS, rows))
        finished_file = WrittenFile("findings", name, file.row_count, file.byte_count)
        path = dump_file_path("findings", outcome.bookie_id, 0)
        partial.add_file(finished_file, path)
        outcome.rows["findings"] = len(rows)
        tables["findings"].append(file_to_json(path, outcome.bookie_id, finished_file))


def file_to_json(path: str, bookie_id: str, file: WrittenFile) -> dict[str, Any]:
    """Return the manifest's object of a file."""
    entry = {"path": path, "bookie": bookie_id, "rows": file.rows, "bytes": file.bytes}
    return {**entry, **file.manifest_order}


def bookie_to_json(bookie: BookieDump) -> dict[str, Any]:
    """Return the manifest's object of a bookie."""
    severities = [finding.severity for finding in bookie.findings]
    return {
        "id": bookie.bookie_id,
        "path": bookie.path,
        "read": bookie.failure is None,
        "reason": None if bookie.failure is None else str(bookie.failure),
        "layout": bookie.layout,
        "directories": bookie.directories,
        "rows": {schema.name: bookie.rows.get(schema.name, 0) for schema in TABLES},
        "damage": severities.count("damage"),
        "oddities": severities.count("oddity"),
    }
