"""Analyses of dumps that were made from the real BookKeeper's directories, beside its answers."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bkstore import BookieDir
from bkstore.availability import Availability
from bkstore.cluster import MemoryStore
from bkstore.cluster.audit import AuditOptions, Auditor, DirectoryBookie, violations_table
from bkstore.formats.metadata.serialized import decode
from bkstore.ids import LedgerId
from bkstore.offline import analyses
from bkstore.offline.dump import DumpSource, dump
from tests.golden.data import GoldenTree, expand_runs
from tests.models.audit import segments, stores

pytest.importorskip("duckdb")


@pytest.fixture(scope="module")
def dumped(
    cluster: tuple[Path, Any], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, MemoryStore, Any, dict[str, Path]]:
    """Return (dump, metadata, document, directories) of a golden cluster."""
    folder, document = cluster
    paths = {path.name: path for path in sorted(folder.glob("bookie-*"))}
    out = tmp_path_factory.mktemp("dump") / "out"
    dump([DumpSource(path, name) for name, path in paths.items()], out)
    store = MemoryStore()
    for each in document["after"]["state"]["ledgers"]:
        store.create(decode(bytes.fromhex(each["metadata_hex"]), each["ledger"]))
    return out, store, document, paths


def test_violations_are_the_auditors(
    dumped: tuple[Path, MemoryStore, Any, dict[str, Path]],
) -> None:
    """Row for row, every column: what an audit of the directories themselves finds."""
    out, store, _, paths = dumped
    with ExitStack() as stack:
        bookies = {n: DirectoryBookie(stack.enter_context(BookieDir(p))) for n, p in paths.items()}
        report = Auditor(store, bookies, options=AuditOptions(rechecks=0)).run()
    expected = violations_table(report.violations).to_arrow()

    assert expected.num_rows
    assert expected.equals(analyses.run("violations", out, store))


def test_health_is_what_the_bookies_held(
    dumped: tuple[Path, MemoryStore, Any, dict[str, Path]],
) -> None:
    """Replicas due and missing of each ledger are those that `held` in the JSON implies."""
    out, store, document, _ = dumped
    expected = {}
    for each in document["after"]["state"]["ledgers"]:
        metadata = decode(bytes.fromhex(each["metadata_hex"]), each["ledger"])
        held = {name: set(expand_runs(said["held"])) for name, said in each["bookies"].items()}
        due = [
            (entry, name)
            for first, last, ensemble in (segments(metadata) if metadata.closed else [])
            for at, name in enumerate(ensemble)
            for entry in range(first, last + 1)
            if stores(entry, at, each["E"], each["W"])
        ]
        gone = sum(entry not in held[name] for entry, name in due)
        expected[each["ledger"]] = (len(due), gone) if metadata.closed else (None, None)
    rows = analyses.run("ledger_health", out, store).to_pylist()
    names = ("replicas_due", "replicas_missing")

    assert expected == {row["ledger_id"]: tuple(row[n] for n in names) for row in rows}


def test_a_bookie_that_was_not_dumped_has_lost_nothing(
    dumped: tuple[Path, MemoryStore, Any, dict[str, Path]], tmp_path: Path
) -> None:
    """Violations of the other bookies stay; none is of the one that is not in the dump."""
    out, store, _, paths = dumped
    absent = sorted(paths)[0]
    dump([DumpSource(p, name) for name, p in paths.items() if name != absent], tmp_path / "out")
    names = ("ledger_id", "first_entry", "bookie", "missing_entries")
    everything = analyses.run("violations", out, store).select(names).to_pylist()
    found = analyses.run("violations", tmp_path / "out", store).select(names).to_pylist()
    health = analyses.run("ledger_health", tmp_path / "out", store).to_pylist()

    assert [row for row in everything if row["bookie"] != absent] == found
    assert any(absent in (row["not_judged"] or "") for row in health)


def test_sequences_of_the_golden_trees(tree: GoldenTree, tmp_path: Path) -> None:
    """Each ledger's entries, ends and availability are those that the real bookie told."""
    dump([DumpSource(tree.root, "b")], tmp_path / "out")
    rows = analyses.run("sequences", tmp_path / "out").to_pylist()
    expected = {}
    for answer in tree.known:
        entries = expand_runs(answer["entries"])
        if entries:
            data = Availability.from_entries(entries).to_bytes()
            name = LedgerId.of(answer["ledger"]).qualified_name
            expected[name] = (len(entries), entries[0], entries[-1], len(answer["entries"]), data)
    columns = ("entries", "first_entry", "last_entry", "sequences", "availability")

    assert expected == {row["qualified_name"]: tuple(row[name] for name in columns) for row in rows}


def test_bytes_of_the_golden_trees(tree: GoldenTree, tmp_path: Path) -> None:
    """Entries by bookie, scope and ledger add up to what the real bookie listed."""
    dump([DumpSource(tree.root, "b")], tmp_path / "out")
    total = sum(answer["num_entries"] for answer in tree.known)
    (bookie,) = analyses.run("bytes_by_bookie", tmp_path / "out").to_pylist()
    by_ledger = analyses.run("bytes_by_ledger", tmp_path / "out").to_pylist()
    files = [path for path in tree.root.rglob("current/*.log") if "journal" not in str(path)]

    assert (len(tree.known), total) == (bookie["ledgers"], bookie["entries"])
    assert total == sum(row["replicas"] for row in by_ledger)
    assert sum(path.stat().st_size for path in files) == bookie["log_file_bytes"]
    assert bookie["record_bytes"] == sum(row["bytes"] for row in by_ledger)
    assert bookie["record_bytes"] == bookie["live_bytes"] + bookie["garbage_bytes"]
