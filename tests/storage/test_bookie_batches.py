"""A bookie that is fed by batches tells, logs and replays what one fed by single adds does."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from bkstore.errors import InvalidArgument
from bkstore.files.disk_changes import UnsyncedFiles
from bkstore.formats.entry import Coder, Entry, RecordBatch, encode_explicit_lac
from bkstore.ids import LedgerId
from bkstore.storage.bookie import Bookie
from bkstore.storage.journal import list_journal_files, scan_journal
from bkstore.storage.options import JournalOptions, StorageKind, StorageOptions
from tests.rounds import rounds
from tests.worlds.batch_adds import (
    KEY,
    LARGEST,
    NAMES,
    Sent,
    add_in_batches,
    add_one_by_one,
    answers,
    files_below,
    rows_of,
    sendings,
    told,
)
from tests.worlds.batches import shaped

CODER = Coder("CRC32C", "pw")

_names = st.sampled_from(NAMES)


class Kind(NamedTuple):
    """One kind of bookie, and how many examples of a hundred it gets."""

    storage: StorageKind
    examples: int
    journals: int = 1
    options: dict[str, Any] = {}  # noqa: RUF012  # nobody changes it
    journal: dict[str, Any] = {}  # noqa: RUF012


SMALL = {"preallocate": 4096, "write_buffer": 700}
KINDS = {
    "sorted": Kind("sorted", 5, 1, {}, SMALL),
    "sorted-three-journals": Kind("sorted", 5, 3, {"write_cache": 8000}, SMALL),
    "interleaved": Kind(
        "interleaved", 4, 2, {"entry_log_size": 6000, "pending_locations": 40}, SMALL
    ),
    "interleaved-old-journal": Kind("interleaved", 3, 1, {}, {**SMALL, "version": 5}),
    "db": Kind("db", 3, 2, {"write_cache": 30_000}, SMALL),
    "refusing": Kind("sorted", 3, 1, {"write_cache": 12_000, "auto_flush": False}, SMALL),
    "compat": Kind("sorted", 3, 1, {"compat": "bookkeeper"}, SMALL),
}


class TwinBookies(RuleBasedStateMachine):
    """A bookie that is fed one by one, and its twin that is fed by batches."""

    kind: ClassVar[Kind]

    def __init__(self) -> None:
        super().__init__()
        self.scratch = tempfile.TemporaryDirectory(prefix="bkstore-twins-")
        self.tops = [Path(self.scratch.name) / name for name in ("single", "batch")]
        self.counters = [itertools.count(), itertools.count()]
        self.compat = self.kind.options.get("compat") is not None
        self.twins: list[Bookie] = []
        self.lives = 0

    @initialize()
    def start(self) -> None:
        """Begin with empty directories."""
        self.twins = [self._open(at) for at in range(2)]

    def _open(self, at: int) -> Bookie:
        counter, top = self.counters[at], self.tops[at]
        return Bookie.open(
            None,
            self.kind.storage,
            ledger_dirs=[top / "ledgers0", top / "ledgers1"],
            journal_dirs=[top / f"journal{number}" for number in range(self.kind.journals)],
            bookie_id="bookie-1:3181",
            options=StorageOptions(
                max_entry_size=LARGEST, choose=lambda n: next(counter) % n, **self.kind.options
            ),
            journal=JournalOptions(clock=lambda: 1, **self.kind.journal),
            files=UnsyncedFiles(),
        )

    def teardown(self) -> None:
        """Close both; what a crash would replay and what is stored are alike once more."""
        try:
            for bookie in self.twins:
                bookie.close()
            self.same_journals()
            self.same_files()
        finally:
            self.scratch.cleanup()

    def both(self, do: Callable[[Bookie], Any]) -> None:
        """Do the same with both; the answer or error must be the same."""
        single, batch = [told(lambda bookie=bookie: do(bookie)) for bookie in self.twins]

        assert single == batch

    # -- adds

    @rule(sent=sendings(), sync=st.booleans(), iterable=st.booleans())
    def add(self, sent: Sent, sync: bool, iterable: bool) -> None:
        """Add to both, each in its way: the same error at the same record, or none."""
        single, batch = self.twins
        key, more = sent.key or KEY, {"recovery": sent.recovery, "sync": sync}
        sent = sent.truthful() if iterable else sent
        expected = add_one_by_one(sent, lambda record: single.add_entry(record, key, **more))
        if not iterable:
            found = add_in_batches(sent, lambda some: batch.add_batch(some, key, **more))

            assert expected == found
            return
        kind, value = told(lambda: batch.add_entries(iter(sent.records), key, **more).tolist())

        assert expected[:2] == ("" if kind == "answer" else kind, "" if kind == "answer" else value)

    # -- states

    @rule(name=_names)
    def fence(self, name: Any) -> None:
        """Fence a ledger."""
        self.both(lambda bookie: bookie.fence(name, KEY))

    @rule(name=_names, lac=st.integers(0, 50))
    def explicit_lac(self, name: Any, lac: int) -> None:
        """Set an explicit LAC."""
        body = encode_explicit_lac(name, lac, "CRC32C", "pw")
        self.both(lambda bookie: bookie.set_explicit_lac(name, body, KEY))

    @rule(name=_names)
    def delete(self, name: Any) -> None:
        """Forget a ledger; the next add of it checkpoints behind its first record."""
        self.both(lambda bookie: bookie.delete_ledger(name))

    # -- the disk

    @rule()
    def flush(self) -> None:
        """Flush both storages."""
        self.both(lambda bookie: bookie.storage.flush())
        self.same_files()

    @rule()
    def checkpoint(self) -> None:
        """Checkpoint both."""
        self.both(lambda bookie: self._checkpoint(bookie))
        self.same_files()

    def _checkpoint(self, bookie: Bookie) -> None:
        """Checkpoint; the place that is told has a twin's own padding before it."""
        bookie.checkpoint()

    @rule(keep=st.none() | st.sets(_names, min_size=3))
    def collect_garbage(self, keep: Any) -> None:
        """Collect the garbage of both."""
        self.both(lambda bookie: bookie.collect_garbage(keep))

    @rule()
    def force(self) -> None:
        """Make the journals durable; they have the same records then, those of an open file too."""
        for bookie in self.twins:
            self._push(bookie)
        self.same_journals()

    @rule(kill=st.booleans())
    def reopen(self, kill: bool) -> None:
        """Copy the files as they are and go on there, or close without a checkpoint: replayed."""
        self.lives += 1
        for at, bookie in enumerate(self.twins):
            old = self.tops[at]
            if kill:
                self._push(bookie)
                self.tops[at] = old.with_name(f"{old.name.partition('-')[0]}-{self.lives}")
                shutil.copytree(old, self.tops[at])
            bookie.close(checkpoint=False)
        self.twins = [self._open(at) for at in range(2)]
        self.same_journals()
        self.same_files()

    def _push(self, bookie: Bookie) -> None:
        """Make what was not synced durable: a kill may take it of one twin and not of the other."""
        for journal in bookie.journals:
            journal.sync()

    # -- alike

    @invariant()
    def same_answers(self) -> None:
        """Both say the same of every ledger and entry."""
        if self.twins:
            single, batch = (answers(bookie, lac=not self.compat) for bookie in self.twins)

            assert single == batch

    def same_journals(self) -> None:
        """The journals have the same records in the same order, keys and fences too."""
        single, batch = (
            [_records(top / f"journal{at}" / "current") for at in range(self.kind.journals)]
            for top in self.tops
        )

        assert single == batch

    def same_files(self) -> None:
        """Entry logs and index files have the same bytes, databases the same rows."""
        single, batch = (
            {path: data for path, data in files_below(top).items() if path.startswith("ledgers")}
            for top in self.tops
        )
        marks = ("lastMark", "VERSION")  # positions in journals differ by padding

        assert sorted(single) == sorted(batch)
        assert [] == [
            path
            for path in single
            if single[path] != batch[path] and not path.rpartition("/")[2].startswith(marks)
        ]
        if not any(bookie.storage._closed for bookie in self.twins):
            assert rows_of(self.twins[0].storage) == rows_of(self.twins[1].storage)


