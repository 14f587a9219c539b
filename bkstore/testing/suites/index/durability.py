"""Rules of `EntryIndexSuite` about durability: reopening, read-only indexes, flush and close."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bkstore.availability import Availability
from bkstore.errors import IllegalOperation, ReadOnlyError
from bkstore.ids import LedgerId
from bkstore.index.api import EntryIndex, LedgerState
from bkstore.testing import generators
from bkstore.testing.suites.index.base import (
    BOUNDARIES,
    LEDGERS,
    STATES,
    WIDE_BOUNDARIES,
    SuiteBase,
    files_of,
    rows_of,
    scan_rows,
)


def _list_calls(index: EntryIndex) -> list[Callable[[], object]]:
    """Return calls of every method of an index."""
    return [
        index.ledgers,
        lambda: index.ledgers(1),
        index.list_readable_ledgers,
        lambda: index.has_ledger(7),
        lambda: index.entries(7),
        lambda: index.entries(7, 5, 4),
        lambda: index.items(7),
        lambda: index.last_entry(7),
        lambda: index.availability(7),
        lambda: list(index.availability_many()),
        lambda: list(index.availability_many([7], {})),
        lambda: index.get(7, 0),
        lambda: index.get_many(7, [0]),
        lambda: index.get_many(7, []),
        lambda: index.state(7),
        lambda: index.checked_state(7),
        lambda: list(index.scan()),
        lambda: list(index.scan(findings=[])),
        lambda: index.put(7, 1, 6),
        lambda: index.put_many(7, [1], [6]),
        lambda: index.put_many(7, [], []),
        lambda: index.set_state(7, LedgerState(b"k")),
        lambda: index.delete(7),
        lambda: index.delete_many([7]),
    ]


class DurabilityRules(SuiteBase):
    """Rules for the life cycle of an index."""

    def test_capabilities(self, index: EntryIndex, path: Path) -> None:
        """The attributes of a backend are valid, and a durable one can be reopened."""
        assert index.writable
        assert index.layout
        assert isinstance(index.layout, str)
        assert index.duplicates in {"first", "last"}
        index.close()
        reopened = self.reopen(path)

        assert index.durable == (reopened is not None)

        if reopened is not None:
            with reopened:
                assert not reopened.writable
                assert index.layout == reopened.layout

    def test_close_keeps_everything(self, index: EntryIndex, path: Path) -> None:
        """Rows and states of all scopes are kept by a close without a flush."""
        states, rows = {}, {}
        wide_ids = (LedgerId(1, number) for number in WIDE_BOUNDARIES)
        for i, ledger in enumerate(map(LedgerId.of, (*LEDGERS, *BOUNDARIES, *wide_ids))):
            ids = generators.sparse(20, span=3000, seed=i)
            rows[ledger] = dict(zip(ids.tolist(), (ids + i + 1).tolist()))
            states[ledger] = STATES[i % len(STATES)]
            index.put_many(ledger, ids, ids + i + 1)
            index.set_state(ledger, states[ledger])
        with self.reopen_or_skip(index, path) as reopened:
            assert sorted(rows) == reopened.ledgers()
            assert [] == reopened.findings()
            for ledger in rows:
                assert rows[ledger] == rows_of(reopened, ledger)
                assert states[ledger] == reopened.state(ledger)
                assert max(rows[ledger]) == reopened.last_entry(ledger)
                expected = Availability.from_entries(list(rows[ledger]))
                assert expected == reopened.availability(ledger)
            assert sum(map(len, rows.values())) == len(scan_rows(reopened.scan()))

    def test_write_after_reopen(self, index: EntryIndex, path: Path) -> None:
        """A second writing session continues the first; `duplicates` holds across both."""
        location_of_1024 = {"first": 6, "last": 8}[index.duplicates]  # it is put in both sessions
        for ledger in LEDGERS:
            index.put_many(ledger, [0, 1024], [5, 6])
            index.set_state(ledger, STATES[2])
        index.flush()
        self.reopen_or_skip(index, path).close()
        with self.make_index(path) as second:
            for ledger in LEDGERS:
                second.put_many(ledger, [1, 1024, 5000], [7, 8, 9])

                assert {0: 5, 1: 7, 1024: location_of_1024, 5000: 9} == rows_of(second, ledger)
                assert STATES[2] == second.state(ledger)
            second.delete(LEDGERS[0])
            third = self.reopen_or_skip(second, path)
        with third:
            assert sorted(map(LedgerId.of, LEDGERS[1:])) == third.ledgers()
            assert {0: 5, 1: 7, 1024: location_of_1024, 5000: 9} == rows_of(third, LEDGERS[1])

    def test_read_only(self, index: EntryIndex, path: Path) -> None:
        """An index reopened read-only refuses every write and stays unchanged."""
        for ledger in LEDGERS:
            index.put(ledger, 0, 5)
        with self.reopen_or_skip(index, path) as reopened:
            for ledger in (*LEDGERS, 99, LedgerId(5, 99)):
                with pytest.raises(ReadOnlyError):
                    reopened.put(ledger, 1, 6)
                with pytest.raises(ReadOnlyError):
                    reopened.put_many(ledger, [1], [6])
                with pytest.raises(ReadOnlyError):
                    reopened.set_state(ledger, LedgerState(b"k"))
                with pytest.raises(ReadOnlyError):
                    reopened.delete(ledger)

            assert sorted(map(LedgerId.of, LEDGERS)) == reopened.ledgers()
            assert [{0: 5}] * len(LEDGERS) == [rows_of(reopened, ledger) for ledger in LEDGERS]

    def test_reading_writes_nothing(self, index: EntryIndex, path: Path) -> None:
        """Opening an index read-only and reading it neither changes nor makes files."""
        for ledger in LEDGERS:
            index.put_many(ledger, [0, 2000], [5, 6])
        index.close()
        before = files_of(path)
        with self.reopen_or_skip(index, path) as reopened:
            for ledger in (*LEDGERS, 99, LedgerId(5, 99)):
                reopened.availability(ledger)
                reopened.get(ledger, 1)
            list(reopened.scan())
            reopened.flush()

            assert before == files_of(path)

        assert before == files_of(path)

    def test_flush_twice(self, index: EntryIndex) -> None:
        """`flush` may be called at any time, on an empty index and twice, too."""
        index.flush()
        index.put(7, 0, 5)
        index.flush()
        index.flush()
        index.put(7, 1, 6)

        assert {0: 5, 1: 6} == rows_of(index, 7)

    def test_close_twice(self, path: Path) -> None:
        """`close` is idempotent, even after the context manager; a later `flush` does nothing."""
        with self.make_index(path) as index:
            index.put(7, 0, 5)
            index.close()
        index.close()
        index.flush()
        index.close()

    def test_closed_index_refuses_calls(self, index: EntryIndex, path: Path) -> None:
        """A closed index raises `IllegalOperation` rather than return an empty result."""
        index.put(7, 0, 5)
        index.close()
        reopened = self.reopen(path)
        if reopened is not None:
            reopened.close()
        for closed in filter(None, (index, reopened)):
            for call in _list_calls(closed):
                with pytest.raises(IllegalOperation):
                    call()

    def test_context_manager(self, path: Path) -> None:
        """Entering returns the index itself; an exception propagates, and the index is closed."""
        index = self.make_index(path)

        def fail() -> None:
            with index as entered:
                assert index is entered

                index.put(7, 0, 5)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        with self.reopen_or_skip(index, path) as reopened:
            assert {0: 5} == rows_of(reopened, 7)
