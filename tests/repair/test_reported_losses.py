"""Plans from the output of an audit: the same rows, and errors for anything else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bkstore.availability import Availability
from bkstore.cluster import Cluster, DirectoryStore
from bkstore.cluster.audit import AuditOptions, Auditor
from bkstore.errors import CorruptionError
from bkstore.repair import RepairPlanner, read_violations


@pytest.fixture
def lossy(bkstore_cluster: Any) -> Cluster:
    """Return four bookies: one has lost entries of a ledger, one is gone."""
    made: Cluster = bkstore_cluster(4)
    with made.create_ledger(3, 2, 2) as ledger:
        ledger.append_many(b"payload %d" % number for number in range(9))
    ensemble = ledger.metadata.segments[0].ensemble
    made.lose(ensemble[0], ledger.ledger, [0, 3])
    made.crash(ensemble[2])
    return made


def _write_rows(path: Path, violations: Any) -> Path:
    """Write violations as `bkstore audit -o` does."""
    rows = [dict(zip(_COLUMNS, violation.row())) for violation in violations]
    if path.suffix == ".jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    else:
        path.write_text(json.dumps(rows))
    return path


_COLUMNS = (
    *("category", "scope_id", "ledger_id", "qualified_name", "first_entry", "bookie"),
    *("missing_entries", "first_missing", "last_missing", "missing", "missing_groups", "detail"),
)


@pytest.mark.parametrize("name", ["audit.json", "audit.jsonl"])
def test_the_plan_of_a_report_is_that_of_an_audit(
    lossy: Cluster, tmp_path: Path, name: str
) -> None:
    """A report on a running cluster leads to the rows that asking the bookies does."""
    audit = Auditor(lossy.store, lossy.bookies, options=AuditOptions(rechecks=0)).run()
    path = _write_rows(tmp_path / name, audit.violations)
    planner = RepairPlanner(lossy.store, lossy.bookies)
    plan = planner.plan_reported(read_violations(path))

    assert audit.violations == read_violations(path)
    assert planner.plan().repairs == plan.repairs
    assert {"write", "replace"} == {repair.action for repair in plan.repairs}


def test_several_rows_about_one_bookie_count_together(lossy: Cluster) -> None:
    """Reports of several audits were joined, each of which has seen a part."""
    audit = Auditor(lossy.store, lossy.bookies, options=AuditOptions(rechecks=0)).run()
    parts = [
        violation._replace(missing=Availability.from_entries([entry]))
        for violation in audit.violations
        if violation.missing is not None
        for entry in violation.missing
    ]
    planner = RepairPlanner(lossy.store, lossy.bookies)

    assert len(parts) == 2
    assert planner.plan_reported(parts).repairs == planner.plan().repairs


def test_a_row_about_a_bookie_alone(lossy: Cluster) -> None:
    """It stands for every ledger that names the bookie."""
    audited = dict(lossy.bookies.items())
    (gone,) = set(audited) - set(lossy.store.registered_bookies() or ())
    del audited[gone]  # unknown to the audit: one row for all its ledgers
    report = Auditor(lossy.store, audited, options=AuditOptions(rechecks=0)).run()
    alone = [violation for violation in report.violations if violation.ledger is None]
    plan = RepairPlanner(lossy.store, audited).plan_reported(alone)

    assert [gone] == [violation.bookie for violation in alone]
    assert {("replace", gone)} == {(each.action, each.bookie) for each in plan.repairs}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{}", "it is no list of rows"),
        ("[3]", "row 1 is not one of an audit"),
        ('[{"category": "no_replica"}]', "row 1 is not one of an audit: no column 'ledger_id'"),
        ('[{"category": "gone", "ledger_id": 1, "scope_id": 0}]', "unknown category 'gone'"),
        ("[", "not JSON"),
    ],
)
def test_other_files(tmp_path: Path, text: str, reason: str) -> None:
    """A file that is no audit's output is damage, with the row."""
    path = tmp_path / "audit.json"
    path.write_text(text)
    with pytest.raises(CorruptionError, match=r"audit\.json") as raised:
        read_violations(path)
    assert reason in str(raised.value)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("ledger_id", "seven"),
        ("first_entry", "0"),
        ("bookie", 3),
        ("missing_groups", [[0, 1]]),
        ("missing_groups", [[5, 3, 1, 1]]),
        ("scope_id", None),
    ],
)
def test_wrong_cells(lossy: Cluster, tmp_path: Path, column: str, value: Any) -> None:
    """So is a cell of another type, or with groups that contradict themselves."""
    audit = Auditor(lossy.store, lossy.bookies, options=AuditOptions(rechecks=0)).run()
    path = _write_rows(tmp_path / "audit.json", audit.violations)
    rows = json.loads(path.read_text())
    rows[0][column] = value
    path.write_text(json.dumps(rows))
    with pytest.raises(CorruptionError, match="row 1 is not one of an audit"):
        read_violations(path)


def test_damaged_metadata(lossy: Cluster, tmp_path: Path) -> None:
    """A ledger of the report whose metadata cannot be read is named, and the plan is not clean."""
    audit = Auditor(lossy.store, lossy.bookies, options=AuditOptions(rechecks=0)).run()
    path = _write_rows(tmp_path / "audit.json", audit.violations)
    folder = DirectoryStore(tmp_path / "store")
    (ledger,) = lossy.store.ledgers()
    folder.create(lossy.store.read(ledger).metadata)
    for name in lossy.bookies:
        folder.register_bookie(name)
    damaged = [each for each in (tmp_path / "store").rglob("*") if b"bookie-1" in _bytes(each)]
    assert damaged
    for each in damaged:
        each.write_bytes(_bytes(each).replace(b"bookie-1", b"\xff" * 8))
    plan = RepairPlanner(folder, lossy.bookies).plan_reported(read_violations(path))

    assert [] == plan.repairs
    assert not plan.is_clean
    assert [ledger] == [*plan.unreadable]
    assert "its metadata cannot be read: " in plan.summary()[1]


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""
