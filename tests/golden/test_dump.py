"""Dumps of directories written by the real BookKeeper: every table against its own answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bkstore import Availability
from bkstore.offline.dump import DumpResult, dump
from tests.worlds.dumps import rows

pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def dumped(tree: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, DumpResult]:
    """Return a dump of the tree with lengths, in small pieces, and what it told."""
    out = tmp_path_factory.mktemp("dumped") / "out"
    return out, dump([tree.root], out, length=True, piece_rows=700)


def test_entries(tree: Any, dumped: tuple[Path, DumpResult], reader: Any) -> None:
    """`entries` has each stored entry once, with location and length where the bookie told."""
    out, result = dumped
    expected = {
        (0, answer["ledger"], entry)
        for answer in tree.known
        for entry in reader.expand_runs(answer["entries"])
    }
    told = {
        (0, answer["ledger"], entry): (location, length)
        for answer in tree.known
        for entry, location, length, _ in answer["locations"]
    }
    found = {row[2:5]: ((row[5] << 32) + row[6], row[7]) for row in rows(out, "entries")}

    assert len(expected) == result.rows["entries"] == len(rows(out, "entries"))
    assert expected == set(found)
    assert told == {key: found[key] for key in told}
    assert not [row for row in rows(out, "entries") if row[7] is None]


def test_groups(tree: Any, dumped: tuple[Path, DumpResult]) -> None:
    """`groups` is the availability whose bytes the real class serialized."""
    found: dict[int, list[int]] = {}
    for _, _, ledger, first, last, size, period in rows(dumped[0], "groups"):
        for start in range(first, last + 1, period or 1):
            found.setdefault(ledger, []).extend(range(start, start + size))
    for answer in tree.known:
        here = Availability.from_entries(found.get(answer["ledger"], []))

        assert answer["availability_total"] == len(here)
        assert answer["availability_len"] == len(here.to_bytes("bookkeeper"))
        if "availability_hex" in answer:
            assert answer["availability_hex"] == here.to_bytes("bookkeeper").hex()


def test_ledgers(tree: Any, dumped: tuple[Path, DumpResult], reader: Any) -> None:
    """`ledgers` has the active ledgers, their counts, and the states that the bookie told."""
    found = {row[2]: row for row in rows(dumped[0], "ledgers")}

    assert sorted(tree.last["active_ledgers"]) == sorted(found)
    for answer in tree.known:
        row = found[answer["ledger"]]
        entries = reader.expand_runs(answer["entries"])
        first, last = (entries[0], entries[-1]) if entries else (None, None)
        lac = None if row[9] is None else row[9].hex()
        names = ("fenced", "limbo", "explicit_lac_hex", "master_key_hex")
        got = dict(zip(names, (row[7], row[8], lac, row[10].hex())))
        told = {key for key in got if key in answer and not reader.refused(answer[key])}

        assert (len(entries), first, last) == row[4:7]
        assert {key: answer[key] for key in told} == {key: got[key] for key in told}
        assert tree.layout == row[11]


def test_logs(tree: Any, dumped: tuple[Path, DumpResult]) -> None:
    """`entry_logs` and `log_ledgers` are what the real logger says of its logs."""
    told = [log for log in tree.last.get("entry_logs", []) if "ledgers_map" in log]
    if not told:
        pytest.skip("the bookie told nothing of its logs")
    logs = {row[1:3]: row[3:] for row in rows(dumped[0], "entry_logs")}
    held: dict[tuple[int, int], list[list[int]]] = {}
    for _, number, log_id, scope, ledger, size in rows(dumped[0], "log_ledgers"):
        assert 0 == scope
        held.setdefault((number, log_id), []).append([ledger, size])
    for log in told:
        # Index files: log ids are one sequence over the directories, which are not told.
        at, log_id = log.get("dir_index"), log["log_id"]
        (key,) = [key for key in logs if key[1] == log_id and at in (None, key[0])]
        expected = sorted(log["ledgers_map"])
        name, size, closed, ledgers = logs[key]

        assert (Path(log["file"]).name, log["file_size"], len(expected)) == (name, size, ledgers)
        assert log["has_ledgers_map"] in (None, closed)  # None: the direct logger does not say
        assert expected == held.get(key, [])


def test_cluster(cluster: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """The bookies of a cluster in one dataset: each has just the entries that it really held."""
    root, document = cluster
    dump([root / bookie_id for bookie_id in document["bookies"]], tmp_path / "out")
    found: dict[tuple[str, int], list[int]] = {}
    for row in rows(tmp_path / "out", "entries"):
        found.setdefault((row[0], row[3]), []).append(row[4])
    expected = {
        (bookie_id, ledger["ledger"]): [
            entry
            for first, last in ledger["bookies"][bookie_id]["held"]
            for entry in range(first, last + 1)
        ]
        for bookie_id in document["bookies"]
        for ledger in document["after"]["state"]["ledgers"]
    }

    assert {key: ids for key, ids in expected.items() if ids} == found
