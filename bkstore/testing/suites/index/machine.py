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

IdPair = tuple[int, int]

ID_PAIRS: list[IdPair] = [
    (0, 0),
    (0, 7),
    (0, 263),  # shares the last path level with 7
    (0, 2**63 - 1),
    (1, 7),
    (1, 2**63),
    (2**64 - 1, 2**64 - 1),
]
"""(scope, ledger) in unsigned order; few, so that rules often hit the same ledger."""

_EDGES = (0, 1, 511, 512, 1022, 1023, 1024, 1025, 2047, 2048)

_names = st.sampled_from(ID_PAIRS)
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
        self.rows: dict[IdPair, dict[int, int]] = {}
        self.states: dict[IdPair, LedgerState] = {}

    @property
    def index(self) -> EntryIndex:
        """The open index."""
        assert isinstance(self.instance, EntryIndex)

        return self.instance

    def make_known(self, name: IdPair) -> dict[int, int]:
        """Return the model's rows of a ledger, and make it known."""
        self.states.setdefault(name, LedgerState())
        return self.rows.setdefault(name, {})

    def put_rows(self, name: IdPair, pairs: list[tuple[int, int]]) -> None:
        """Put rows into the model; `duplicates` of the backend says which copy is kept."""
        rows = self.make_known(name)
        for entry, location in pairs:
            if entry not in rows or self.index.duplicates == "last":
                rows[entry] = location

    @rule(name=_names, entry=_entries, location=_locations)
    def put(self, name: IdPair, entry: int, location: int) -> None:
        """Put one entry."""
        self.index.put(LedgerId(*name), entry, location)
        self.put_rows(name, [(entry, location)])

    @rule(name=_names, pairs=st.lists(st.tuples(_entries, _locations), max_size=12))
    def put_many(self, name: IdPair, pairs: list[tuple[int, int]]) -> None:
        """Put entries in any order, some twice."""
        self.index.put_many(
            LedgerId(*name), [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        )
        self.put_rows(name, pairs)

    @rule(
        name=_names,
        first=st.integers(0, 3000),
        count=st.integers(1, 2500),
        step=st.integers(1, 4),
        base=st.integers(1, 2**40),
        shuffle=st.randoms(use_true_random=False),
    )
    def put_stripe(
        self, name: IdPair, first: int, count: int, step: int, base: int, shuffle: Any
    ) -> None:
        """Put a shuffled stripe that spans several pages."""
        pairs = [(first + step * i, base + i) for i in range(count)]
        shuffle.shuffle(pairs)
        self.index.put_many(
            LedgerId(*name), [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        )
        self.put_rows(name, pairs)

    @rule(name=_names, state=_states)
    def set_state(self, name: IdPair, state: LedgerState) -> None:
        """Replace a ledger's state."""
        self.index.set_state(LedgerId(*name), state)
        self.make_known(name)
        self.states[name] = state

    @rule(name=_names)
    def delete(self, name: IdPair) -> None:
        """Delete a ledger, known or not."""
        self.index.delete(LedgerId(*name))
        self.rows.pop(name, None)
        self.states.pop(name, None)

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

    @rule(name=_names, asked=st.lists(st.one_of(_entries, st.integers(0, 2**63 - 2))))
    def get_many(self, name: IdPair, asked: list[int]) -> None:
        """Look entries up, in one call and singly."""
        rows = self.rows.get(name, {})
        locations = self.index.get_many(LedgerId(*name), asked).tolist()

        assert [rows.get(entry, 0) for entry in asked] == locations
        assert [rows.get(entry) for entry in asked[:3]] == [
            self.index.get(LedgerId(*name), entry) for entry in asked[:3]
        ]

    @rule(name=_names, first=_entries, last=st.none() | _entries)
    def items(self, name: IdPair, first: int, last: int | None) -> None:
        """List a range, with and without locations."""
        expected = sorted(
            (entry, location)
            for entry, location in self.rows.get(name, {}).items()
            if first <= entry and (last is None or entry <= last)
        )
        entries, locations = self.index.items(LedgerId(*name), first, last)

        assert expected == list(zip(entries.tolist(), locations.tolist()))
        assert [row[0] for row in expected] == self.index.entries(
            LedgerId(*name), first, last
        ).tolist()

    @rule(name=_names)
    def availability(self, name: IdPair) -> None:
        """Ask for a ledger's availability."""
        expected = sorted(self.rows.get(name, {}))
        availability = self.index.availability(LedgerId(*name))

        assert _find_runs(expected) == availability.ranges().tolist()
        assert len(expected) == len(availability)

    @rule(names=st.none() | st.lists(_names, max_size=4))
    def availability_many(self, names: list[IdPair] | None) -> None:
        """Ask for the availability of several ledgers, or of all."""
        ledger_ids = None if names is None else [LedgerId(*name) for name in names]
        listing = self.index.availability_many(ledger_ids)
        expected = sorted(
            {(n[0], n[1]) for n in (self.index.ledgers() if names is None else names)}
        )

        assert [(name, _find_runs(sorted(self.rows.get(name, {})))) for name in expected] == [
            (tuple(name), availability.ranges().tolist()) for name, availability in listing
        ]

    @rule(name=_names)
    def last_entry(self, name: IdPair) -> None:
        """Ask for the highest entry."""
        assert max(self.rows.get(name, {}), default=None) == self.index.last_entry(LedgerId(*name))

    @rule(name=_names)
    def state(self, name: IdPair) -> None:
        """Ask for the state; an unknown ledger has none."""
        try:
            state: LedgerState | None = self.index.state(LedgerId(*name))
        except NoSuchLedger:
            state = None

        assert self.states.get(name) == state

    @rule(batch=st.sampled_from([1, 7, 1000]))
    def scan(self, batch: int) -> None:
        """Scan all rows; they come in order."""
        scanned = []
        for index_batch in self.index.scan(batch):
            columns = [column.tolist() for column in index_batch]
            for dir_index, scope, ledger, entry, location in zip(*columns):
                scanned.append((dir_index, (scope % 2**64, ledger % 2**64), entry, location))

        assert sorted(scanned) == scanned
        assert sorted(
            (name, entry, location)
            for name, rows in self.rows.items()
            for entry, location in rows.items()
        ) == sorted(row[1:] for row in scanned)

    @invariant()
    def same_ledgers_and_entries(self) -> None:
        """Index and model know the same ledgers and entries."""
        if self.instance is not None:
            self.same_as_model(self.index)

    def same_as_model(self, index: EntryIndex) -> None:
        """Compare ledgers, entries and states with the model."""
        known = sorted(self.rows)

        assert known == [tuple(name) for name in index.ledgers()]
        for name in ID_PAIRS:
            expected = sorted(self.rows.get(name, {}))

            assert expected == index.entries(LedgerId(*name)).tolist()
        for name in known:
            assert self.states[name] == index.state(LedgerId(*name))


def index_machine(
    make_index: Callable[[Path], EntryIndex],
    reopen: Callable[[Path], EntryIndex | None] = lambda _: None,
) -> type[IndexMachine]:
    """Return the state machine class of one backend; pytest collects its `TestCase`.

    `make_index(path)` returns a writable index, new or from an existing one in `path`;
    `reopen(path)` a read-only one, or None if nothing is kept. Both as in `EntryIndexSuite`.
    """
    members = {"open_at": staticmethod(make_index), "reopen": staticmethod(reopen)}
    return type("IndexMachineOfBackend", (IndexMachine,), members)
