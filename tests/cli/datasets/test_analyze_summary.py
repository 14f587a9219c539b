"""The lines of `bkstore analyze`: what is added up, and which of them are findings."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bkstore.cli.datasets.analyze_summary import SummaryLine, summarize

pa = pytest.importorskip("pyarrow")


def _line(name: str, *, metadata: Any = None, unread: Any = (), **columns: Any) -> SummaryLine:
    inputs: Any = SimpleNamespace(
        metadata=metadata,
        dump=SimpleNamespace(unread_bookies=unread),
        other=None,
        options=SimpleNamespace(pinned=0.2),
    )
    return summarize(name, pa.table(columns), inputs)


def test_holes() -> None:
    """Entries that are missing between others are a finding only where no metadata say better."""
    columns: dict[str, list[Any]] = {"qualified_name": ["a", "a", "b"], "holes": [2, 3, 4]}
    alone, judged = _line("holes", **columns), _line("holes", metadata=object(), **columns)

    assert SummaryLine("holes", 3, True, "2 ledgers, 9 entries between first and last") == alone
    assert alone._replace(finding=False) == judged
    nothing = pa.array([], pa.string()), pa.array([], pa.int64())
    assert not _line("holes", qualified_name=nothing[0], holes=nothing[1]).finding


@pytest.mark.parametrize(
    ("unread", "damage", "finding", "more"),
    [
        ((), [0, 0, 0], False, ""),
        ((), [0, 2, 1], True, "; 3 findings of damage"),
        (("b4",), [0, 0, 0], True, "; 1 bookie not read"),
        (("b4",), [0, 1, 0], True, "; 1 bookie not read; 1 finding of damage"),
    ],
)
def test_bookies(unread: Any, damage: list[int], finding: bool, more: str) -> None:
    """Damage is a finding, and so is a bookie that was not read, which is none of those read."""
    line = _line(
        "bytes_by_bookie",
        unread=unread,
        damage=damage,
        entries=[1000, 200, 34],
        log_file_bytes=[1, 2, 3],
    )
    read = "2 bookies" if unread else "3 bookies"
    says = f"{read}, 1,234 entries; 6 bytes of entry logs{more}"

    assert (finding, says) == (line.finding, line.text)


def test_health() -> None:
    """Ledgers that were judged, those in part among them, and why others were not; metadata that
    cannot be used are a finding."""
    bad = "its metadata contradict themselves"
    reasons = [None, "x", "open", "open", "underreplicated", "in_recovery"]
    due = [3, 3, None, None, None, None]
    fine = _line("ledger_health", replicas_due=due, not_judged=reasons)
    broken = _line("ledger_health", replicas_due=[*due, None], not_judged=[*reasons, bad])
    says = "2 ledgers judged; 1 of them in part; 2 open; 1 in_recovery; 1 underreplicated"

    assert (False, says) == (fine.finding, fine.text)
    assert (True, f"{says}; 1 with metadata that cannot be used") == (broken.finding, broken.text)


def test_violations() -> None:
    """A ledger counts once, the worst category first; missing replicas are added up."""
    names = ["no_replica", "below_write_quorum", "below_ack_quorum"]
    line = _line(
        "violations",
        qualified_name=["a", "b", "b", "c"],
        category=[names[1], names[0], names[0], names[2]],
        missing_entries=[1, 2, 3, 4],
    )

    assert line.finding
    assert (
        "no_replica: 1 ledger; below_ack_quorum: 1 ledger; below_write_quorum: 1 ledger; "
        "10 replicas missing" == line.text
    )


def test_owners() -> None:
    """The owner that lost or has most is named, of equal losses the one that lacks most."""
    columns: dict[str, list[Any]] = {
        "owner": ["persistent://a/b/c", "persistent://a/b/d", None],
        "lost_entries": [77, 77, 0],
        "replicas_missing": [90, 1200, 2],
    }
    worst = _line("violations_by_owner", **columns)
    missing = _line(
        "violations_by_owner",
        **{name: column[2:] for name, column in columns.items() if name != "owner"},
        owner=pa.array([None], pa.string()),
    )
    sizes = _line("bytes_by_owner", owner=["a", "b"], bytes=[1000, 2000])
    nothing = {name: pa.array([], pa.int64()) for name in columns}

    assert (True, 3) == (worst.finding, worst.rows)
    assert (
        "persistent://a/b/d: 77 entries lost, 1,200 replicas missing; 2 other owners lack replicas"
    ) == worst.text
    assert "unknown owner: 2 replicas missing" == missing.text
    assert SummaryLine("violations_by_owner", 0, False, "none") == _line(
        "violations_by_owner", **nothing
    )
    assert "2 owners, 3,000 bytes of records; most: b, 2,000 bytes" == sizes.text
    empty = {"owner": pa.array([], pa.string()), "bytes": pa.array([], pa.int64())}
    assert "0 owners, 0 bytes of records" == _line("bytes_by_owner", **empty).text
