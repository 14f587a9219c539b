"""RescueJob: the steps of a rescue, for each kind of output: survey, plan, write, account."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bkstore.availability import Availability
from bkstore.errors import InvalidArgument
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.scratch import scratch_directory
from bkstore.formats.entry import RecordBatch
from bkstore.formats.syntax.framing import read_int64s
from bkstore.ids import LedgerId
from bkstore.index.api import Closeable, Finding
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.rescue.account import AccountRow, account_rows
from bkstore.rescue.checkpoints import CheckpointLog, WrittenPart
from bkstore.rescue.disks.sources import SourceBookie
from bkstore.rescue.disks.survey import ShowProgress, SurveyedCopies, survey_bookies
from bkstore.rescue.disks.wanted_ledgers import LedgerSecret, WantedLedgers
from bkstore.rescue.ledger_plans import LedgerPlan, plan_ledgers
from bkstore.rescue.rescued_records import RescuedRecords, read_rescued
from bkstore.version import __version__

CHECKPOINT_BYTES, CHECKPOINT_LEDGERS = 256 << 20, 4096
"""A checkpoint follows after so many bytes of records, or ledgers."""


class RescueOutput(Closeable):
    """Where rescued ledgers go. The calls come in this order: `begin`, then for each ledger, in the
    order of ids, `add` for its records in the order of entries, with `checkpoint` here and there,
    then `finish`. `close` comes last, after errors too."""

    @property
    @abstractmethod
    def description(self) -> str:
        """The form of the output and all of its options, as a text."""

    @abstractmethod
    def begin(self, job: RescueJob, state: Any = None) -> None:
        """Prepare for the ledgers of `job.plans`. With the state of a checkpoint: go on there, and
        drop all that was written after it."""

    def choose_entries(self, plan: LedgerPlan) -> Availability:
        """Return which of a plan's readable entries are to be written: all but those that the
        output is known to have. Called after `begin`."""
        return plan.readable

    @abstractmethod
    def add(self, plan: LedgerPlan, records: RecordBatch) -> None:
        """Write records of one ledger."""

    @abstractmethod
    def checkpoint(self) -> Any:
        """Make all that was added durable, and return the state from which `begin` goes on, as
        JSON; None if it cannot go on from here."""

    @abstractmethod
    def finish(self, ledgers: dict[LedgerId, LedgerMetadata]) -> None:
        """Complete the output. `ledgers` are the metadata of all ledgers, closed at their ends."""


@dataclass
class RescueJob:
    """A rescue of the `wanted` ledgers from the disks of `bookies`, which the caller closes.

    `given` is a digest type and password for ledgers whose metadata have none. `jobs` processes
    read files (None: one for each CPU, or one if there are few bytes). `progress` is called with a
    step, the work done, all work, and a count. After `survey`, `plans` has what can be rescued of
    each ledger; after `write_to` also what turned out to be unreadable.

    >>> import tempfile
    >>> from bkstore import Bookie
    >>> from bkstore.formats.entry import Coder, master_key
    >>> from bkstore.rescue import open_source
    >>> metadata = LedgerMetadata(7, 1, 1, 1, [(0, ["b1"])], digest_type="CRC32C", password=b"pw")
    >>> with tempfile.TemporaryDirectory() as top:
    ...     with Bookie.open(f"{top}/b1") as bookie:
    ...         for record in Coder("CRC32C", "pw").encode_many(7, range(3), [b"a", b"b", b"c"]):
    ...             _ = bookie.add_entry(record, master_key("pw"))
    ...     with open_source(f"{top}/b1", "b1") as source:
    ...         job = RescueJob([source], WantedLedgers({metadata.ledger: metadata}))
    ...         job.run_without_output()
    ...     [(row.kind, row.entries.ranges().tolist()) for row in job.account()]
    [('whole', [[0, 2]])]
    """

    bookies: Sequence[SourceBookie]
    wanted: WantedLedgers
    given: LedgerSecret | None = None
    jobs: int | None = None
    progress: ShowProgress | None = None
    files: Files = OS_FILES
    plans: dict[LedgerId, LedgerPlan] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        ids = [bookie.bookie_id for bookie in self.bookies]
        for bookie_id in ids:
            if ids.count(bookie_id) > 1:
                raise InvalidArgument(f"bookie {bookie_id} is given twice")
        self.secrets = self.wanted.secrets(self.given)
        self._surveyed = SurveyedCopies()

    def run_without_output(self) -> None:
        """Survey and plan only, for `account`: nothing is written but temporary files. Raises
        `SystemRefused`, and as `check_sources`."""
        with scratch_directory("rescue") as scratch:
            self.survey(scratch / "surveys", scratch)
        self.check_sources()

    def check_sources(self) -> None:
        """Raise `DirectoryInUse` if another process changed the directories since they were opened,
        unless they are read live; `SystemRefused` if they cannot be listed any more."""
        for bookie in self.bookies:
            if bookie.directory is not None:
                bookie.directory.check_unchanged()

    def survey(self, folder: Path, work: Path) -> None:
        """Survey all files and plan each ledger: see `survey_bookies` and `plan_ledgers`. `folder`
        keeps the surveys of files for another run, `work` has temporary files."""
        self._surveyed = survey_bookies(
            self.bookies,
            self.secrets,
            folder,
            work,
            jobs=self.jobs,
            progress=self.progress,
            files=self.files,
        )
        reliable = {each.bookie_id for each in self.bookies if not each.may_hide_records}
        verifiable = {
            ledger_id
            for ledger_id in self.wanted.metadata
            if self.secrets.secret_of(ledger_id).digest_type != "DUMMY"
        }
        ids = [bookie.bookie_id for bookie in self.bookies]
        self.plans = plan_ledgers(self.wanted.metadata, self._surveyed, ids, reliable, verifiable)

    def write_to(self, output: RescueOutput, checkpoints: CheckpointLog | None = None) -> None:
        """Write all ledgers of the plans, with their records, to an output, which is finished only
        if the directories are as they were. With `checkpoints`, what an earlier run has written of
        the same output stays. Raises `SystemRefused`, and as `check_sources`."""
        writing = _Writing(self, output, checkpoints)
        writing.run()
        self.check_sources()
        output.finish(
            {
                ledger_id: closed_metadata(plan, writing.lengths.get(ledger_id, 0))
                for ledger_id, plan in self.plans.items()
            }
        )

    def read_records(self, entries: Mapping[LedgerId, Availability]) -> Iterator[RescuedRecords]:
        """Yield the records of these entries of each ledger: see `read_rescued`."""
        return read_rescued(self.plans, self._surveyed, self.secrets, entries)

    def output_key(self, output: RescueOutput) -> str:
        """Return a digest of all that an output depends on: the disks as they were surveyed, what
        can be read of each ledger, its metadata and password, and the options of the output."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(repr((__version__, output.description, self._surveyed.key)).encode())
        for bookie in self.bookies:
            states = sorted(bookie.states.items())
            facts: list[Any] = [bookie.bookie_id, bookie.may_hide_records]
            if bookie.directory is not None:
                facts += [bookie.directory.layout, bookie.directory.folders.cookie]
            digest.update(repr(facts).encode())
            digest.update(repr([(each, *state) for each, state in states]).encode())
        for metadata in self.wanted.metadata.values():
            digest.update(repr((metadata, metadata.password)).encode())
        # The same disks may be read with another result, if they fail.
        for ledger_id, plan in self.plans.items():
            digest.update(repr((ledger_id, plan.last_entry, plan.is_end_certain)).encode())
            for entries in (plan.readable, plan.differing):
                digest.update(entries.groups.tobytes())
        return digest.hexdigest()

    @property
    def master_keys(self) -> dict[LedgerId, bytes]:
        """The master keys on the disks: of the indexes, else of the journals."""
        keys: dict[LedgerId, bytes] = {}
        for bookie in self.bookies:
            for ledger_id, state in bookie.states.items():
                if any(state.master_key):
                    keys.setdefault(ledger_id, state.master_key)
        for ledger_id, facts in self._surveyed.states.items():
            if facts.master_key is not None:
                keys.setdefault(ledger_id, facts.master_key)
        return keys

    @property
    def fenced_ledgers(self) -> frozenset[LedgerId]:
        """The ledgers that were not closed, or are fenced on any disk."""
        fenced = {ledger_id for ledger_id, plan in self.plans.items() if not plan.metadata.closed}
        for bookie in self.bookies:
            fenced |= {ledger_id for ledger_id, state in bookie.states.items() if state.fenced}
        fenced |= {ledger for ledger, each in self._surveyed.states.items() if each.fenced}
        return frozenset(fenced)

    # -- the result

    def account(self) -> Iterator[AccountRow]:
        """Yield what is whole and what is lost of each ledger."""
        return account_rows(self.plans, self.bookies)

    def findings(self) -> Iterator[tuple[str, Finding]]:
        """Yield (bookie id, finding) for all damage, and ("", finding) for damaged metadata. What
        was met again, as by the inference of metadata before the rescue, is yielded once."""
        yield from (("", finding) for finding in self.wanted.findings)
        for bookie in self.bookies:
            yield from ((bookie.bookie_id, finding) for finding in dict.fromkeys(bookie.findings))

    @property
    def is_whole(self) -> bool:
        """Whether all ledgers are whole, and no two copies contradict each other."""
        plans = self.plans.values()
        return not self.wanted.findings and all(
            each.is_whole and not each.differing for each in plans
        )


