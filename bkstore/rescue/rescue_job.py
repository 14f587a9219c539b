"""RescueJob: the steps of a rescue, for each kind of output: survey, plan, write, account."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from bkstore.errors import InvalidArgument
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.scratch import scratch_directory
from bkstore.formats.entry import RecordBatch
from bkstore.formats.syntax.framing import read_int64s
from bkstore.ids import LedgerId
from bkstore.index.api import Closeable, Finding
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.offline.staging_directory import StagingDirectory, check_target
from bkstore.rescue.account import AccountRow, account_rows
from bkstore.rescue.disks.sources import SourceBookie
from bkstore.rescue.disks.survey import ShowProgress, SurveyedCopies, survey_bookies
from bkstore.rescue.disks.wanted_ledgers import LedgerSecret, WantedLedgers
from bkstore.rescue.ledger_plans import LedgerPlan, plan_ledgers
from bkstore.rescue.rescued_records import read_rescued


class RescueOutput(Closeable):
    """Where rescued ledgers go. The calls come in this order: `begin`, then for each ledger, in the
    order of ids, `add` for its records in the order of entries, then `finish`. `close` comes last,
    after errors too."""

    @abstractmethod
    def begin(self, job: RescueJob) -> None:
        """Prepare for the ledgers of `job.plans`."""

    @abstractmethod
    def add(self, plan: LedgerPlan, records: RecordBatch) -> None:
        """Write records of one ledger."""

    @abstractmethod
    def finish(self, ledgers: dict[LedgerId, LedgerMetadata]) -> None:
        """Complete the output. `ledgers` are the metadata of all ledgers, closed at their ends."""


class RescueStaging(StagingDirectory):
    """The staging directory of a rescue; the surveys of files in `surveys` stay for the next run if
    the rescue is not finished."""

    def __init__(self, out: Path, files: Files = OS_FILES) -> None:
        super().__init__(out, "rescue", files)
        self.surveys = self.staging_path / "surveys"

    def finish(self) -> None:
        """Publish the output, and remove what was kept for another run."""
        self.publish()
        self._remove_and_log("surveys")


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

    def write_to(self, output: RescueOutput) -> None:
        """Write all ledgers of the plans, with their records, to an output, which is finished only
        if the directories are as they were. Raises `SystemRefused`, and as `check_sources`."""
        output.begin(self)
        lengths: dict[LedgerId, int] = {}
        total = sum(len(plan.readable) for plan in self.plans.values())
        done = 0
        for plan, records in read_rescued(self.plans, self._surveyed, self.secrets):
            output.add(plan, records)
            ledger_id = plan.metadata.ledger
            lengths[ledger_id] = _length_field(records, ledger_id)
            done += len(records)
            if self.progress is not None:
                self.progress("writing", done, total, done)
        self.check_sources()
        output.finish(
            {
                ledger_id: closed_metadata(plan, lengths.get(ledger_id, 0))
                for ledger_id, plan in self.plans.items()
            }
        )

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
        """Yield (bookie id, finding) for all damage, and ("", finding) for damaged metadata."""
        yield from (("", finding) for finding in self.wanted.findings)
        for bookie in self.bookies:
            yield from ((bookie.bookie_id, finding) for finding in bookie.findings)

    @property
    def is_whole(self) -> bool:
        """Whether all ledgers are whole, and no two copies contradict each other."""
        plans = self.plans.values()
        return not self.wanted.findings and all(
            each.is_whole and not each.differing for each in plans
        )


def _length_field(records: RecordBatch, ledger_id: LedgerId) -> int:
    """Return the ledger's length in the last record of a batch."""
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


@contextmanager
def staged_output(out: Path, files: Files = OS_FILES) -> Iterator[RescueStaging]:
    """Yield the staging directory of a new folder `out`, which the block must `finish`.

    Raises `InvalidArgument` if `out` exists and is not an empty folder.
    """
    check_target(out)
    with RescueStaging(out, files) as staging:
        yield staging
