"""`bkstore usage --by topic` and others: sums of owners, by hand, over several bookies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bkstore import LedgerStorage
from bkstore.cli.main import main
from tests.cli.owners.owned_bookies import (
    CODER,
    LEDGERS,
    RECORD_OVERHEAD,
    Capsys,
    Copies,
    make_metadata,
    run_command,
)

OWNERS: dict[str, dict[str | None, list[int]]] = {
    "topic": {
        "persistent://shop/orders/paid-partition-0": [1, 10],
        "persistent://shop/orders/paid-partition-1": [2, 3],
        "persistent://shop/orders/paid": [4],
        "persistent://shop/returns/refunds+eu": [5],
        "persistent://bank/orders/paid": [11],
        "distributedlog": [6],
        None: [7, 8],
    },
    "namespace": {
        "shop/orders": [1, 2, 3, 4, 10],
        "shop/returns": [5],
        "bank/orders": [11],
        "distributedlog": [6],
        None: [7, 8],
    },
    "tenant": {
        "shop": [1, 2, 3, 4, 5, 10],
        "bank": [11],
        "distributedlog": [6],
        None: [7, 8],
    },
    "component": {
        "managed-ledger": [1, 2, 3, 5, 11],
        "compacted-ledger": [10],
        "schema": [4],
        "distributedlog": [6],
        None: [7, 8],
    },
}
"""The ledgers on the bookies by owner. A schema belongs to its topic; 8 is not in the metadata, and
9 is on no bookie."""


def _bytes(numbers: list[int]) -> int:
    """Return the bytes of some ledgers' records, each counted for each bookie."""
    return sum(LEDGERS[number].record_bytes * len(LEDGERS[number].bookies) for number in numbers)


@pytest.mark.parametrize("by", OWNERS)
def test_sums_of_owners(copies: Copies, capsys: Capsys, by: str) -> None:
    """Ledgers and entries count once, replicas and bytes for each bookie. What is not in the
    metadata is garbage."""
    words = [copies.b1, copies.b2, "--by", by, "--metadata", copies.metadata]
    rows, err = run_command(capsys, "usage", *words)

    assert "" == err
    assert sorted((row["bytes"] for row in rows), reverse=True) == [row["bytes"] for row in rows]
    assert OWNERS[by].keys() == {row["owner"] for row in rows}
    assert len(OWNERS[by]) == len(rows)
    for row in rows:
        numbers = OWNERS[by][row["owner"]]
        ledgers = [LEDGERS[number] for number in numbers]
        listed = [each for each in ledgers if each.custom is not None]
        garbage = _bytes([number for number in numbers if LEDGERS[number].custom is None])

        assert len(numbers) == row["ledgers"]
        assert sum(each.entries for each in listed) == row["entries"]
        assert sum(each.entries * len(each.bookies) for each in ledgers) == row["replicas"]
        assert len({bookie for each in ledgers for bookie in each.bookies}) == row["bookies"]
        assert _bytes(numbers) == row["bytes"]
        assert (row["bytes"] - garbage, garbage) == (row["live_bytes"], row["garbage_bytes"])
        assert row["bookies"] == row["logs"]


def test_the_total(copies: Copies, capsys: Capsys) -> None:
    """The screen has a total of what is shown; one row needs none."""
    words = ["usage", copies.b1, copies.b2, "--by", "tenant", "--metadata", copies.metadata]
    assert 0 == main([*map(str, words), "--bytes", "--columns", "owner,ledgers,bytes,logs"])
    lines = capsys.readouterr().out.splitlines()
    numbers = [number for number in LEDGERS if number != 9]

    assert ["total", "10", str(_bytes(numbers)), "2"] == lines[-1].split()
    words += ["--topic", "shop/orders/*", "--columns", "owner,ledgers,bytes"]
    assert 0 == main([*map(str, words), "--bytes"])
    lines = capsys.readouterr().out.splitlines()

    assert [["shop", "5", str(_bytes([1, 2, 3, 4, 10]))]] == [line.split() for line in lines[2:]]


def test_bookies_in_processes(copies: Copies, capsys: Capsys) -> None:
    """Two processes give the same sums."""
    words = [copies.b1, copies.b2, "--by", "topic", "--metadata", copies.metadata]

    assert run_command(capsys, "usage", *words, "--jobs", "2") == run_command(
        capsys, "usage", *words, "--jobs", "1"
    )


