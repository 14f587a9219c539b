"""The operations of the golden trees, replayed through `LedgerStorage`.

By default nothing is ever lost or left out: the answers are those of a model made of
dictionaries. With ``compat="bookkeeper"`` they are those that the real storage gave, oddities
included; what of these is not copied is named here and in `docs/parity.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from bkstore.errors import NoSuchLedger
from bkstore.storage.entry_log.scan import read_log_metadata, scan_log
from tests.golden.directories.operation_replay import EXCEPTIONS, Answers, Model, Replay, runs_of

DELETED = EXCEPTIONS[NoSuchLedger]


def test_nothing_is_lost(tree: Any, tmp_path: Path) -> None:
    """Every snapshot's answers are the model's: ids, LAC, fenced, last entry, existence."""
    replay, model, done = Replay(tree.document, tmp_path, None), Model(tree.storage), 0
    for kind, operation in replay.run(before=lambda op: model.do(op, replay.header_version)):
        if kind == "snapshot":
            told = tree.snapshots[operation["name"]]["ledgers"]
            asked = [answer["ledger"] for answer in told]

            assert sorted(model.ledgers) == [name.ledger for name in replay.storage.ledgers()]
            assert {n: model.answers(n) for n in asked} == {n: replay.answers(n) for n in asked}
            done += len(asked)

    assert done


class Oddities:
    """What the real storage says that is not copied, and why; see `docs/parity.md`."""

    def __init__(self, tree: Any) -> None:
        self._db = tree.storage == "db"
        self._made: set[int] = set()
        self._filled: set[int] = set()
        self._deleted: set[int] = set()

    def note(self, operation: dict[str, Any]) -> None:
        """Follow the operations."""
        kind = operation["op"]
        if kind == "set_master_key":
            self._made.add(operation["ledger"])
        elif kind == "add":
            self._filled.add(operation["ledger"])
        elif kind == "interleave":
            self._filled.update(part["ledger"] for part in operation["parts"])
        elif kind in ("delete_ledger", "drop_from_metadata"):
            self._deleted.add(operation["ledger"])
            self._made.discard(operation["ledger"])
        elif kind == "reopen" and self._db:
            self._deleted.clear()

    def is_left_out(self, told: Answers) -> bool:
        """Whether an index file is missing by an oddity.

        That of a ledger without entries is written only if the ledger was looked up before;
        one that is made again after a delete stays unknown, as a listing left a reference.
        """
        ledger = told["ledger"]
        without = ledger in self._made and ledger not in self._filled
        again = ledger in self._made and ledger in self._deleted
        return not self._db and not told["exists"] and (without or again)

    def read_before(self, told: Answers) -> bool:
        """Whether db storage may answer from its read cache, which a delete leaves alone."""
        return self._db and told["ledger"] in self._deleted


def _expected(told: Answers, keys: list[str], db: bool) -> Answers:
    """Return the real answers; index files say null of an unknown ledger's explicit LAC."""
    found = {key: told[key] for key in keys}
    if not db and told["master_key_hex"] == DELETED:
        found["explicit_lac_hex"] = DELETED
    return found


def _answers(replay: Replay, ledger: int, db: bool) -> Answers:
    """Return our answers; of db storage the golden data list what is flushed."""
    found = replay.answers(ledger)
    if db:
        found["entries"] = replay.flushed(ledger)
        found["num_entries"] = sum(last - first + 1 for first, last in found["entries"])
    return found


def _replayed(tree: Any, folder: Path) -> Iterator[tuple[str, Any, Replay, Oddities]]:
    """Replay a tree in compat mode; yield at each snapshot, probe and pass of the collector."""
    if "page_limit_first_session" in tree.options:
        pytest.skip("left out: there is no page pool, so nothing is written by its evictions")
    odd, replay = Oddities(tree), Replay(tree.document, folder, "bookkeeper")
    for kind, operation in replay.run(before=odd.note):
        told = tree.snapshots[operation["name"]] if kind == "snapshot" else operation
        yield kind, told, replay, odd


