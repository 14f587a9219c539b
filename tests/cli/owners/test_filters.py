"""Filters by owner: each command shows the ledgers of the topic, and says when there are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkstore.cli.main import main
from bkstore.cluster import DirectoryStore, open_metadata
from bkstore.offline.dump import dump
from tests.cli.owners.owned_bookies import (
    LEDGERS,
    Capsys,
    Copies,
    make_bookies,
    run_command,
)

FILTERS = {
    "--topic shop/orders/paid": {1, 2, 3, 4, 9, 10},
    "--topic shop/orders/paid --component managed-ledger": {1, 2, 3, 9},
    "--topic */paid-partition-1": {2, 3},
    "--topic persistent://shop/returns/refunds+eu": {5},
    "--topic paid": set(),
    "--namespace orders": {1, 2, 3, 4, 9, 10, 11},
    "--namespace shop/orders": {1, 2, 3, 4, 9, 10},
    "--tenant bank": {11},
    "--tenant *": {1, 2, 3, 4, 5, 9, 10, 11},
    "--component compacted-ledger": {10},
}
"""Filters, and the ledgers that they choose: those whose names match, by hand."""


def _on(bookies: str) -> set[int]:
    return {number for number, each in LEDGERS.items() if {*bookies} & {*each.bookies}}


@pytest.mark.parametrize("words", FILTERS)
def test_ledgers_of_owners(copies: Copies, capsys: Capsys, words: str) -> None:
    """`ledgers` of two bookies lists the chosen ones of each."""
    expected = [
        (bookie, number)
        for bookie in "12"
        for number in sorted(FILTERS[words])
        if bookie in LEDGERS[number].bookies
    ]
    args = ["ledgers", copies.b1, copies.b2, "--metadata", copies.metadata, *words.split()]
    rows, err = run_command(capsys, *args, code=0 if expected else 3)

    assert expected == [(row["bookie"][1], row["ledger_id"]) for row in rows]
    if not expected:
        assert f"no ledger in {copies.metadata} matches {words}\n" == err


def test_no_chosen_ledger_is_here(copies: Copies, capsys: Capsys) -> None:
    """Exit 3, and the reason: the topic has ledgers, but none on this bookie."""
    for command in (["ledgers"], ["availability"], ["readlog"], ["check"]):
        args = [*command, copies.b2, "--metadata", copies.metadata, "--tenant", "bank"]
        rows, err = run_command(capsys, *args, code=3)

        assert [] == rows
        assert f"not here: 1 ledger in {copies.metadata} that match --tenant bank" in err


def test_availability_of_a_topic(copies: Copies, capsys: Capsys) -> None:
    """A row for each ledger of the topic that is here, in their order."""
    args = ["availability", copies.b1, "--metadata", copies.metadata, "--topic", "shop/orders/paid"]
    rows, err = run_command(capsys, *args)

    assert [(number, LEDGERS[number].entries) for number in (1, 2, 3, 4)] == [
        (row["ledger_id"], row["entries"]) for row in rows
    ]
    assert "" == err


def test_records_of_a_topic(copies: Copies, capsys: Capsys) -> None:
    """`readlog` shows the records of the topic's ledgers, and of no others."""
    args = ["readlog", copies.b1, "--metadata", copies.metadata, "--topic", "*-partition-1"]
    rows, _ = run_command(capsys, *args)

    assert [(number, entry) for number in (2, 3) for entry in range(LEDGERS[number].entries)] == [
        (row["ledger_id"], row["entry_id"]) for row in rows
    ]


def test_entries_of_a_topic(copies: Copies, capsys: Capsys) -> None:
    """`readledger` reads all ledgers of the topic, one after the other, verified by the digests and
    passwords of the metadata; a topic without a ledger here is exit 3."""
    args = ["readledger", copies.b1, "--metadata", copies.metadata]
    rows, err = run_command(capsys, *args, "--topic", "shop/orders/paid")
    expected = [(each, entry) for each in (1, 2, 3, 4) for entry in range(LEDGERS[each].entries)]

    assert expected == [(row["ledger_id"], row["entry_id"]) for row in rows]
    assert {True} == {row["digest_ok"] for row in rows}
    assert "00" * LEDGERS[3].payload_bytes == rows[30]["payload"]
    assert "" == err
    rows, _ = run_command(capsys, *args, "--topic", "*-partition-?", "--first", "2", "--last", "2")

    assert [(1, 2), (2, 2), (3, 2)] == [(row["ledger_id"], row["entry_id"]) for row in rows]
    assert [] == run_command(capsys, *args, "--topic", "*refunds*", code=3)[0]
    assert [] == run_command(capsys, *args, "--topic", "nothing", code=3)[0]


def test_check_of_a_topic(copies: Copies, capsys: Capsys) -> None:
    """`check` looks at the rows, states and records of the chosen ledgers, on all bookies."""
    words = ["--topic", "shop/orders/paid", "--metadata", copies.metadata]
    _, err = run_command(capsys, "check", copies.b1, *words)

    assert err.startswith("checked 34 of 34 index rows, 4 states of 4 ledgers\n")
    args = ["check", copies.b1, copies.b2, "--metadata", copies.metadata, "--tenant", "bank"]
    _, err = run_command(capsys, *args)

    assert f"{copies.b2}: nothing was checked" in err
    assert "2 bookies: checked 1 of 1 index row, 1 state of 1 ledger" in err


