"""The frame of every rewrite: a source that stays as it is, a target that appears whole.

A rewrite opens a bookie's directories for reading, makes a target in ``DST.partial`` (index, entry
logs, all other files), opens the target and compares it with what it was made of, sees that the
source did not move meanwhile, and gives the target its name by one rename. Whatever ends it
before leaves nothing under that name; what a kill leaves in ``DST.partial`` the next one removes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from bkstore.arguments import path as as_path, truth
from bkstore.errors import BkstoreError, CorruptionError, InvalidArgument
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.opening import check_regular
from bkstore.files.os_errors import syncing, writing
from bkstore.formats.entrylog import log_name
from bkstore.ids import LedgerId
from bkstore.index.api import Finding, IndexBatch, LedgerState
from bkstore.offline.index_building.ledger_states import check_states
from bkstore.offline.rewrite.carried_files import copy_file, link_file, write_new
from bkstore.offline.rewrite.directories import TargetDirectories, other_files, target_conf
from bkstore.offline.rewrite.index_writer import compare_index, write_index
from bkstore.offline.rewrite.log_names import LogNames
from bkstore.offline.staging_directory import StagingDirectory, check_target
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.directories.layout import Layout, check_layout
from bkstore.storage.read_only.bookie_dir import BookieDir


class RewriteProgress(NamedTuple):
    """How far a rewrite is: the step it is at, how much of it is done (rows or bytes), of all."""

    step: str
    done: int
    total: int | None
    rows: int


@dataclass(frozen=True)
class Opening:
    """How a source is opened: the arguments of `BookieDir` of the same names."""

    live: bool = False
    layout: Layout | None = None
    root: Path | None = None


AS_IT_LIES = Opening()
"""A source that is not in use, whose layout and places tell themselves."""


@dataclass
class RewriteResult:
    """What a rewrite made. All rows and states were compared where `compared` is True.

    `duplicates` are further copies of entries, `left_out` entries that were not taken, `renamed`
    the logs with new ids, `second_names` the links of logs in further directories. `findings` tell
    what was odd or damaged in the source.
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
    second_names: int = 0
    other_files: int = 0
    compared: bool = False
    findings: list[Finding] = field(default_factory=list)


