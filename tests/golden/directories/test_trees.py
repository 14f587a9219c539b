"""Directories written by the real BookKeeper, read through the API and compared with its answers.

Every tree and cluster below the golden folder is taken, by what its JSON holds, not by name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bkstore import Availability, BookieDir, open_index
from bkstore.errors import NoSuchLedger, ReadOnlyError
from bkstore.index.api import EntryIndex, LedgerState
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.testing.suites.index.base import files_of


class TestTree:
    """The last snapshot: what the bookie answered before it was shut down for good."""

    def test_ledgers(self, tree: Any, tree_index: EntryIndex, reader: Any) -> None:
        """The ledgers are the active ones; the others that were asked about are unknown."""
        reader.ledgers(tree_index, tree)

    def test_entries(self, tree: Any, tree_index: EntryIndex, reader: Any) -> None:
        """The entries of each ledger, and its last one."""
        reader.entries(tree_index, tree)

    def test_locations(self, tree: Any, tree_index: EntryIndex, reader: Any) -> None:
        """Locations, asked for one by one, together, and listed."""
        reader.locations(tree_index, tree)

    def test_states(self, tree: Any, tree_index: EntryIndex, reader: Any) -> None:
        """Master key, fenced, explicit LAC and limbo of each ledger."""
        reader.states(tree_index, tree)

    def test_availability(self, tree: Any, tree_index: EntryIndex, reader: Any) -> None:
        """The bytes of the availability answer, equal to the real class's."""
        reader.availability(tree_index, tree)

    def test_scan(self, tree: Any, tree_index: EntryIndex, reader: Any) -> None:
        """A scan gives the same entries as the ledgers one by one."""
        reader.scan(tree_index, tree)

    def test_last_index_entry(self, tree: Any, tree_index: EntryIndex, reader: Any) -> None:
        """`last_entry` is what the real index says, which is an exception for "none"."""
        said = {a["ledger"]: a["index_last_entry"] for a in tree.known if "index_last_entry" in a}
        if tree.layout == "idx":
            assert {} == said
            pytest.skip("of index files the ledger cache was asked: test_bookkeepers_own_listing")
        told = {ledger: None if reader.refused(last) else last for ledger, last in said.items()}

        assert told
        assert len(tree.known) == len(told)
        assert told == {ledger: tree_index.last_entry(ledger) for ledger in told}

    def test_bookkeepers_own_listing(self, tree: Any, reader: Any) -> None:
        """compat="bookkeeper" lists as the real class, last entry 0 for "none" included."""
        if tree.layout != "idx":
            pytest.skip("index files only")
        page_size = tree.options.get("page_size", 8192)
        with open_index(tree.root, compat="bookkeeper", page_size=page_size) as index:
            for answer in tree.known:
                told = answer["ledger_cache_last_entry"]

                assert (
                    reader.expand_runs(answer["entries"])
                    == index.entries(answer["ledger"]).tolist()
                )
                if not reader.refused(told):
                    assert told == index.last_entry(answer["ledger"])

    def test_locations_point_into_logs(self, tree: Any) -> None:
        """Every location lies in an entry log of the directory that its row names."""
        with BookieDir(tree.root) as bookie:
            logs = {(log.dir_index, log.log_id): log.bytes for log in bookie.entry_logs}
            for answer in tree.known:
                _, places, locations = bookie.locate(answer["ledger"])
                for number, location in zip(places.tolist(), locations.tolist()):
                    log_id, position = divmod(location, 2**32)

                    assert 1028 <= position < logs[number, log_id]

    def test_nothing_is_written(self, tree: Any) -> None:
        """Reading a whole directory changes and adds no file."""
        before = files_of(tree.root)
        with BookieDir(tree.root) as bookie:
            list(bookie.scan())
            bookie.findings()
            for ledger in bookie.index.ledgers():
                bookie.index.availability(ledger)
                bookie.index.state(ledger)
            bookie.check_unchanged()

        assert before == files_of(tree.root)

    def test_read_only(self, tree: Any, tree_index: EntryIndex) -> None:
        """An opened directory refuses writes."""
        with pytest.raises(ReadOnlyError):
            tree_index.put(1, 1, 1)
        with pytest.raises(ReadOnlyError):
            tree_index.set_state(1, LedgerState())
        with pytest.raises(ReadOnlyError):
            tree_index.delete(1)

    def test_index_files(self, tree: Any) -> None:
        """Each index file lies where the bookie said, and is found there."""
        if tree.layout != "idx":
            pytest.skip("index files only")
        with BookieDir(tree.root) as bookie:
            assert isinstance(bookie.index, HierarchicalIndex)

            for answer in tree.known:
                if "index_file" in answer:
                    path = tree.root / answer["index_file"]

                    assert str(path) == bookie.index.path(answer["ledger"])
                    assert answer.get("index_file_size", 0) <= path.stat().st_size