class _Writing:
    """The records of a job on their way to an output, with a checkpoint after some of them."""

    def __init__(
        self, job: RescueJob, output: RescueOutput, checkpoints: CheckpointLog | None
    ) -> None:
        self._job = job
        self._output = output
        self._checkpoints = checkpoints
        self._written = WrittenPart()
        self._since_checkpoint = WrittenPart()
        self._bytes = self._ledgers = 0  # since the last checkpoint
        self.lengths: dict[LedgerId, int] = {}
        """The length fields of the last records of ledgers that are not closed."""

    def run(self) -> None:
        """Write all records that an earlier run has not written."""
        job = self._job
        if self._checkpoints is not None:
            self._written = self._checkpoints.resume(job.output_key(self._output))
        self._since_checkpoint.position = self._written.position
        self.lengths |= self._written.lengths
        for ledger_id, unread in self._written.unread.items():
            job.plans[ledger_id].unread = unread
        self._output.begin(job, self._written.state)
        entries = {ledger: self._choose_entries(plan) for ledger, plan in job.plans.items()}
        total = sum(len(plan.readable) for plan in job.plans.values())
        done = total - sum(map(len, entries.values()))
        for plan, records, last_entry in job.read_records(entries):
            self._add(plan, records, last_entry)
            done += len(records)
            if job.progress is not None:
                job.progress("writing", done, total, done)

    def _choose_entries(self, plan: LedgerPlan) -> Availability:
        entries = self._output.choose_entries(plan)
        return self._written.entries_after(plan.metadata.ledger, entries)

    def _add(self, plan: LedgerPlan, records: RecordBatch, last_entry: int) -> None:
        ledger_id, part = plan.metadata.ledger, self._since_checkpoint
        self._ledgers += part.position[0] != ledger_id
        part.position = (ledger_id, last_entry)
        if plan.unread:
            part.unread[ledger_id] = plan.unread
        if len(records):
            self._output.add(plan, records)
            self._bytes += int(records.sizes.sum())
            if not plan.metadata.closed:
                part.lengths[ledger_id] = length_field(records, ledger_id)
                self.lengths[ledger_id] = part.lengths[ledger_id]
        if self._bytes >= CHECKPOINT_BYTES or self._ledgers >= CHECKPOINT_LEDGERS:
            self._bytes = self._ledgers = 0
            self._checkpoint()

    def _checkpoint(self) -> None:
        """Make what was added durable, unless the directories are not as they were."""
        self._job.check_sources()
        state = self._output.checkpoint()
        if state is not None and self._checkpoints is not None:
            self._since_checkpoint.state = state
            self._checkpoints.append(self._since_checkpoint)
            self._since_checkpoint = WrittenPart(self._since_checkpoint.position)


def length_field(records: RecordBatch, ledger_id: LedgerId) -> int:
    """Return the length of the ledger in the last record of a batch."""
    # The offset of the length field in the headers of version 1 and 2: docs/formats/entry.md.
    field_offset = 24 if ledger_id.scope == 0 else 33
    offset = np.array([int(records.offsets[-1]) + field_offset])
    return int(read_int64s(records.octets, offset)[0])


def closed_metadata(plan: LedgerPlan, length: int) -> LedgerMetadata:
    """Return a ledger's metadata, closed at its end if they are not; `length` is that in the last
    record. Segments that begin after the end are left out."""
    metadata = plan.metadata
    if metadata.closed:
        return metadata
    last = plan.last_entry
    # A segment that begins at the end is kept if it is the only one: of a ledger without entries.
    segments = [each for each in metadata.segments if each.first_entry <= max(last + 1, 0)]
    return replace(
        metadata,
        state="CLOSED",
        last_entry_id=last,
        length=max(length, 0),
        segments=tuple(segments),
    )