def _records(current: Path) -> list[bytes]:
    """Return the records of all journal files of a directory, in order."""
    return [data for _, path in list_journal_files(current) for _, data in scan_journal(path)]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_bookies_fed_both_ways(kind: Kind) -> None:
    """Errors, answers, journals' records, files and what a replay brings back are the same."""
    machine = type("TwinsOfKind", (TwinBookies,), {"kind": kind})
    profile = settings()
    examples = max(3, round(profile.max_examples * kind.examples / 100))
    for _ in rounds():
        run_state_machine_as_test(machine, settings=settings(profile, max_examples=examples))


def _in_turns(first: int, count: int, payload: bytes) -> RecordBatch:
    """Return records of all ledgers, in turns."""
    ids = [(name, entry) for entry in range(first, first + count) for name in NAMES]
    rows = [CODER.encode(Entry(name, entry, -1, len(payload), payload)) for name, entry in ids]
    return RecordBatch.of(rows, [entry for _, entry in ids])


@pytest.mark.parametrize("journals", [1, 3])
@pytest.mark.parametrize("fenced", [None, *range(len(NAMES))])
def test_journals_of_a_batch(fenced: int | None, journals: int, tmp_path: Path) -> None:
    """Each key is before its ledger's first record, and what is refused is in no journal.

    As after single adds: of ledgers that are all new, and where the batch ends at a fenced one.
    """
    found = []
    for way in ("single", "batch"):
        top = tmp_path / way
        with Bookie.open(
            ledger_dirs=[top / "ledgers"],
            journal_dirs=[top / f"journal{at}" for at in range(journals)],
            journal=JournalOptions(preallocate=4096, write_buffer=700),
        ) as bookie:
            if fenced is not None:
                bookie.fence(NAMES[fenced], KEY)
            batch = _in_turns(0, 20, b"x" * 50)
            outcome = told(partial(_add, bookie, way, batch))
            for journal in bookie.journals:
                journal.sync()
            places = [_records(top / f"journal{at}" / "current") for at in range(journals)]
            found.append((outcome, answers(bookie, lac=True), places))

    assert found[0] == found[1]
    assert ("answer" if fenced is None else "LedgerFenced") == found[0][0][0]
    taken = 100 if fenced is None else fenced
    expected = set(_in_turns(0, 20, b"x" * 50).records()[:taken])
    assert expected == {r for some in found[0][2] for r in some if r.endswith(b"x" * 50)}