def test_damage_of_a_topic_and_of_others(tmp_path: Path, capsys: Capsys, copies: Copies) -> None:
    """A check of a topic reports a flipped byte in a record of it, and none in another's."""
    (root, _) = make_bookies(tmp_path)
    (log,) = (root / "ledgers/current").glob("*.log")
    data = bytearray(log.read_bytes())
    args = ["readlog", root, "--metadata", copies.metadata, "--topic", "shop/orders/paid"]
    rows, _ = run_command(capsys, *args)
    last = rows[-1]
    data[last["position"] + last["bytes"] - 1] ^= 1
    log.write_bytes(data)
    digest = ["--digest-type", "CRC32C", "--metadata", copies.metadata]
    rows, _ = run_command(capsys, "check", root, *digest, "--topic", "shop/orders/paid", code=1)

    assert [(last["ledger_id"], last["entry_id"])] == [
        (row["ledger_id"], row["first_entry"]) for row in rows
    ]
    rows, _ = run_command(capsys, "check", root, *digest, "--topic", "*-partition-1")

    assert [] == rows


def test_differences_of_a_topic(tmp_path: Path, copies: Copies, capsys: Capsys) -> None:
    """`diff` compares the chosen ledgers of two bookies, directories or dumps, and no others."""
    dump(list(copies[:2]), tmp_path / "dump")
    of_dump = [tmp_path / "dump", tmp_path / "dump", "--bookie-a", "b1", "--bookie-b", "b2"]
    for sides in (list(copies[:2]), of_dump):
        words = ["diff", *sides, "--metadata", copies.metadata]
        rows, err = run_command(capsys, *words, "--topic", "shop/orders/paid", code=1)

        assert [(4, "a"), (10, "b")] == [(row["ledger_id"], row["only_in"]) for row in rows]
        assert "5 ledgers compared, 2 differ\n" == err
        rows, err = run_command(capsys, *words, "--topic", "*-partition-1")

        assert [] == rows
        assert "2 ledgers compared, 0 differ\n" == err
        _, err = run_command(capsys, *words, "--topic", "nothing", code=3)

        assert err.endswith(f"no ledger in {copies.metadata} matches --topic nothing\n")


def test_unindexed_records_of_others(tmp_path: Path, capsys: Capsys, copies: Copies) -> None:
    """Records that are in no row are findings of their own topic's check, and of no other's."""
    (root, _) = make_bookies(tmp_path)
    (index_file,) = (root / "ledgers/current").rglob("2.idx")
    data = bytearray(index_file.read_bytes())
    data[1024 + 8 * 4 : 1024 + 8 * 6] = bytes(16)  # the locations of entries 4 and 5
    index_file.write_bytes(data)
    args = ["check", root, "--metadata", copies.metadata, "--topic"]
    rows, _ = run_command(capsys, *args, "*-partition-1", code=1)

    assert [("unindexed", 2, 4, 5)] == [
        (row["kind"], row["ledger_id"], row["first_entry"], row["last_entry"]) for row in rows
    ]
    rows, _ = run_command(capsys, *args, "*-partition-0")

    assert [] == rows


@pytest.mark.parametrize(
    "command", ["ledgers", "check", "readlog", "readledger", "availability", "diff"]
)
def test_wrong_uses(copies: Copies, capsys: Capsys, command: str) -> None:
    """A filter needs metadata, and names no ledger beside it."""
    directories = [str(copies.b1), str(copies.b2)][: 2 if command == "diff" else 1]
    with pytest.raises(SystemExit) as exit_info:
        main([command, *directories, "--tenant", "shop"])

    assert 2 == exit_info.value.code
    assert "argument --tenant: requires --metadata METADATA" in capsys.readouterr().err
    if command == "ledgers":
        return
    for more in (["--ledger-id", "1"], ["--ledger-qualified-name", "0" * 31 + "1"]):
        words = ["--metadata", str(copies.metadata), "--tenant", "shop", *more]
        with pytest.raises(SystemExit):
            main([command, *directories, *words])

        assert "argument --tenant: not allowed with a ledger's id" in capsys.readouterr().err


def test_neither_ledger_nor_filter(copies: Copies, capsys: Capsys) -> None:
    """A command on some ledgers needs to know which; metadata alone choose none."""
    for more in ([], ["--metadata", str(copies.metadata)]):
        with pytest.raises(SystemExit):
            main(["availability", str(copies.b1), *more])

        assert "is required, or a filter such as --topic PATTERN" in capsys.readouterr().err


def test_metadata_that_cannot_be_read(tmp_path: Path, copies: Copies, capsys: Capsys) -> None:
    """Whether such a ledger matches is not known: it is told, and the exit code is 1."""
    store, source = DirectoryStore(tmp_path / "store"), open_metadata(copies.metadata)
    for _, versioned in source.read_many(source.ledgers()):
        store.create(versioned.metadata)
    (damaged,) = (tmp_path / "store").rglob("*L0002")
    damaged.write_bytes(b"damaged")
    args = ["ledgers", copies.b1, "--metadata", tmp_path / "store", "--topic", "*-partition-?"]
    rows, err = run_command(capsys, *args, code=1)

    assert [1, 3] == [row["ledger_id"] for row in rows]
    assert err.startswith(f"ledger 2: {damaged}")


def test_metadata_list_without_a_match(copies: Copies, capsys: Capsys) -> None:
    """`metadata list` with a filter that chooses nothing is exit 3, too."""
    rows, _ = run_command(capsys, "metadata", "list", copies.metadata, "--topic", "nothing", code=3)

    assert [] == rows
    rows, _ = run_command(capsys, "metadata", "list", copies.metadata, "--tenant", "", code=3)

    assert [] == rows
