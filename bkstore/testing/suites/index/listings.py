"""Rules about listing many ledgers in one call: what single calls say, in order, each once.

One part of `bkstore.testing.EntryIndexSuite`.
"""

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


def _filled(index: EntryIndex, seed: int = 3) -> _Model:
    """Put ledgers of many shapes, empty ones too, into an index; return what is in them."""
    rng = np.random.default_rng(seed)
    numbers = sorted({*range(40), *WIDE_BOUNDARIES})
    names = [LedgerId(0, number) for number in numbers if number < 2**63]
    names += [LedgerId(scope, number) for scope in (1, 2**64 - 1) for number in numbers]
    model: _Model = {}
    for name in rng.permutation(len(names)).tolist():
        shape = sorted(generators.SHAPES)[int(rng.integers(len(generators.SHAPES)))]
        ids = generators.shaped(shape, int(rng.integers(0, 400)), seed=name)
        index.put_many(names[name], ids, generators.locations(ids.size, seed=name))
        model[names[name]] = sorted(set(ids.tolist()))
    return model


def _listed(index: EntryIndex, *ledgers: Any) -> list[tuple[LedgerId, list[int]]]:
    return [(name, found.entries().tolist()) for name, found in index.availability_many(*ledgers)]


class ListingRules(SuiteBase):
    """What holds for `availability_many`."""

    def test_lists_all_known_ledgers(self, index: EntryIndex, path: Path) -> None:
        """All known ledgers of all scopes are listed in unsigned order, those without entries
        too, with what was put; flushed or not, and after a reopen."""
        model = _filled(index)

        assert sorted(model.items()) == _listed(index)
        index.flush()

        assert sorted(model.items()) == _listed(index)
        with self.again(index, path) as reopened:
            assert sorted(model.items()) == _listed(reopened)

    def test_equals_single_calls(self, index: EntryIndex) -> None:
        """Each answer is the value that `availability` returns: equal groups, equal bytes."""
        _filled(index, seed=4)
        for name, found in index.availability_many():
            alone = index.availability(name)

            assert alone == found
            assert alone.to_bytes() == found.to_bytes()

    def test_lists_some(self, index: EntryIndex, path: Path) -> None:
        """Ledgers that are named come in unsigned order, each once, however they are given;
        unknown ones have no entries and stay unknown."""
        model = _filled(index, seed=5)
        rng = np.random.default_rng(6)
        known = sorted(model)

        def asked(index: EntryIndex) -> None:
            for count in (0, 1, 5, 60):
                some = [known[at] for at in rng.integers(0, len(known), count).tolist()]
                some += [LedgerId(0, 1000 + count), LedgerId(2, 7), LedgerId(0, 2**62)]
                expected = [(name, model.get(name, [])) for name in sorted(set(some))]

                assert expected == _listed(index, some)
                assert expected == _listed(index, iter(some), {})
            assert known == index.ledgers()

        asked(index)
        with self.again(index, path) as reopened:
            asked(reopened)

    def test_numbers_and_names(self, index: EntryIndex) -> None:
        """Plain numbers are ledgers of scope 0; what is no ledger id is refused at the call."""
        index.put_many(7, [1, 2], [5, 6])

        assert [(LedgerId(0, 7), [1, 2])] == _listed(index, [7, np.int64(7), LedgerId(0, 7)])
        for wrong in (True, 1.0, "7", None):
            with pytest.raises(InvalidArgument):
                index.availability_many([wrong])  # type: ignore[list-item]

    def test_long_and_short(self, index: EntryIndex) -> None:
        """Ledgers past the size at which a backend works in pieces lie between short ones."""
        long = generators.striped(200_000, 1, 3, 2)
        model = {LedgerId(0, number): [number, number + 2] for number in range(1, 9)}
        for number in (2, 5):
            model[LedgerId(0, number)] = long.tolist()
        for name, ids in model.items():
            index.put_many(name, ids, [5] * len(ids))

        assert sorted(model.items()) == _listed(index)
        assert [(LedgerId(0, 5), long.tolist())] == _listed(index, [5])

    def test_deleted_and_changed(self, index: EntryIndex) -> None:
        """Deleted ledgers are not listed, later entries are."""
        model = _filled(index, seed=7)
        for name in sorted(model)[::3]:
            index.delete(name)
            del model[name]
        for name in sorted(model)[::2]:
            index.put(name, 4000, 9)
            model[name] = sorted({*model[name], 4000})

        assert sorted(model.items()) == _listed(index)

    def test_deleted_meanwhile(self, index: EntryIndex) -> None:
        """A ledger that goes while the answers are taken has the entries it had, or none; the
        others are as they are."""
        model = _filled(index, seed=8)
        gone = sorted(model)[-1]
        errors: dict[LedgerId, BkstoreError] = {}
        listed = index.availability_many(errors=errors)
        found = dict([next(listed)])
        index.delete(gone)
        found.update(listed)

        assert {} == errors
        assert sorted(model) == list(found)
        assert found[gone].entries().tolist() in ([], model[gone])
        assert [model[name] for name in sorted(model)[:-1]] == [
            found[name].entries().tolist() for name in sorted(model)[:-1]
        ]

    @pytest.mark.parametrize("ledger", LEDGERS, ids=range(len(LEDGERS)))
    def test_nothing_is_here_at_first(self, index: EntryIndex, ledger: LedgerLike) -> None:
        """A new index lists nothing; of unknown ledgers it says that nothing is here."""
        assert [] == list(index.availability_many())
        assert [] == list(index.availability_many([]))
        assert [(LedgerId.of(ledger), Availability())] == list(index.availability_many([ledger]))

    def test_closed_meanwhile(self, index: EntryIndex) -> None:
        """Once the index is closed the answers end in `IllegalOperation`, which is no answer
        about a ledger."""
        for number in range(800):
            index.put(number, 0, 5)
        errors: dict[LedgerId, BkstoreError] = {}
        listed = index.availability_many(errors=errors)
        next(listed)
        index.close()

        with pytest.raises(IllegalOperation):
            list(listed)
        assert {} == errors