def test_rows_of_chosen_ledgers(copies: Copies, capsys: Capsys) -> None:
    """--by ledger has owners as columns, and only chosen ledgers with a filter."""
    words = [copies.b1, "--by", "ledger", "--metadata", copies.metadata]
    rows, _ = run_command(capsys, "usage", *words)
    owners = {row["ledger_id"]: (row["topic"], row["live"]) for row in rows}

    assert [1, 2, 3, 4, 6, 7, 8, 11] == list(owners)
    assert ("persistent://bank/orders/paid", True) == owners[11]
    assert ((None, True), (None, False)) == (owners[7], owners[8])
    rows, _ = run_command(capsys, "usage", *words, "--topic", "shop/orders/paid")

    assert [1, 2, 3, 4] == [row["ledger_id"] for row in rows]
    rows, err = run_command(capsys, "usage", *words, "--topic", "*refunds*", code=3)

    assert [] == rows
    assert f"not here: 1 ledger in {copies.metadata} that match --topic '*refunds*'\n" == err
    by_topic = [copies.b1, "--by", "topic", "--metadata", copies.metadata, "--topic", "*refunds*"]

    assert [] == run_command(capsys, "usage", *by_topic, code=3)[0]


@pytest.mark.parametrize("kind", ["interleaved", "db"])
def test_what_deleting_frees(tmp_path: Path, capsys: Capsys, kind: Any) -> None:
    """Log 0 has 8 records of ledger 1 and 2 of ledger 5, log 1 only ledger 1, log 2 both 5 and 11,
    and 8 records of ledger 8, which is not in the metadata.

    Without 5 (refunds) log 0 stays, 8 of 10 live; log 2 would be compacted to the record of 11.
    Without 1 (paid-partition-0) log 0 is compacted and log 1 removed.
    """
    record = RECORD_OVERHEAD + 100
    for log in ({1: 8, 5: 2}, {1: 4}, {5: 3, 11: 1, 8: 8}):
        with LedgerStorage.open(tmp_path / "b1/ledgers", kind) as storage:
            for number, count in log.items():
                records = CODER.encode_many(number, range(count), [bytes(100)] * count)
                storage.add_entries(records, master_key=b"k" * 20)
    files = [(tmp_path / f"b1/ledgers/current/{log}.log").stat().st_size for log in (0, 1, 2)]
    metadata = make_metadata(tmp_path / "metadata.json")
    words = [tmp_path / "b1", "--by", "topic", "--metadata", metadata, "--pinned", "0.5"]
    rows, _ = run_command(capsys, "usage", *words, "--threshold", "0.8")
    by_owner = {row["owner"]: row for row in rows}
    # Log 2 is compacted anyway: 4 of 12 live. It is pinned, too.
    paid = by_owner["persistent://shop/orders/paid-partition-0"]

    assert files[0] - 2 * record + files[1] == paid["freed_bytes"]
    assert files[1] == paid["removable_bytes"]
    assert (2, 0, 0) == (paid["logs"], paid["pinned_logs"], paid["pinned_bytes"])
    refunds = by_owner["persistent://shop/returns/refunds+eu"]

    assert 3 * record == refunds["freed_bytes"]
    assert 0 == refunds["removable_bytes"]
    assert (2, 1, files[2]) == (refunds["logs"], refunds["pinned_logs"], refunds["pinned_bytes"])
    bank = by_owner["persistent://bank/orders/paid"]

    assert (record, 0, 1) == (bank["freed_bytes"], bank["removable_bytes"], bank["logs"])
    unknown = by_owner[None]

    assert (0, 8 * record, 0, 0, 0) == tuple(
        unknown[name]
        for name in ("freed_bytes", "garbage_bytes", "logs", "pinned_logs", "pinned_bytes")
    )
    # With a smaller threshold log 0 stays without 1, though only 2 of 10 records are live.
    rows, _ = run_command(
        capsys, "usage", *words, "--threshold", "0.2", "--topic", "*/paid-partition-0"
    )

    assert [(files[1], files[1])] == [(row["freed_bytes"], row["removable_bytes"]) for row in rows]
    # Even if nothing is compacted, a log without a live ledger is removed.
    rows, _ = run_command(
        capsys, "usage", *words, "--threshold", "0", "--topic", "*/paid-partition-0"
    )

    assert [(files[1], files[1])] == [(row["freed_bytes"], row["removable_bytes"]) for row in rows]


def test_wrong_uses(copies: Copies, capsys: Capsys) -> None:
    """Owners need metadata; rows that are of no ledger or owner cannot be filtered."""
    for words, reason in (
        (["--by", "topic"], "argument --by: topic requires --metadata METADATA"),
        (["--topic", "x"], "argument --topic: requires --metadata METADATA"),
        (
            ["--topic", "x", "--metadata", str(copies.metadata)],
            "argument --by: with filters by owner, one of topic, namespace, tenant, component",
        ),
    ):
        with pytest.raises(SystemExit):
            main(["usage", str(copies.b1), *words])

        assert reason in capsys.readouterr().err