class Rewrite:
    """A rewrite that is being done: the open source, the growing target, the result so far.

    A context manager. Raises `InvalidArgument` for a target that is there, or lies in the source;
    `DirectoryInUse` where another process writes it; what `BookieDir` raises.
    """

    def __init__(
        self,
        what: str,
        source: str | os.PathLike[str],
        target: str | os.PathLike[str],
        to: Layout | None,
        *,
        needs_index: bool,
        opening: Opening = AS_IT_LIES,
        link: bool = False,
        progress: Callable[[RewriteProgress], None] | None = None,
        files: Files = OS_FILES,
    ) -> None:
        if to is not None:
            check_layout("to", to)
        self._link = truth("link", link)
        if link and opening.live:
            raise InvalidArgument("link: a bookie that runs may still write into its newest log")
        self._what = what
        self._needs_index = needs_index
        self._opening = opening
        self._source, self.target = as_path("source", source), as_path("target", target)
        self._to = to
        self._progress = progress
        self._step, self._done, self._total, self._rows = "", 0, 0, 0
        self.files = files
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            check_target(self.target)
            self.bookie = stack.enter_context(
                BookieDir(
                    self._source,
                    live=self._opening.live,
                    layout=self._opening.layout,
                    root=self._opening.root,
                    needs_index=self._needs_index,
                )
            )
            self.bookie.refuse_output(self.target)
            to = self._to or self.bookie.layout
            self.folders = TargetDirectories.of(self.bookie, to)
            count = len(self.folders.ledger)
            self.result = RewriteResult(self._source, self.target, self.bookie.layout, to, count)
            if self.folders.index_moved:
                self._tell_moved()
            staging = StagingDirectory(self.target, self._what, self.files)
            self._staging = stack.enter_context(staging)
            self._stack = stack.pop_all()
        return self

    def _tell_moved(self) -> None:
        detail = (
            "db storage has an index directory for each ledger directory: the databases stand in "
            "the ledger directories, and the cookie and the conf name no index directories"
        )
        self.result.findings.append(Finding("oddity", detail, str(self.target)))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def to(self) -> Layout:
        """The target's layout."""
        return self.result.layout

    @property
    def work(self) -> Path:
        """A folder for what is needed meanwhile."""
        return self._staging.work

    @property
    def data(self) -> Path:
        """The folder that becomes the target."""
        return self._staging.data

    @property
    def by_directory(self) -> bool:
        """Whether the source's ledgers lie in directory ``L mod n``, logs and all."""
        return self.bookie.layout == "rocksdb"

    def ledger_currents(self) -> list[Path]:
        """Return the target's ledger directories, in order."""
        return [self.data / place for place in self.folders.ledger]

    # -- progress

    def step(self, name: str, total: int | None) -> None:
        """Begin a step of `total` units."""
        self._step, self._done, self._total = name, 0, total or 0
        self.did(0)

    def did(self, units: int, rows: int = 0) -> None:
        """Note that so much of the step is done."""
        self._done += units
        self._rows += rows
        if self._progress is not None:
            total = self._total or None
            self._progress(RewriteProgress(self._step, self._done, total, self._rows))

    def _did_rows(self, rows: int) -> None:
        self.did(rows, rows)

    # -- steps

    def write_index(
        self,
        rows: Iterable[IndexBatch],
        states: Mapping[LedgerId, LedgerState],
        flags: int | None,
        total: int | None = None,
    ) -> None:
        """Write the index of rows that come by key; `UnsupportedLayout` for limbo in idx files.

        `total` is how many rows there are at most, where that is known.
        """
        check_states(states, self.to, "rewrite it")
        self.step("index", total)
        self.result.entries = write_index(
            self.to,
            [self.data / place for place in self.folders.index],
            rows,
            states,
            flags if self.to == "rocksdb" else None,
            self.work,
            self.files,
            self._did_rows,
        )
        self.result.ledgers = len(states)
        if flags and self.to == "idx":
            detail = (
                f"storage flags {flags:#x} of the databases: index files have no place for them"
            )
            self.result.findings.append(Finding("oddity", detail))

    def carry_logs(self, names: LogNames, logs: Sequence[LogFile]) -> None:
        """Put entry logs into the target, copied or linked, under their names there.

        What has a log's name and is no file is a finding.
        """
        result = self.result
        self.step("entry logs", sum(log.bytes for log in logs))
        result.linked = self._link
        for log in logs:
            name = log_name(names.new_id(log.dir_index, log.log_id))
            target = self.ledger_currents()[log.dir_index] / name
            try:
                check_regular(log.path)
            except CorruptionError as error:
                result.findings.append(Finding.of(error))
                continue
            with writing(target.parent):
                self.files.makedirs(target.parent)
            if self._link and link_file(Path(log.path), target, self.files):
                self.did(log.bytes)
            else:
                result.linked = False
                copy_file(Path(log.path), target, self.files, self.did)
            result.logs += 1
            result.log_bytes += log.bytes

    def name_again(self, names: LogNames) -> None:
        """Give logs second names in the other directories whose ledgers they hold."""
        currents = self.ledger_currents()
        for number, log_id, other in names.second_names():
            source = currents[number] / log_name(log_id)
            target = currents[other] / log_name(log_id)
            if target.exists():
                raise InvalidArgument(f"entry log {log_id} is in directories {number} and {other}")
            with writing(target.parent):  # a directory that has no log of its own
                self.files.makedirs(target.parent)
            if not link_file(source, target, self.files):
                copy_file(source, target, self.files)
            self.result.second_names += 1

    def carry_other_files(self, last_id: int | None = None) -> None:
        """Put all other files into the target; `last_id` is what `lastId` shall say, if given."""
        self.step("other files", None)
        for folder in self.folders.places.values():
            with writing(self.data / folder):
                self.files.makedirs(self.data / folder)
        for file in other_files(self.bookie, self.folders, self.result.findings):
            data = file.data
            if file.target.name == "lastId" and last_id is not None:
                data = f"{last_id:x}\n".encode("ascii")
            if data is None:
                copy_file(file.source, self.data / file.target, self.files)
            else:
                write_new(self.data / file.target, data, self.files)
            self.result.other_files += 1
            self.did(file.size)
        conf = target_conf(self.bookie, self.folders)
        if conf is not None:
            write_new(self.data / self.bookie.path.name, conf, self.files)
        for folder in self.folders.places.values():
            with syncing(self.data / folder):
                self.files.sync_dir(self.data / folder)

    def carry_rest_and_compare(
        self,
        names: LogNames,
        logs: Sequence[LogFile],
        rows: Iterable[IndexBatch],
        states: Mapping[LedgerId, LedgerState],
    ) -> None:
        """Name logs again, put all other files into the target, and compare its index."""
        self.name_again(names)
        self.result.renamed = names.renamed
        highest = max((names.new_id(log.dir_index, log.log_id) for log in logs), default=0)
        self.carry_other_files(highest if names.renamed else None)
        self.compare(rows, states)

    def compare(self, rows: Iterable[IndexBatch], states: Mapping[LedgerId, LedgerState]) -> None:
        """Open the target as a bookie's directory, and compare each row and state in it."""
        self.step("comparing", self.result.entries)
        with self.opened() as made:
            wanted = [self.data / place for place in self.folders.ledger]
            here = [Path(os.path.abspath(current)) for current in made.folders.ledger]
            if here != wanted:
                raise BkstoreError(f"{self.target}: its directories come in another order")
            count = compare_index(made.index, rows, states, self.data, self._did_rows)
        if count != self.result.entries:
            raise BkstoreError(f"{self.target}: {self.result.entries} rows written, {count} read")
        self.result.compared = True

    def opened(self) -> BookieDir:
        """Return the growing target, opened for reading."""
        if not self.bookie.folders.configured:
            return BookieDir(self.data, layout=self.to)
        return BookieDir(self.data / self.bookie.path.name, layout=self.to, root=self.data)

    def finish(self) -> RewriteResult:
        """Give the target its name; `DirectoryInUse` where the source moved meanwhile."""
        self.bookie.check_unchanged()
        self._staging.publish()
        return self.result
