"""A hypothesis state machine over the index contract, checked against dicts.

It runs random sequences of puts, deletes, state changes, flushes and reopens; after each step index
and model must list the same ledgers and entries. It does not test the listed rules one by one;
`bkstore.testing.suites.index.suite` does.

The model is a dict of dicts of ints. Expected values never come from the library.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bkstore.errors import NoSuchLedger
from bkstore.ids import LedgerId
from bkstore.index.api import EntryIndex, LedgerState
from bkstore.testing.suites.index.base import scan_rows

LEDGER_IDS = [
    LedgerId(0, 0),
    LedgerId(0, 7),
    LedgerId(0, 263),  # shares the last path level with 7
    LedgerId(0, 2**63 - 1),
    LedgerId(1, 7),
    LedgerId(1, 2**63),
    LedgerId(2**64 - 1, 2**64 - 1),
]
"""In unsigned order; few, so that rules often hit the same ledger."""

_EDGES = (0, 1, 511, 512, 1022, 1023, 1024, 1025, 2047, 2048)

_ledger_ids = st.sampled_from(LEDGER_IDS)
_entries = st.one_of(st.integers(0, 30), st.sampled_from(_EDGES), st.integers(0, 5000))
_locations = st.one_of(st.integers(1, 1000), st.integers(1, 2**63 - 1))
_states = st.builds(
    LedgerState,
    master_key=st.sampled_from([b"", b"k" * 20, bytes(20)]),
    fenced=st.booleans(),
    limbo=st.just(False),
    explicit_lac=st.sampled_from([None, bytes(range(20)), b"\xff" * 36]),
)


def _find_runs(entries: list[int]) -> list[list[int]]:
    """Return the inclusive [first, last] runs of ascending entry ids."""
    runs: list[list[int]] = []
    for entry in entries:
        if runs and runs[-1][1] + 1 == entry:
            runs[-1][1] = entry
        else:
            runs.append([entry, entry])
    return runs


class DirectoryMachine(RuleBasedStateMachine):
    """A state machine over the object that `open_at` opens in a run's own directory."""

    open_at: ClassVar[Callable[[Path], Any]]

    def __init__(self) -> None:
        super().__init__()
        self.scratch = tempfile.TemporaryDirectory(prefix="bkstore-machine-")
        self.path = Path(self.scratch.name) / "opened"
        self.instance: Any = None

    @initialize()
    def open(self) -> None:
        """Open `path`, which does not exist at first."""
        self.instance = type(self).open_at(self.path)

    def teardown(self) -> None:
        """Close the object and remove its directory."""
        try:
            if self.instance is not None:
                self.instance.close()
        finally:
            self.scratch.cleanup()


