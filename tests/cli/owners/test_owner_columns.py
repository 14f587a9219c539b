"""Owners beside the ids of ledgers: in `ledgers`, `check`, `diff` and `audit`, and in verdicts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bkstore import InvalidArgument
from bkstore.cli.main import main
from bkstore.cluster import open_metadata
from bkstore.cluster.audit import AuditOptions, Auditor
from bkstore.tables.commands import OWNER_COLUMNS
from tests.cli.owners.owned_bookies import (
    LEDGERS,
    TOPICS,
    Capsys,
    Copies,
    run_command,
)

OWNERS = {
    **TOPICS,
    3: "persistent://shop/orders/paid-partition-1, cursor billing",
    4: "schema shop/orders/paid",
    6: "distributedlog",
}
"""The owners for people; of 7 and 8 none is known."""

LOST = {4, 6, 5, 10, 11, 9}
"""Ledgers that lack replicas: on one bookie only, or on none."""


def test_columns_of_ledgers(copies: Copies, capsys: Capsys) -> None:
    """With metadata each row says whose ledger it is, all that is known; without, nothing."""
    rows, _ = run_command(capsys, "ledgers", copies.b1, "--metadata", copies.metadata)

    assert [number for number in LEDGERS if "1" in LEDGERS[number].bookies] == [
        row["ledger_id"] for row in rows
    ]
    by_id = {row["ledger_id"]: row for row in rows}

    assert {number: OWNERS.get(number) for number in by_id} == {
        number: row["owner"] for number, row in by_id.items()
    }
    names = ("application", "component", "tenant", "namespace", "topic", "partition", "cursor")
    partition_1 = "persistent://shop/orders/paid-partition-1"

    assert tuple(by_id[3][name] for name in names) == (
        *("pulsar", "managed-ledger", "shop", "shop/orders", partition_1, 1, "billing"),
    )
    assert ("pulsar", "schema", "shop/orders/paid") == tuple(
        by_id[4][name] for name in ("application", "component", "schema")
    )
    assert {None} == {by_id[number][name] for number in (7, 8) for name in names}
    rows, _ = run_command(capsys, "ledgers", copies.b1)

    assert not {"owner", *names} & {*rows[0]}


def test_the_screen_shows_the_owner(copies: Copies, capsys: Capsys) -> None:
    """Behind the id, while any is known."""
    assert 0 == main(["ledgers", str(copies.b1), "--metadata", str(copies.metadata)])
    lines = capsys.readouterr().out.splitlines()

    assert ["ledger_id", "owner"] == lines[1].split()[:2]
    assert ["1", TOPICS[1]] == lines[3].split()[:2]
    words = ["--columns", "ledger_id,tenant,cursor", "--ledger-scope-id", "0"]
    assert 0 == main(["ledgers", str(copies.b1), "--metadata", str(copies.metadata), *words])
    lines = capsys.readouterr().out.splitlines()

    assert ["3", "shop", "billing"] == lines[4].split()


def test_columns_need_metadata(copies: Copies, capsys: Capsys) -> None:
    """A column of owners without metadata is a usage error, not nulls."""
    for command in (["ledgers", copies.b1], ["check", copies.b1], ["diff", copies.b1, copies.b2]):
        with pytest.raises(SystemExit):
            main([*map(str, command), "--columns", "topic"])

        assert "argument --columns: topic requires --metadata" in capsys.readouterr().err


def test_audit_names_topics(copies: Copies, capsys: Capsys) -> None:
    """Each violation has its owner, and the verdict names the worst topic first: ledger 9 has no
    replica at all."""
    bookies = [f"b1={copies.b1}", f"b2={copies.b2}"]
    rows, err = run_command(capsys, "audit", copies.metadata, *bookies, code=1)

    assert LOST == {row["ledger_id"] for row in rows}
    assert all(OWNERS.get(row["ledger_id"]) == row["owner"] for row in rows)
    assert {"shop"} == {row["tenant"] for row in rows if row["ledger_id"] in (4, 5, 9, 10)}
    verdict = err.splitlines()[0]

    assert verdict == (
        "Replicas are missing of 6 of 10 ledgers (persistent://shop/orders/paid-partition-0 and "
        "3 others); at worst, entries without any replica"
    )


def test_audit_of_a_topic(copies: Copies, capsys: Capsys) -> None:
    """Only the ledgers of the topic are judged, and a topic without losses is clean; none chosen is
    no passed audit."""
    bookies = [f"b1={copies.b1}", f"b2={copies.b2}"]
    rows, err = run_command(capsys, "audit", copies.metadata, *bookies, "--tenant", "bank", code=1)

    assert [(11, "b2")] == [(row["ledger_id"], row["bookie"]) for row in rows]
    assert err.startswith("Replicas are missing of 1 of 1 ledger (persistent://bank/orders/paid);")
    topic = ["--topic", "*-partition-1"]
    rows, err = run_command(capsys, "audit", copies.metadata, *bookies, *topic)

    assert [] == rows
    assert err.startswith("Nothing is missing: 2 ledgers, 23 entries, 2 bookies")
    rows, err = run_command(capsys, "audit", copies.metadata, *bookies, "--topic", "none", code=3)

    assert [] == rows
    assert err.startswith("Nothing was judged: no ledger was chosen")
    assert err.endswith(f"no ledger in {copies.metadata} matches --topic none\n")


def test_resuming_another_choice(copies: Copies, tmp_path: Path, capsys: Capsys) -> None:
    """The file of an audit of some ledgers is refused for an audit of all."""

    class _Stop(Exception):
        pass

    def stop(done: int, _total: int) -> None:
        if done:
            raise _Stop

    resume = tmp_path / "resume"
    store = open_metadata(copies.metadata)
    ledgers = store.ledgers()[:3]
    auditor = Auditor(store, {}, options=AuditOptions(batch=1, rechecks=0), ledgers=ledgers)
    with pytest.raises(_Stop):
        auditor.run(progress=stop, resume=resume)

    assert 3 == auditor.run(resume=resume).ledgers
    with pytest.raises(_Stop):
        auditor.run(progress=stop, resume=resume)

    with pytest.raises(InvalidArgument, match="other parameters"):
        Auditor(store, {}, options=AuditOptions(batch=1, rechecks=0)).run(resume=resume)


def test_findings_of_check_name_owners(tmp_path: Path, copies: Copies, capsys: Capsys) -> None:
    """A row that leads nowhere says whose entry it was; in the lines of --coverage, too."""
    root = tmp_path / "b1"
    shutil.copytree(copies.b1, root)
    (log,) = (root / "ledgers/current").glob("*.log")
    log.unlink()
    words = ["check", root, "--metadata", copies.metadata]
    rows, _ = run_command(capsys, *words, code=1)
    lost = {row["ledger_id"]: row["owner"] for row in rows if row["ledger_id"] is not None}

    assert lost == {
        number: OWNERS.get(number) for number in LEDGERS if "1" in LEDGERS[number].bookies
    }
    _, err = run_command(capsys, *words, "--coverage", code=1)

    assert f"({OWNERS[3]})" in err


def test_findings_about_no_ledger_have_no_owner(
    tmp_path: Path, copies: Copies, capsys: Capsys
) -> None:
    """A finding about a file, beside those about ledgers."""
    root = tmp_path / "b1"
    shutil.copytree(copies.b1, root)
    (root / "ledgers/current/unknown-file").write_bytes(b"?")
    rows, _ = run_command(capsys, "check", root, "--metadata", copies.metadata, code=1)
    others = [row for row in rows if row["ledger_id"] is None]
    columns = [column.name for column in OWNER_COLUMNS]

    assert others
    assert {None} == {row[column] for row in others for column in columns}


def test_differences_name_owners(copies: Copies, capsys: Capsys) -> None:
    """A ledger that one side lacks, and whose it is."""
    words = ["diff", copies.b1, copies.b2, "--metadata", copies.metadata]
    rows, _ = run_command(capsys, *words, code=1)

    assert [(number, OWNERS.get(number)) for number in (4, 5, 6, 8, 10, 11)] == [
        (row["ledger_id"], row["owner"]) for row in rows
    ]