def test_answers_of_the_real_storage(tree: Any, tmp_path: Path) -> None:
    """In compat mode every snapshot's answers are the real storage's, oddities included."""
    done, db = 0, tree.storage == "db"
    for kind, snapshot, replay, odd in _replayed(tree, tmp_path):
        for told in snapshot["ledgers"] if kind == "snapshot" else ():
            if odd.is_left_out(told):
                continue
            ledger = told["ledger"]
            found = _answers(replay, ledger, db)

            assert _expected(told, list(found), db) == found
            if db and not odd.read_before(told):
                listed = runs_of(replay.storage.entries(ledger).tolist())

                assert told["entries_exist_incl_cache"] == listed
            done += 1

    assert done


def test_records_lie_where_they_lay(tree: Any, tmp_path: Path) -> None:
    """In compat mode every record has the location, length and CRC that it had."""
    done, alike = 0, _same_places(tree.options, tree.storage)
    for kind, snapshot, replay, odd in _replayed(tree, tmp_path):
        for told in snapshot["ledgers"] if kind == "snapshot" else ():
            if odd.is_left_out(told) or odd.read_before(told):
                continue
            for row in told.get("locations", ()):
                assert alike(row) == alike(replay.located(told["ledger"], row[0]))
                done += 1

    assert done


def _same_places(options: dict[str, Any], storage: str) -> Callable[[list[int]], list[int]]:
    """Return which part of [entry, location, length, crc32] can be compared."""
    if options.get("direct_io"):  # logs are not written that way
        return lambda row: [row[0], *row[2:]]
    if options.get("entry_log_per_ledger") and storage == "sorted":
        # a flush runs on eight threads there, so the order of log ids is one of many
        return lambda row: [row[0], row[1] & 0xFFFFFFFF, *row[2:]]
    return lambda row: row


def test_logs_after_garbage_collection(tree: Any, tmp_path: Path) -> None:
    """The same entry logs are left by the same collections and compactions."""
    if tree.options.get("direct_io"):
        pytest.skip("logs of direct IO are not written, and those of others have other ids")
    if not _has(tree, "gc"):
        pytest.skip("nothing was collected in this tree")
    done = 0
    for kind, operation, replay, _ in _replayed(tree, tmp_path):
        if kind == "gc":
            logs = [log for path in replay.storage.write_paths for log in path.logger.log_ids]

            assert operation["logs_after"] == logs
            done += 1

    assert done


def _has(tree: Any, kind: str) -> bool:
    return any(operation["op"] == kind for operation in tree.document["operations"])


def test_closed_logs_hold_the_same(tree: Any, tmp_path: Path) -> None:
    """Ledgers map, sizes, number and CRC of the records of each log are those of the tree."""
    options = tree.options
    if options.get("direct_io") or options.get("entry_log_per_ledger"):
        pytest.skip("log ids or headers differ, see test_records_lie_where_they_lay")
    done = 0
    for kind, snapshot, replay, _ in _replayed(tree, tmp_path):
        for told in snapshot.get("entry_logs", ()) if kind == "snapshot" else ():
            assert told == {**told, **_log(replay, told)}
            done += 1

    assert done


def _log(replay: Replay, told: dict[str, Any]) -> dict[str, Any]:
    (path,) = replay.storage.write_paths
    path.logger.write_buffered()
    file = path.logger.path(told["log_id"])
    metadata, source = read_log_metadata(file, told["log_id"])
    records = [batch.record(at) for batch in scan_log(file) for at in range(len(batch))]
    return {
        "has_ledgers_map": source == "map",
        "total_size": metadata.total_size,
        "ledgers_map": sorted([name.ledger, size] for name, size in metadata.ledgers.items()),
        "file_size": file.stat().st_size,
        "scan_entries": len(records),
        "scan_crc32": crc32(b"".join(records)),
    }


def test_probes_of_limbo(tree: Any, tmp_path: Path) -> None:
    """In limbo what is there is served, and nothing is called absent; equal in both modes."""
    if not _has(tree, "probe"):
        pytest.skip("nothing is in limbo in this tree")
    done = 0
    for compat in ("bookkeeper", None):
        replay = Replay(tree.document, tmp_path / str(compat), compat)
        for kind, operation in replay.run():
            if kind == "probe":
                found = replay.probe(operation["ledger"], operation["entry"])

                assert found == {key: operation[key] for key in found}
                done += 1

    assert done