class TestCluster:
    """The bookies of a real cluster, after some of their index entries were removed."""

    def test_held(self, cluster: tuple[Path, dict[str, Any]]) -> None:
        """Each bookie's index has exactly the entries that it really held."""
        root, document = cluster
        for bookie_id in document["bookies"]:
            with BookieDir(root / bookie_id) as bookie:
                for ledger in document["after"]["state"]["ledgers"]:
                    answer = ledger["bookies"][bookie_id]
                    found = bookie.index.availability(ledger["ledger"])

                    assert answer["held"] == found.ranges().tolist(), (bookie_id, ledger["ledger"])
                    assert sum(last - first + 1 for first, last in answer["held"]) == len(found)
                    assert found == Availability.from_entries(
                        bookie.index.entries(ledger["ledger"])
                    )

    def test_client_answers(self, cluster: tuple[Path, dict[str, Any]]) -> None:
        """What the real client was told is the bytes that we give, and the same set."""
        root, document = cluster
        answered, errors = 0, set[str | None]()
        for bookie_id in document["bookies"]:
            with BookieDir(root / bookie_id) as bookie:
                for ledger in document["after"]["state"]["ledgers"]:
                    answer = ledger["bookies"][bookie_id]
                    found = bookie.index.availability(ledger["ledger"])
                    if "answer_total" not in answer:  # an error, or not asked any more
                        errors.add(answer.get("answer_error"))
                        continue
                    assert answer["answer_total"] == len(found)
                    if "answer_hex" in answer:  # long ones are told by number and groups only
                        data = bytes.fromhex(answer["answer_hex"])

                        assert data == found.to_bytes("bookkeeper")
                        assert found == Availability.from_bytes(data)
                    answered += 1
        if document["storage"] == "db":
            assert 0 == answered
            assert {None, "BKNoSuchLedgerExistsException:-7", "BKTimeoutException:-23"} == errors
            pytest.skip("a real db bookie answers nobody: the requests timed out")
        assert answered
        assert {"BKNoSuchLedgerExistsException:-7"} == errors

    def test_unknown_ledgers(self, cluster: tuple[Path, dict[str, Any]]) -> None:
        """A bookie that told the client "no such ledger" does not know it here either."""
        root, document = cluster
        done = 0
        for bookie_id in document["bookies"]:
            with BookieDir(root / bookie_id) as bookie:
                for ledger in document["after"]["state"]["ledgers"]:
                    error = str(ledger["bookies"][bookie_id].get("answer_error", ""))
                    if error.endswith(":-7"):
                        assert ledger["ledger"] not in [n.ledger for n in bookie.index.ledgers()]

                        with pytest.raises(NoSuchLedger):
                            bookie.index.state(ledger["ledger"])
                        done += 1
        assert done

    def test_bookie_ids(self, cluster: tuple[Path, dict[str, Any]]) -> None:
        """Without a cookie, a bookie is called by its directory; the same keys lie everywhere."""
        root, document = cluster
        keys: dict[int, set[bytes]] = {}
        for bookie_id in document["bookies"]:
            with BookieDir(root / bookie_id) as bookie:
                assert bookie_id == bookie.bookie_id

                for name in bookie.index.ledgers():
                    keys.setdefault(name.ledger, set()).add(bookie.index.state(name).master_key)

        assert {1} == {len(found) for found in keys.values()}
        assert {20} == {len(key) for found in keys.values() for key in found}
