"""Rules of `EntryIndexSuite` for ledgers: state, deletion, unsigned order, scopes, scans."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bkstore.availability import Availability
from bkstore.errors import InvalidArgument, NoSuchLedger, UnsupportedLayout
from bkstore.ids import LedgerId
from bkstore.index.api import EntryIndex, LedgerLike, LedgerListing, LedgerState
from bkstore.testing import generators
from bkstore.testing.suites.index.base import (
    BOUNDARIES,
    LEDGERS,
    STATES,
    WIDE_BOUNDARIES,
    SuiteBase,
    rows_of,
    scan_rows,
)


class LedgerRules(SuiteBase):
    """Rules for ledgers."""

    @pytest.mark.parametrize("state", STATES, ids=range(len(STATES)))
    def test_state_round_trip(self, index: EntryIndex, path: Path, state: LedgerState) -> None:
        """Master key, fenced flag and explicit LAC are read as set, even after a reopen."""
        for ledger in LEDGERS:
            index.set_state(ledger, state)

            assert state == index.state(ledger)
            assert LedgerId.of(ledger) in index.ledgers()
            assert index.has_ledger(ledger)
            assert {} == rows_of(index, ledger)

        with self.reopen_or_skip(index, path) as reopened:
            assert [state] * len(LEDGERS) == [reopened.state(ledger) for ledger in LEDGERS]

    def test_state_is_replaced(self, index: EntryIndex) -> None:
        """`set_state` replaces the whole state, and keeps nothing of the old one."""
        for ledger in LEDGERS:
            for state in (*reversed(STATES), *STATES):
                index.set_state(ledger, state)

                assert state == index.state(ledger)

    def test_state_and_entries_are_independent(self, index: EntryIndex) -> None:
        """Setting the state keeps the entries, putting entries keeps the state."""
        for ledger in LEDGERS:
            index.put_many(ledger, [0, 2000], [5, 6])
            index.set_state(ledger, STATES[-1])
            index.put(ledger, 1, 7)

            assert {0: 5, 1: 7, 2000: 6} == rows_of(index, ledger)
            assert STATES[-1] == index.state(ledger)

    def test_limbo(self, index: EntryIndex, path: Path) -> None:
        """Limbo is stored if the index `supports_limbo`; else it is refused."""
        limbo = LedgerState(b"k" * 20, limbo=True)
        if not index.supports_limbo:
            for ledger in LEDGERS:
                with pytest.raises(UnsupportedLayout):
                    index.set_state(ledger, limbo)
            assert [] == index.ledgers()
            return
        for ledger in LEDGERS:
            index.set_state(ledger, limbo)

            assert limbo == index.state(ledger)
        index.set_state(8, limbo)
        index.set_state(8, limbo._replace(limbo=False, fenced=True))

        assert LedgerState(b"k" * 20, fenced=True) == index.state(8)
        with self.reopen_or_skip(index, path) as reopened:
            assert limbo == reopened.state(7)

    @pytest.mark.parametrize("ledger", LEDGERS, ids=str)
    def test_delete_forgets(self, index: EntryIndex, ledger: LedgerLike) -> None:
        """After `delete` a ledger is unknown, as if it had never existed."""
        index.put_many(ledger, [0, 1, 5000], [5, 6, 7])
        index.set_state(ledger, STATES[-1])

        assert [LedgerId.of(ledger)] == index.ledgers()

        index.delete(ledger)

        assert [] == index.ledgers()
        assert not index.has_ledger(ledger)
        assert {} == rows_of(index, ledger)
        assert [0, 0] == index.get_many(ledger, [0, 5000]).tolist()
        assert index.get(ledger, 1) is None
        assert index.last_entry(ledger) is None
        assert Availability() == index.availability(ledger)
        assert [] == scan_rows(index.scan())
        with pytest.raises(NoSuchLedger):
            index.state(ledger)

    def test_delete_takes_one_ledger_only(self, index: EntryIndex) -> None:
        """Ledgers with neighboring numbers and scopes are kept."""
        numbers = (6, 7, 8, 7 + 256, 7 << 8)
        ledgers = [LedgerId(scope, n) for scope in (0, 1, 2, 2**64 - 1) for n in numbers]
        for i, ledger in enumerate(ledgers):
            index.put_many(ledger, [0, 1, 1024], [i + 1, i + 2, i + 3])
        gone = {LedgerId(0, 7), LedgerId(1, 7), LedgerId(2**64 - 1, 8)}
        for ledger in gone:
            index.delete(ledger)

        for i, ledger in enumerate(ledgers):
            expected = {} if ledger in gone else {0: i + 1, 1: i + 2, 1024: i + 3}
            assert expected == rows_of(index, ledger)
            assert (ledger in gone) == (ledger not in index.ledgers())

    def test_delete_of_unknown_ledger(self, index: EntryIndex) -> None:
        """Deleting an unknown ledger does nothing, even twice."""
        index.put(8, 0, 5)
        for ledger in LEDGERS:
            index.delete(ledger)
            index.delete(ledger)

        assert [LedgerId(0, 8)] == index.ledgers()
        assert {0: 5} == rows_of(index, 8)

    def test_adding_again_after_delete(self, index: EntryIndex, path: Path) -> None:
        """A ledger added again after its deletion has no old entries, key or flags."""
        for ledger in LEDGERS:
            index.put_many(ledger, range(2000), range(1, 2001))
            index.set_state(ledger, STATES[-1])
            index.flush()
            index.delete(ledger)
            index.put_many(ledger, [3, 1500], [77, 88])

            assert {3: 77, 1500: 88} == rows_of(index, ledger)
            assert LedgerState() == index.state(ledger)

        with self.reopen_or_skip(index, path) as reopened:
            for ledger in LEDGERS:
                assert {3: 77, 1500: 88} == rows_of(reopened, ledger)
                assert LedgerState() == reopened.state(ledger)

    def test_delete_is_durable(self, index: EntryIndex, path: Path) -> None:
        """A deletion after a flush lasts over a reopen."""
        for ledger in LEDGERS:
            index.put_many(ledger, [0, 1], [5, 6])
        index.flush()
        for ledger in LEDGERS:
            index.delete(ledger)
        with self.reopen_or_skip(index, path) as reopened:
            assert [] == reopened.ledgers()
            assert [] == scan_rows(reopened.scan())

    @pytest.mark.parametrize("batch", [0, -1, True, 1.0, 2.5, "8", None, float("nan")])
    def test_invalid_batch_sizes(self, index: EntryIndex, batch: Any) -> None:
        """A batch size that is no positive integer is refused at the first step of a scan."""
        index.put(7, 0, 5)
        index.put(LedgerId(1, 7), 0, 5)
        with pytest.raises(InvalidArgument, match="batch"):
            next(index.scan(batch), None)
        with pytest.raises(InvalidArgument, match="batch"):
            next(index.scan(batch, findings=[]), None)

    def test_batch_of_any_size(self, index: EntryIndex) -> None:
        """A batch may be larger than the index; its size may be a numpy integer."""
        index.put_many(7, [0, 1], [5, 6])
        batches: tuple[Any, ...] = (np.int64(2), 2**62)
        for batch in batches:
            assert 2 == len(scan_rows(index.scan(batch)))

    @pytest.mark.parametrize("batch", [1, 3, 1000, 1 << 18])
    def test_scan(self, index: EntryIndex, batch: int) -> None:
        """A scan yields every row once, ordered by directory, ledger and entry. The batch size is a
        hint, but no batch is empty, and all columns are int64."""
        expected = {}
        for number, ledger in enumerate((*LEDGERS, 8, 9, 300, LedgerId(1, 2**63), LedgerId(2, 0))):
            ids = generators.sparse(40, span=3000, seed=number)
            locations = generators.locations(ids.size, seed=number)
            index.put_many(ledger, ids, locations)
            ledger_id = LedgerId.of(ledger)
            for entry, location in zip(ids.tolist(), locations.tolist()):
                expected[ledger_id.scope, ledger_id.ledger, entry] = location
        index.set_state(10, LedgerState(b"k"))
        batches = list(index.scan(batch))
        rows = scan_rows(iter(batches))

        assert sorted(rows) == rows
        assert expected == {row[1:4]: row[4] for row in rows}  # without the dir_index
        assert len(expected) == len(rows)
        assert 0 < min(chunk.entry_id.size for chunk in batches)
        assert {np.dtype(np.int64)} == {column.dtype for chunk in batches for column in chunk}
        assert len({row[:3] for row in rows}) == len({row[1:3] for row in rows})  # in one directory

    def test_scan_sums(self, index: EntryIndex) -> None:
        """A scan has as many rows, and the same sums, as the items of all ledgers."""
        for number, shape in enumerate(sorted(generators.SHAPES)):
            ids = generators.ids_of_shape(shape, 2000, seed=number)
            for scope in (0, 3):
                index.put_many(LedgerId(scope, number), ids, ids + 1)
        listed = zip(*(index.items(ledger) for ledger in index.ledgers()))
        scanned = zip(*((batch.entry_id, batch.location) for batch in index.scan(500)))
        columns = zip(map(np.concatenate, listed), map(np.concatenate, scanned), strict=True)
        for listed_column, scanned_column in columns:  # of entries, then of locations
            assert listed_column.size == scanned_column.size
            assert listed_column.sum() == scanned_column.sum()

    def test_scan_names_the_ledger(self, index: EntryIndex) -> None:
        """`by_ledger` of a batch restores ledger ids, including the top bits of both halves."""
        for i, ledger in enumerate(LEDGERS):
            index.put_many(ledger, [i, i + 5], [1, 2])
        runs = [run for batch in index.scan() for run in batch.by_ledger()]
        rows = {ledger: entries.tolist() for ledger, entries, _ in runs}

        assert {LedgerId.of(ledger): [i, i + 5] for i, ledger in enumerate(LEDGERS)} == rows

    def test_ledgers_in_unsigned_order(self, index: EntryIndex) -> None:
        """Ledgers are listed by scope, then number, both unsigned."""
        ledgers = [LedgerId(0, number) for number in BOUNDARIES]
        ledgers += [LedgerId(s, n) for s in (1, 2**63, 2**64 - 1) for n in WIDE_BOUNDARIES]
        for i in np.random.default_rng(3).permutation(len(ledgers)).tolist():
            index.put(ledgers[i], i, i + 1)

        assert ledgers == index.ledgers()
        for i, ledger in enumerate(ledgers):
            assert {i: i + 1} == rows_of(index, ledger)

    def test_ledgers_of_one_scope(self, index: EntryIndex) -> None:
        """`ledgers(scope)` lists the ledgers of one scope. So does a listing of what can be read;
        nothing is unknown there."""
        ledgers = [LedgerId(s, n) for s in (0, 1, 2**63, 2**64 - 1) for n in (0, 7, 2**63 - 1)]
        for ledger in ledgers:
            index.set_state(ledger, LedgerState())
        for scope in (0, 1, 2, 2**63, 2**64 - 1):
            expected = [ledger for ledger in ledgers if ledger.scope == scope]
            assert expected == index.ledgers(scope)
            assert LedgerListing(expected) == index.list_readable_ledgers(scope)
        assert LedgerListing(ledgers) == index.list_readable_ledgers()
        assert [True, False] == [index.has_ledger(LedgerId(s, 7)) for s in (1, 2)]

    def test_random_uuids(self, index: EntryIndex, path: Path) -> None:
        """All calls accept ledgers with random UUIDs, half of which have the top bit set."""
        rng = np.random.default_rng(17)
        uuids = [uuid.UUID(bytes=rng.bytes(16)) for _ in range(40)]
        expected = {}
        for i, uuid_ in enumerate(uuids):
            ledger = LedgerId.from_uuid(uuid_)
            ids = generators.sparse(30, span=2000, seed=i)
            expected[ledger] = dict(zip(ids.tolist(), (ids + 1 + i).tolist()))
            index.put_many(ledger, ids, ids + 1 + i)
            index.set_state(ledger, LedgerState(uuid_.bytes, fenced=i % 2 == 0))

        assert sorted(uuids, key=lambda id_: id_.int) == [ledger.uuid for ledger in index.ledgers()]

        with self.reopen_or_skip(index, path) as reopened:
            assert sorted(expected) == reopened.ledgers()
            for ledger, rows in expected.items():
                assert rows == rows_of(reopened, ledger)
                assert ledger.uuid.bytes == reopened.state(ledger).master_key

    def test_scopes_do_not_mix(self, index: EntryIndex) -> None:
        """Equal numbers in different scopes are different ledgers in all calls."""
        scopes = (0, 1, 2**63, 2**64 - 1)
        for i, scope in enumerate(scopes):
            index.put_many(LedgerId(scope, 7), [i, 10 + i], [i + 1, i + 2])
            index.set_state(LedgerId(scope, 7), LedgerState(bytes([i])))
        for i, scope in enumerate(scopes):
            ledger = LedgerId(scope, 7)

            assert {i: i + 1, 10 + i: i + 2} == rows_of(index, ledger)
            assert bytes([i]) == index.state(ledger).master_key
            assert 10 + i == index.last_entry(ledger)
            assert [0] == index.get_many(ledger, [i + 1]).tolist()
