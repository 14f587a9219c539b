"""The assertions that an index must pass to have the content of a golden snapshot."""

from __future__ import annotations

import hashlib

import pytest

from bkstore.errors import NoSuchLedger
from bkstore.index.api import EntryIndex
from tests.golden.data import GoldenTree, expand_runs, refused


class Reader:
    """The assertions that an index must pass to have the content of a golden snapshot."""

    expand_runs = staticmethod(expand_runs)
    refused = staticmethod(refused)

    def ledgers(self, index: EntryIndex, tree: GoldenTree) -> None:
        """The active ledgers, all of scope 0, and no other."""
        assert sorted(tree.last["active_ledgers"]) == [name.ledger for name in index.ledgers()]
        assert index.ledgers() == index.ledgers(0)
        for ledger in tree.unknown:
            assert [] == index.entries(ledger).tolist()
            assert index.last_entry(ledger) is None
            with pytest.raises(NoSuchLedger):
                index.state(ledger)

    def entries(self, index: EntryIndex, tree: GoldenTree) -> None:
        """The entries of each ledger, and the last one."""
        for answer in tree.known:
            expected = expand_runs(answer["entries"])

            assert answer["num_entries"] == len(expected)
            assert expected == index.entries(answer["ledger"]).tolist()
            assert (expected[-1] if expected else None) == index.last_entry(answer["ledger"])

    def locations(self, index: EntryIndex, tree: GoldenTree) -> None:
        """The location of each entry of which the golden data has one."""
        for answer in tree.known:
            ledger = answer["ledger"]
            expected = {row[0]: row[1] for row in answer["locations"]}
            entries, locations = index.items(ledger)
            found = dict(zip(entries.tolist(), locations.tolist()))

            assert expected == {entry: found[entry] for entry in expected}
            assert list(expected.values()) == index.get_many(ledger, list(expected)).tolist()
            for entry in list(expected)[:5]:
                assert expected[entry] == index.get(ledger, entry)
            if "missing_probe" in answer:
                assert index.get(ledger, answer["missing_probe"][0]) is None

    def states(self, index: EntryIndex, tree: GoldenTree, limbo: bool = True) -> None:
        """Master key, fenced flag, explicit LAC, limbo: those that the bookie told."""
        for answer in tree.known:
            state = index.state(answer["ledger"])
            lac = None if state.explicit_lac is None else state.explicit_lac.hex()
            found = {
                "master_key_hex": state.master_key.hex(),
                "fenced": state.fenced,
                "explicit_lac_hex": lac,
                "limbo": state.limbo,
            }
            told = {key for key in found if key in answer and not refused(answer[key])}
            told -= set() if limbo else {"limbo"}

            assert {key: answer[key] for key in told} == {key: found[key] for key in told}

    def availability(self, index: EntryIndex, tree: GoldenTree) -> None:
        """The availability bytes, equal to those the real class serialized."""
        for answer in tree.known:
            available = index.availability(answer["ledger"])
            data = available.to_bytes("bookkeeper")

            assert answer["availability_total"] == len(available)
            assert answer["availability_len"] == len(data)
            assert answer["availability_sha256"] == hashlib.sha256(data).hexdigest()
            if "availability_hex" in answer:
                assert answer["availability_hex"] == data.hex()

    def scan(self, index: EntryIndex, tree: GoldenTree) -> None:
        """A scan yields the entries of the known ledgers, and nothing else."""
        expected = {
            (answer["ledger"], entry)
            for answer in tree.known
            for entry in expand_runs(answer["entries"])
        }
        found = [
            (ledger.ledger, entry)
            for batch in index.scan(1000)
            for ledger, entries, _ in batch.by_ledger()
            for entry in entries.tolist()
        ]

        assert len(expected) == len(found)
        assert expected == set(found)

    def everything(self, index: EntryIndex, tree: GoldenTree, limbo: bool = True) -> None:
        """All of the above."""
        self.ledgers(index, tree)
        self.entries(index, tree)
        self.locations(index, tree)
        self.states(index, tree, limbo)
        self.availability(index, tree)
        self.scan(index, tree)
