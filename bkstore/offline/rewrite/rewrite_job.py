"""The steps that all rewrites share. The source is not changed; the target appears complete.

A rewrite opens a bookie's directories for reading and builds a target in ``DST.partial`` (index,
entry logs, all other files). It opens the target and compares it with the source's rows, checks
that the source did not change meanwhile, and renames the target to ``DST``. If a rewrite fails,
nothing exists under that name. If it is killed, the next one removes ``DST.partial``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self

from bkstore.arguments import boolean, path as as_path
from bkstore.errors import BkstoreError, CorruptionError, InvalidArgument
from bkstore.files.copies import copy_file, link_file
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.opening import check_regular
from bkstore.files.os_errors import convert_sync_errors, convert_write_errors
from bkstore.formats.entrylog import log_name
from bkstore.ids import LedgerId
from bkstore.index.api import Finding, IndexBatch, LedgerState
from bkstore.offline.index_building.ledger_states import check_storable
from bkstore.offline.rewrite.file_copies import (
    list_other_files,
    write_new_file,
)
from bkstore.offline.rewrite.index_writer import compare_index, write_index
from bkstore.offline.rewrite.log_names import LogNames
from bkstore.offline.rewrite.target_directories import TargetDirectories, encode_target_conf
from bkstore.offline.staging_directory import StagingDirectory, check_target
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.directories.layout import Layout, check_layout
from bkstore.storage.read_only.bookie_dir import BookieDir


class RewriteProgress(NamedTuple):
    """The progress of a rewrite: its step, and how many of the `total` rows or bytes are done."""

    step: str
    done: int
    total: int | None
    rows: int


@dataclass(frozen=True)
class OpenOptions:
    """How to open a source: the arguments of `BookieDir` with these names."""

    live: bool = False
    layout: Layout | None = None
    root: Path | None = None


DEFAULT_OPENING = OpenOptions()
"""For a source that is not in use, and whose layout and directories can be detected."""


@dataclass
class RewriteResult:
    """What a rewrite made. `compared` is true once all rows and states have been compared.

    `duplicates` counts further copies of entries, `left_out` entries (or, by `rebuild_index` and
    `salvage`, ledgers) not taken, `renamed` logs with new ids, `extra_links` links to logs in
    further directories. `findings` lists what is odd or damaged in the source.
    """

    source: Path
    target: Path
    layout_before: Layout
    layout: Layout
    directories: int
    ledgers: int = 0
    entries: int = 0
    duplicates: int = 0
    left_out: int = 0
    logs: int = 0
    log_bytes: int = 0
    linked: bool = False
    renamed: int = 0
    extra_links: int = 0
    other_files: int = 0
    compared: bool = False
    findings: list[Finding] = field(default_factory=list)


class Rewrite:
    """A running rewrite: the open source, the staged target, and the result so far.

    A context manager. Entering it raises `InvalidArgument` if the target exists or lies in the
    source, `DirectoryInUse` if another process writes the target, and what `BookieDir` raises.
    """

    def __init__(
        self,
        kind: str,
        source: str | os.PathLike[str],
        target: str | os.PathLike[str],
        layout: Layout | None,
        progress: Callable[[RewriteProgress], None] | None = None,
        *,
        needs_index: bool = False,
        opening: OpenOptions = DEFAULT_OPENING,
        link: bool = False,
        files: Files = OS_FILES,
    ) -> None:
        """Check the options; the ``with`` block opens the source."""
        if layout is not None:
            check_layout("to", layout)
        self._link = boolean("link", link)
        if link and opening.live:
            raise InvalidArgument("link: a running bookie may still write to its newest log")
        self._kind = kind
        self._needs_index = needs_index
        self._opening = opening
        self._source, self.target = as_path("source", source), as_path("target", target)
        self._requested_layout = layout
        self._progress = progress
        self._step, self._step_done, self._step_total, self._rows_done = "", 0, 0, 0
        self.files = files
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Open the source, check the target, and lock and make the staging directory."""
        with ExitStack() as stack:
            check_target(self.target)
            options = vars(self._opening)
            bookie = BookieDir(self._source, needs_index=self._needs_index, **options)
            self.bookie = stack.enter_context(bookie)
            self.bookie.refuse_output(self.target)
            old_layout = self.bookie.layout
            layout = self._requested_layout or old_layout
            self.target_dirs = TargetDirectories.of(self.bookie, layout)
            count = len(self.target_dirs.ledger)
            self.result = RewriteResult(self._source, self.target, old_layout, layout, count)
            if self.target_dirs.index_moved:
                self._report_moved_index()
            staging = StagingDirectory(self.target, self._kind, self.files)
            self._staging = stack.enter_context(staging)
            self._stack = stack.pop_all()  # without an error, `__exit__` closes both
        return self

    def _report_moved_index(self) -> None:
        """Add a finding: the target has no index directories of its own, unlike the source."""
        detail = (
            "db storage has an index directory for each ledger directory: the databases are in "
            "the ledger directories; the cookie and the conf name no index directories"
        )
        self.result.findings.append(Finding("oddity", detail, str(self.target)))

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    @property
    def layout(self) -> Layout:
        """The target's layout."""
        return self.result.layout

    @property
    def work_dir(self) -> Path:
        """A folder for temporary files, removed at the end."""
        return self._staging.work

    @property
    def staged_dir(self) -> Path:
        """The folder that is renamed to the target at the end."""
        return self._staging.data

    @property
    def is_partitioned(self) -> bool:
        """Whether all of a ledger, logs included, lies in the source's directory ``L mod n``."""
        return self.bookie.layout == "rocksdb"

    def ledger_dirs(self) -> list[Path]:
        """Return the paths of the target's ledger directories, in the source's order."""
        return [self.staged_dir / path for path in self.target_dirs.ledger]

    # -- progress

    def begin_step(self, name: str, total: int | None) -> None:
        """Begin a step of `total` units (rows or bytes), and report it."""
        self._step, self._step_done, self._step_total = name, 0, total or 0
        self.advance(0)

    def advance(self, units: int, rows: int = 0) -> None:
        """Add to the units done in this step and to the rows done, and report the progress."""
        self._step_done += units
        self._rows_done += rows
        if self._progress is not None:
            total = self._step_total or None  # 0: it is not known
            self._progress(RewriteProgress(self._step, self._step_done, total, self._rows_done))

    def _report_rows(self, rows: int) -> None:
        self.advance(rows, rows)

    # -- steps

    def write_index(
        self,
        rows: Iterable[IndexBatch],
        states: Mapping[LedgerId, LedgerState],
        flags: int | None,
        total: int | None = None,
    ) -> None:
        """Write the index from rows in key order, and the ledger states.

        `total` is the highest possible number of rows, if known. Raises `UnsupportedLayout` for
        a ledger in limbo if the target has index files.
        """
        check_storable(states, self.layout, "rewrite it")
        self.begin_step("index", total)
        index_dirs = [self.staged_dir / path for path in self.target_dirs.index]
        db_flags, report = flags if self.layout == "rocksdb" else None, self._report_rows
        self.result.entries = write_index(
            self.layout, index_dirs, rows, states, db_flags, self.work_dir, self.files, report
        )
        self.result.ledgers = len(states)
        if flags and self.layout == "idx":
            detail = f"storage flags {flags:#x} of the databases: index files cannot store them"
            self.result.findings.append(Finding("oddity", detail))

    def copy_logs(self, log_names: LogNames, logs: Sequence[LogFile]) -> None:
        """Copy or link logs into the target under their names there. One that is no regular file is
        left out, with a finding."""
        result = self.result
        self.begin_step("entry logs", sum(log.bytes for log in logs))
        result.linked = self._link  # False if one of the logs has to be copied
        for log in logs:
            file_name = log_name(log_names.new_id(log.dir_index, log.log_id))
            target = self.ledger_dirs()[log.dir_index] / file_name
            try:
                check_regular(log.path)
            except CorruptionError as error:
                result.findings.append(Finding.of(error))
                continue
            with convert_write_errors(target.parent):
                self.files.makedirs(target.parent)
            if self._link and link_file(Path(log.path), target, self.files):
                self.advance(log.bytes)
            else:
                result.linked = False
                copy_file(Path(log.path), target, self.files, self.advance)
            result.logs += 1
            result.log_bytes += log.bytes

    def link_logs(self, log_names: LogNames) -> None:
        """Link or copy logs that hold records of other directories' ledgers into those, too: db
        storage looks for a ledger in its own directory only."""
        currents = self.ledger_dirs()
        for dir_index, log_id, other_dir in log_names.list_extra_links():
            source = currents[dir_index] / log_name(log_id)
            target = currents[other_dir] / log_name(log_id)
            if target.exists():
                directories = f"directories {dir_index} and {other_dir}"
                raise InvalidArgument(f"entry log {log_id} is in {directories}")
            # A directory without a log of its own does not exist yet.
            with convert_write_errors(target.parent):
                self.files.makedirs(target.parent)
            if not link_file(source, target, self.files):
                copy_file(source, target, self.files)
            self.result.extra_links += 1

    def copy_other_files(self, last_id: int | None = None) -> None:
        """Copy all other files into the target; `last_id` replaces the id in `lastId`, if given."""
        self.begin_step("other files", None)
        # All directories are made, those without a file too: a bookie expects each of them.
        for folder in self.target_dirs.target_paths.values():
            with convert_write_errors(self.staged_dir / folder):
                self.files.makedirs(self.staged_dir / folder)
        for file in list_other_files(self.bookie, self.target_dirs, self.result.findings):
            data = file.new_content
            if file.target.name == "lastId" and last_id is not None:
                data = f"{last_id:x}\n".encode("ascii")
            if data is None:
                copy_file(file.source, self.staged_dir / file.target, self.files)
            else:
                write_new_file(self.staged_dir / file.target, data, self.files)
            self.result.other_files += 1
            self.advance(file.size)
        conf_bytes = encode_target_conf(self.bookie, self.target_dirs)
        if conf_bytes is not None:
            write_new_file(self.staged_dir / self.bookie.path.name, conf_bytes, self.files)
        # Last of all, make the names durable.
        for folder in self.target_dirs.target_paths.values():
            with convert_sync_errors(self.staged_dir / folder):
                self.files.sync_dir(self.staged_dir / folder)

    def copy_rest_and_compare(
        self,
        log_names: LogNames,
        logs: Sequence[LogFile],
        rows: Iterable[IndexBatch],
        states: Mapping[LedgerId, LedgerState],
    ) -> None:
        """Link logs into further directories, copy all other files, and compare the index."""
        self.link_logs(log_names)
        self.result.renamed = log_names.renamed
        # A bookie names its next log by the file `lastId`: it must not repeat a new id.
        new_ids = (log_names.new_id(log.dir_index, log.log_id) for log in logs)
        self.copy_other_files(last_id=max(new_ids, default=0) if log_names.renamed else None)
        self.compare(rows, states)

    def compare(self, rows: Iterable[IndexBatch], states: Mapping[LedgerId, LedgerState]) -> None:
        """Open the target as a bookie's directory, and compare each row and ledger state in it."""
        self.begin_step("comparing", self.result.entries)
        with self.open_target() as target:
            opened_dirs = [Path(os.path.abspath(current)) for current in target.folders.ledger]
            if opened_dirs != self.ledger_dirs():
                raise BkstoreError(f"{self.target}: its directories are in another order")
            count = compare_index(target.index, rows, states, self.staged_dir, self._report_rows)
        if count != self.result.entries:
            raise BkstoreError(f"{self.target}: {self.result.entries} rows written, {count} read")
        self.result.compared = True

    def open_target(self) -> BookieDir:
        """Open the staged target for reading."""
        if not self.bookie.folders.configured:
            return BookieDir(self.staged_dir, layout=self.layout)
        conf = self.staged_dir / self.bookie.path.name
        return BookieDir(conf, layout=self.layout, root=self.staged_dir)

    def finish(self) -> RewriteResult:
        """Rename the staged target; raise `DirectoryInUse` if the source has changed meanwhile."""
        self.bookie.check_unchanged()
        self._staging.publish()
        return self.result
