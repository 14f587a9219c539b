"""Rules of `EntryIndexSuite` for listing many ledgers: equal to single calls, in order, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bkstore.availability import Availability
from bkstore.errors import BkstoreError, IllegalOperation, InvalidArgument
from bkstore.ids import LedgerId
from bkstore.index.api import EntryIndex, LedgerLike
from bkstore.testing import generators
from bkstore.testing.suites.index.base import LEDGERS, WIDE_BOUNDARIES, SuiteBase

_Model = dict[LedgerId, list[int]]


def _put_many_shapes(index: EntryIndex, seed: int = 3) -> _Model:
    """Put ledgers of many shapes, also empty ones, into an index; return their entry ids."""
    rng, shapes = np.random.default_rng(seed), sorted(generators.SHAPES)
    numbers = sorted({*range(40), *WIDE_BOUNDARIES})
    ledger_ids = [LedgerId(0, number) for number in numbers if number < 2**63]
    ledger_ids += [LedgerId(scope, number) for scope in (1, 2**64 - 1) for number in numbers]
    model: _Model = {}
    for i in rng.permutation(len(ledger_ids)).tolist():
        shape = shapes[int(rng.integers(len(shapes)))]
        entry_ids = generators.ids_of_shape(shape, int(rng.integers(0, 400)), seed=i)
        index.put_many(ledger_ids[i], entry_ids, generators.locations(entry_ids.size, seed=i))
        model[ledger_ids[i]] = sorted(set(entry_ids.tolist()))
    return model


def _list_entries(index: EntryIndex, *arguments: Any) -> list[tuple[LedgerId, list[int]]]:
    return [(key, value.entries().tolist()) for key, value in index.availability_many(*arguments)]


class ListingRules(SuiteBase):
    """Rules for `availability_many`."""

    def test_lists_all_known_ledgers(self, index: EntryIndex, path: Path) -> None:
        """All known ledgers of all scopes, also empty ones, are listed in unsigned order with
        their entries, before and after a flush and after a reopen."""
        model = _put_many_shapes(index)

        assert sorted(model.items()) == _list_entries(index)
        index.flush()

        assert sorted(model.items()) == _list_entries(index)
        with self.reopen_or_skip(index, path) as reopened:
            assert sorted(model.items()) == _list_entries(reopened)

    def test_equals_single_calls(self, index: EntryIndex) -> None:
        """Each listed value equals the one of `availability`, in its groups and its bytes."""
        _put_many_shapes(index, seed=4)
        for ledger_id, listed in index.availability_many():
            single = index.availability(ledger_id)

            assert single == listed
            assert single.to_bytes() == listed.to_bytes()

    def test_lists_requested_ledgers(self, index: EntryIndex, path: Path) -> None:
        """Requested ledgers are listed in unsigned order, each once, in whatever order they are
        passed; unknown ones have no entries and stay unknown."""
        model = _put_many_shapes(index, seed=5)
        rng = np.random.default_rng(6)
        known_ids = sorted(model)

        def check_requests(index: EntryIndex) -> None:
            """Check listings of some known ledgers, in random order and repeated, with unknown
            ones."""
            for count in (0, 1, 5, 60):
                requested = [known_ids[i] for i in rng.integers(0, len(known_ids), count).tolist()]
                requested += [LedgerId(0, 1000 + count), LedgerId(2, 7), LedgerId(0, 2**62)]
                expected = [(ledger, model.get(ledger, [])) for ledger in sorted(set(requested))]

                assert expected == _list_entries(index, requested)
                assert expected == _list_entries(index, iter(requested), {})  # with errors
            assert known_ids == index.ledgers()

        check_requests(index)
        with self.reopen_or_skip(index, path) as reopened:
            check_requests(reopened)

    def test_ledger_id_types(self, index: EntryIndex) -> None:
        """Plain numbers are ledgers of scope 0; the call refuses anything that is no ledger id."""
        index.put_many(7, [1, 2], [5, 6])

        assert [(LedgerId(0, 7), [1, 2])] == _list_entries(index, [7, np.int64(7), LedgerId(0, 7)])
        for invalid in (True, 1.0, "7", None):
            with pytest.raises(InvalidArgument):
                index.availability_many([invalid])  # type: ignore[list-item]

    def test_long_and_short(self, index: EntryIndex) -> None:
        """Ledgers so long that a backend reads them in parts are listed between short ones."""
        long_ids = generators.striped(200_000, bookie_index=1, ensemble_size=3, write_quorum=2)
        model = {LedgerId(0, number): [number, number + 2] for number in range(1, 9)}
        for number in (2, 5):
            model[LedgerId(0, number)] = long_ids.tolist()
        for ledger_id, entry_ids in model.items():
            index.put_many(ledger_id, entry_ids, [5] * len(entry_ids))

        assert sorted(model.items()) == _list_entries(index)
        assert [(LedgerId(0, 5), long_ids.tolist())] == _list_entries(index, [5])

    def test_deleted_and_changed(self, index: EntryIndex) -> None:
        """Deleted ledgers are not listed; entries added later are."""
        model = _put_many_shapes(index, seed=7)
        for ledger_id in sorted(model)[::3]:
            index.delete(ledger_id)
            del model[ledger_id]
        for ledger_id in sorted(model)[::2]:
            index.put(ledger_id, 4000, 9)
            model[ledger_id] = sorted({*model[ledger_id], 4000})

        assert sorted(model.items()) == _list_entries(index)

    def test_deleted_meanwhile(self, index: EntryIndex) -> None:
        """A ledger deleted during a listing has its entries or none; others are unaffected."""
        model = _put_many_shapes(index, seed=8)
        deleted = sorted(model)[-1]
        errors: dict[LedgerId, BkstoreError] = {}
        listing = index.availability_many(errors=errors)
        answers = dict([next(listing)])
        index.delete(deleted)
        answers.update(listing)

        assert {} == errors
        assert sorted(model) == list(answers)
        assert answers[deleted].entries().tolist() in ([], model[deleted])
        for ledger_id in sorted(model)[:-1]:
            assert model[ledger_id] == answers[ledger_id].entries().tolist()

    @pytest.mark.parametrize("ledger", LEDGERS, ids=range(len(LEDGERS)))
    def test_new_index_is_empty(self, index: EntryIndex, ledger: LedgerLike) -> None:
        """A new index lists no ledgers; requested unknown ones have no entries."""
        assert [] == list(index.availability_many())
        assert [] == list(index.availability_many([]))
        assert [(LedgerId.of(ledger), Availability())] == list(index.availability_many([ledger]))

    def test_closed_meanwhile(self, index: EntryIndex) -> None:
        """Closing the index ends a listing with `IllegalOperation`, not with errors of ledgers."""
        for number in range(800):
            index.put(number, 0, 5)
        errors: dict[LedgerId, BkstoreError] = {}
        listing = index.availability_many(errors=errors)
        next(listing)
        index.close()

        with pytest.raises(IllegalOperation):
            list(listing)
        assert {} == errors
