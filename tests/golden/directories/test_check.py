"""`Check` finds nothing wrong in what the real classes wrote, and accounts for all of it."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import Any

from bkstore import BookieDir
from bkstore.offline.check import Check, CheckFinding, Coverage
from tests.golden.data import expand_runs

Run = tuple[int, int]


def _check(top: Path) -> tuple[list[CheckFinding], Coverage]:
    with BookieDir(top) as bookie:
        checking = Check(bookie, "CRC32C")
        return list(checking), checking.coverage


def _entry_ids(finding: CheckFinding) -> set[int]:
    """Return the entries that one finding is about: its set, or all from its first to its last."""
    if finding.entry_set is not None:
        return {*finding.entry_set}
    assert finding.first_entry is not None
    assert finding.last_entry is not None
    return {*range(finding.first_entry, finding.last_entry + 1)}


def _entries(found: list[CheckFinding], kind: str) -> dict[int, set[int]]:
    """Return the entries that findings of a kind are about, by ledger."""
    entries: dict[int, set[int]] = defaultdict(set)
    for each in found:
        if each.kind == kind and each.ledger is not None:
            stored = _entry_ids(each)
            assert (min(stored), max(stored)) == (each.first_entry, each.last_entry)
            assert len(stored) == each.entries
            entries[each.ledger.ledger] |= stored
    return dict(entries)


def _bytes(top: Path) -> dict[str, bytes]:
    """Return every file of a tree."""
    paths = [Path(folder) / name for folder, _, names in os.walk(top) for name in names]
    return {str(path): path.read_bytes() for path in paths}


def test_trees(tree: Any) -> None:
    """No damage in any tree; odd is only what was not flushed, or deleted and made again."""
    found, _ = _check(tree.root)
    listed = {each["ledger"]: expand_runs(each["entries"]) for each in tree.known}
    missed = {**_entries(found, "unindexed"), **_entries(found, "unflushed")}

    assert set() == {each.kind for each in found} - {"unindexed", "unflushed", "unknown-ledger"}
    assert [] == [str(each) for each in found if each.severity == "damage"]
    if "unindexed" in {each.kind for each in found}:
        assert "db_deleted" == tree.document["tree"]
    if "unflushed" in {each.kind for each in found}:
        assert "interleaved_main" == tree.document["tree"]
    for ledger, entries in missed.items():
        assert set() == entries & set(listed[ledger])


def test_coverage_of_trees(tree: Any) -> None:
    """Every row is held against its log, every record read, no byte of a log is left over."""
    _, seen = _check(tree.root)
    with BookieDir(tree.root) as bookie:
        rows = sum(rows.entry_id.size for rows in bookie.scan())
        ledgers, files = len(bookie.index.ledgers()), bookie.entry_logs
    parts = ("indexed", "copies", "unindexed", "garbage")

    assert (rows, rows, rows) == (seen.rows, seen.rows_checked, seen.total("indexed"))
    assert rows == seen.total("digests")
    assert (ledgers, ledgers) == (seen.states, seen.ledgers)
    assert [log.path for log in files] == [log.file for log in seen.logs]
    assert seen.total("records") == sum(seen.total(part) for part in parts)
    assert 0 == seen.total("unaccounted_bytes")
    for log in seen.logs:
        told = (log.header_bytes, log.record_bytes, log.map_bytes, log.padding_bytes)
        assert os.path.getsize(log.file) == log.bytes == sum(told)


def test_logs_of_trees(tree: Any) -> None:
    """Records and their bytes in each log are those that the real scanner met."""
    _, seen = _check(tree.root)
    logs = {log.log_id: log for log in seen.logs}
    for answer in tree.last["entry_logs"]:
        log = logs[answer["log_id"]]

        assert answer["scan_entries"] == log.records
        assert answer["total_size"] == log.record_bytes
        if answer["has_ledgers_map"] is not None:
            assert answer["has_ledgers_map"] == (log.map_bytes > 0)


def test_clusters(cluster: tuple[Path, Any]) -> None:
    """What was removed from the bookies' indexes is found, entry by entry, and nothing else."""
    folder, document = cluster
    for name in document["bookies"]:
        found, seen = _check(folder / name)
        removed: dict[int, set[int]] = defaultdict(set)
        gone = set()
        for violation in document["violations"]:
            if violation["bookie"] != name:
                continue
            if violation["kind"] == "ledger_removed":
                gone.add(violation["ledger"])
            else:
                removed[violation["ledger"]] |= {*violation["entries"]}

        assert removed == _entries(found, "unindexed")
        assert gone == {each.ledger.ledger for each in found if each.kind == "unknown-ledger"}  # type: ignore[union-attr]
        assert {"unindexed", "unknown-ledger"} >= {each.kind for each in found}
        assert 0 == seen.total("unaccounted_bytes")


def test_journals(journal: tuple[Path, Any]) -> None:
    """A bookie copied while it ran: its journals are read whole, and nothing contradicts them."""
    folder, document = journal
    found, seen = _check(folder)

    assert [] == [str(each) for each in found]
    assert seen.journal_records == sum(len(each["records"]) for each in document["journal_files"])


def test_nothing_is_written(tree: Any) -> None:
    """The bytes of every file are what they were."""
    before = _bytes(tree.root)
    _check(tree.root)

    assert before == _bytes(tree.root)