class IndexMachine(DirectoryMachine):
    """One index and its model; `index_machine` makes the subclass for a backend."""

    reopen: ClassVar[Callable[[Path], EntryIndex | None]]

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[LedgerId, dict[int, int]] = {}
        self.states: dict[LedgerId, LedgerState] = {}

    @property
    def index(self) -> EntryIndex:
        """The open index."""
        assert isinstance(self.instance, EntryIndex)
        return self.instance

    def rows_of_known(self, ledger_id: LedgerId) -> dict[int, int]:
        """Return the model's rows of a ledger, by entry id. A ledger that is unknown so far gets no
        rows and an empty state, as by a write of any kind."""
        self.states.setdefault(ledger_id, LedgerState())
        return self.rows.setdefault(ledger_id, {})

    def put_rows(self, ledger_id: LedgerId, pairs: list[tuple[int, int]]) -> None:
        """Put (entry id, location) pairs into the model; the index's `duplicates` says whether the
        first or the last of equal entries is kept."""
        rows = self.rows_of_known(ledger_id)
        for entry, location in pairs:
            if entry not in rows or self.index.duplicates == "last":
                rows[entry] = location

    def put_pairs(self, ledger_id: LedgerId, pairs: list[tuple[int, int]]) -> None:
        """Put entries with locations into index and model."""
        entries, locations = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        self.index.put_many(ledger_id, entries, locations)
        self.put_rows(ledger_id, pairs)

    @rule(ledger_id=_ledger_ids, entry=_entries, location=_locations)
    def put(self, ledger_id: LedgerId, entry: int, location: int) -> None:
        """Put one entry."""
        self.index.put(ledger_id, entry, location)
        self.put_rows(ledger_id, [(entry, location)])

    @rule(ledger_id=_ledger_ids, pairs=st.lists(st.tuples(_entries, _locations), max_size=12))
    def put_many(self, ledger_id: LedgerId, pairs: list[tuple[int, int]]) -> None:
        """Put entries in any order, some twice."""
        self.put_pairs(ledger_id, pairs)

    @rule(
        ledger_id=_ledger_ids,
        first=st.integers(0, 3000),
        count=st.integers(1, 2500),
        step=st.integers(1, 4),
        base=st.integers(1, 2**40),
        rng=st.randoms(use_true_random=False),
    )
    def put_stripe(
        self, ledger_id: LedgerId, first: int, count: int, step: int, base: int, rng: Any
    ) -> None:
        """Put a shuffled stripe that spans several pages."""
        pairs = [(first + step * i, base + i) for i in range(count)]
        rng.shuffle(pairs)
        self.put_pairs(ledger_id, pairs)

    @rule(ledger_id=_ledger_ids, state=_states)
    def set_state(self, ledger_id: LedgerId, state: LedgerState) -> None:
        """Replace a ledger's state."""
        self.index.set_state(ledger_id, state)
        self.rows_of_known(ledger_id)
        self.states[ledger_id] = state

    @rule(ledger_id=_ledger_ids)
    def delete(self, ledger_id: LedgerId) -> None:
        """Delete a ledger, known or not."""
        self.index.delete(ledger_id)
        self.rows.pop(ledger_id, None)
        self.states.pop(ledger_id, None)

    @rule()
    def flush(self) -> None:
        """Flush."""
        self.index.flush()

    @precondition(lambda self: self.instance is not None and self.instance.durable)
    @rule()
    def reopen_for_writing(self) -> None:
        """Close, compare a read-only index with the model, and open for writing again."""
        self.index.close()
        read_only = type(self).reopen(self.path)
        if read_only is not None:
            with read_only:
                self.same_as_model(read_only)
        self.open()

    @rule(ledger_id=_ledger_ids, asked=st.lists(st.one_of(_entries, st.integers(0, 2**63 - 2))))
    def get_many(self, ledger_id: LedgerId, asked: list[int]) -> None:
        """Look entries up, in one call and singly."""
        rows = self.rows.get(ledger_id, {})
        locations = self.index.get_many(ledger_id, asked).tolist()

        assert [rows.get(entry, 0) for entry in asked] == locations
        for entry in asked[:3]:
            assert rows.get(entry) == self.index.get(ledger_id, entry)

    @rule(ledger_id=_ledger_ids, first=_entries, last=st.none() | _entries)
    def items(self, ledger_id: LedgerId, first: int, last: int | None) -> None:
        """List a range, with and without locations."""
        rows = sorted(self.rows.get(ledger_id, {}).items())
        expected = [row for row in rows if first <= row[0] and (last is None or row[0] <= last)]
        entries, locations = self.index.items(ledger_id, first, last)

        assert expected == list(zip(entries.tolist(), locations.tolist()))
        assert [row[0] for row in expected] == self.index.entries(ledger_id, first, last).tolist()

    @rule(ledger_id=_ledger_ids)
    def availability(self, ledger_id: LedgerId) -> None:
        """Ask for a ledger's availability."""
        expected = sorted(self.rows.get(ledger_id, {}))
        availability = self.index.availability(ledger_id)

        assert _find_runs(expected) == availability.ranges().tolist()
        assert len(expected) == len(availability)

    @rule(requested=st.none() | st.lists(_ledger_ids, max_size=4))
    def availability_many(self, requested: list[LedgerId] | None) -> None:
        """Ask for the availability of several ledgers, or of all."""
        listing = self.index.availability_many(requested)
        ledger_ids = sorted(set(self.index.ledgers() if requested is None else requested))
        expected = [(id_, _find_runs(sorted(self.rows.get(id_, {})))) for id_ in ledger_ids]

        assert expected == [(id_, availability.ranges().tolist()) for id_, availability in listing]

    @rule(ledger_id=_ledger_ids)
    def last_entry(self, ledger_id: LedgerId) -> None:
        """Ask for the highest entry."""
        assert max(self.rows.get(ledger_id, {}), default=None) == self.index.last_entry(ledger_id)

    @rule(ledger_id=_ledger_ids)
    def state(self, ledger_id: LedgerId) -> None:
        """Ask for the state; an unknown ledger has none."""
        try:
            state: LedgerState | None = self.index.state(ledger_id)
        except NoSuchLedger:
            state = None

        assert self.states.get(ledger_id) == state

    @rule(batch=st.sampled_from([1, 7, 1000]))
    def scan(self, batch: int) -> None:
        """Scan all rows; they come in order."""
        scanned = scan_rows(self.index.scan(batch))
        # Rows of scope, ledger, entry and location.
        expected = [(*id_, *row) for id_, rows in self.rows.items() for row in rows.items()]

        assert sorted(scanned) == scanned
        assert sorted(expected) == sorted(row[1:] for row in scanned)  # without the dir_index

    @invariant()
    def same_ledgers_and_entries(self) -> None:
        """Index and model know the same ledgers and entries."""
        if self.instance is not None:
            self.same_as_model(self.index)

    def same_as_model(self, index: EntryIndex) -> None:
        """Compare ledgers, entries and states with the model."""
        known = sorted(self.rows)

        assert known == index.ledgers()
        for ledger_id in LEDGER_IDS:
            assert sorted(self.rows.get(ledger_id, {})) == index.entries(ledger_id).tolist()
        for ledger_id in known:
            assert self.states[ledger_id] == index.state(ledger_id)


def index_machine(
    make_index: Callable[[Path], EntryIndex],
    reopen: Callable[[Path], EntryIndex | None] = lambda _path: None,
) -> type[IndexMachine]:
    """Return the state machine class of one backend; pytest collects its `TestCase`.

    `make_index(path)` returns a writable index, new or from an existing one in `path`;
    `reopen(path)` a read-only one of the same path, or None, as by default, if an index keeps
    nothing there: then only the writable one is compared. Both as in `EntryIndexSuite`.
    """
    members = {"open_at": staticmethod(make_index), "reopen": staticmethod(reopen)}
    return type("IndexMachineOfBackend", (IndexMachine,), members)