def _add(bookie: Bookie, way: str, batch: RecordBatch) -> list[int]:
    if way == "batch":
        return list(bookie.add_batch(batch, KEY).tolist())
    return [bookie.add_entry(data, KEY) for data in batch.records()]


@pytest.mark.parametrize("storage", ["sorted", "interleaved", "db"])
@pytest.mark.parametrize("journals", [1, 3])
def test_batch_of_ledgers_that_were_made_again(
    storage: StorageKind, journals: int, tmp_path: Path
) -> None:
    """After a crash ledgers that a batch made again have its records, and no older ones.

    Beside others in the batch, which keep what they had.
    """
    places = [tmp_path / f"journal{at}" for at in range(journals)]

    def open_bookie() -> Bookie:
        return Bookie.open(
            storage=storage,
            ledger_dirs=[tmp_path / "ledgers"],
            journal_dirs=places,
            journal=JournalOptions(preallocate=4096),
        )

    bookie = open_bookie()
    bookie.add_batch(_in_turns(0, 20, b"old"), KEY)
    for name in NAMES[1:3]:
        bookie.delete_ledger(name)
    new = _in_turns(10, 20, b"new")
    bookie.add_batch(new, KEY)
    bookie.close(checkpoint=False)
    with open_bookie() as again:
        for name in NAMES:
            first = 10 if name in NAMES[1:3] else 0

            assert list(range(first, 30)) == again.entries(name).tolist(), name
        for name, entry in [(name, entry) for entry in range(20, 30) for name in NAMES]:
            assert again.read_entry(name, entry).endswith(b"new")


def test_a_wrong_claim_behind_a_ledger_that_was_deleted(tmp_path: Path) -> None:
    """A batch that is cut for a checkpoint is refused as a whole one: `stored` counts all."""
    records = [CODER.encode(Entry(name, 0, -1, 0, b"")) for name in (LedgerId(1, 7), 7)]
    with Bookie.open(tmp_path, "sorted") as bookie:
        bookie.add_entry(records[0], KEY)
        bookie.delete_ledger(LedgerId(1, 7))
        with pytest.raises(InvalidArgument, match="lists entry 1, but its record is 0") as refused:
            bookie.add_batch(shaped("apart", records, [0, 1]), KEY)

        assert 1 == refused.value.stored
        assert [0] == bookie.storage.entries(LedgerId(1, 7)).tolist()
        assert not bookie.ledger_exists(7)
