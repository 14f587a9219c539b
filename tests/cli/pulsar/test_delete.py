"""`bkstore metadata delete`: a reviewed list, dry by default, repeatable, on a real ZooKeeper."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bkstore.cli.main import main
from bkstore.cli.pulsar.reviewed_list import read_leak_list
from bkstore.cluster import ZooKeeperStore
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.ids import LedgerId
from bkstore.pulsar.deletion import ListedLeak
from bkstore.testing.zookeeper_server import ZooKeeperServer
from tests.cluster.store.samples import new_uri
from tests.pulsar.samples import DAY, ledger, listed, managed_ledger, owned, topic_path

TREE = {topic_path("paid"): managed_ledger(1, listed(2, deleted=True), 9)}


@pytest.fixture
def running(zookeeper: ZooKeeperServer) -> Iterator[ZooKeeperStore]:
    """Yield the store of a cluster with a leak, an offloaded copy and a young ledger."""
    now = int(time.time() * 1000)
    with ZooKeeperStore.format(new_uri(zookeeper)) as store:
        for metadata in (
            ledger(1, owned()),
            ledger(2, owned()),
            ledger(3, owned(), now),
            ledger(4, owned("gone"), now - 2 * DAY),
            ledger(5, {}),
        ):
            store.create(metadata)
        root = store.uri.root.removesuffix("/ledgers")
        for path, value in TREE.items():
            store._connection.client.create(f"{root}{path}", value, makepath=True)
        yield store


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str], str]:
    """Return the exit code, the lines and the messages of metadata delete."""
    capsys.readouterr()
    code = main(["metadata", "delete", *words])
    out, err = capsys.readouterr()
    return code, out.splitlines(), err


def test_delete(
    running: ZooKeeperStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the list of leaks to the bytes given back: first nothing is deleted, then it is."""
    uri, file = str(running.uri), str(tmp_path / "leaks.csv")
    assert 1 == main(["leaks", uri, "--pause", "0", "-o", file])
    code, lines, err = run(capsys, uri, "--from", file)
    topic = "persistent://shop/orders/paid"
    expected = [
        "ledger 9: gone",
        "ledger 4: DONE: persistent://shop/orders/gone",
        f"ledger 2: DONE: {topic}",
        "ledger 5: kept: it is listed as unknown-owner",
    ]

    assert (1, [line.replace("DONE", "would be deleted") for line in expected]) == (code, lines)
    assert "2 would be deleted, 1 gone, 1 kept\nnothing was deleted: --apply deletes them\n" == err
    assert 5 == len(running.ledgers())
    assert "ledger 4: kept" in run(capsys, uri, "--from", file, "--grace", "3d")[1][1]
    code, lines, err = run(capsys, uri, "--from", file, "--apply")
    assert (1, [line.replace("DONE", "deleted") for line in expected]) == (code, lines)
    assert "2 deleted, 1 gone, 1 kept\n" == err
    assert [1, 3, 5] == [each.ledger for each in running.ledgers()]
    reviewed = tmp_path / "reviewed.csv"
    reviewed.write_text("".join(Path(file).read_text().splitlines(keepends=True)[:-1]))
    assert 0 == run(capsys, uri, "--from", str(reviewed), "--apply")[0]


def test_copies(
    running: ZooKeeperStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a copy of Pulsar's metadata nothing is deleted, and from a copy nothing can be."""
    uri, file, copy = str(running.uri), str(tmp_path / "l.json"), str(tmp_path / "copy.json")
    main(["metadata", "export", uri, "--pulsar", "-o", copy])
    main(["leaks", uri, "--pause", "0", "-o", file])
    code, _, err = run(capsys, uri, "--from", file, "--apply", "--pulsar", copy)
    assert (2, True) == (code, "by the metadata of a running Pulsar, not by a copy" in err)
    assert 1 == run(capsys, copy, "--from", file)[0]
    assert 2 == run(capsys, copy, "--from", file, "--apply")[0]
    assert 5 == len(running.ledgers())


ROW = {"class": "leaked", "scope_id": 0, "ledger_id": 7, "version": 3, "owner": "x"}
EXPECTED = [ListedLeak(LedgerId.of(7), "leaked", 3)]


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        ("csv", "owner,version,class,ledger_id,scope_id\nx,3,leaked,7,0\n"),
        ("csv", "class,scope_id,ledger_id,version\r\nleaked,0,7,3\r\n"),
        ("csv", "\ufeffclass,scope_id,ledger_id,version\nleaked,0, 7,3\n"),  # by a spreadsheet
        ("json", json.dumps([ROW])),
        ("jsonl", json.dumps(ROW) + "\n"),
    ],
)
def test_lists(tmp_path: Path, suffix: str, text: str) -> None:
    """A list in each form, with the needed columns in any order."""
    file = tmp_path / f"list.{suffix}"
    file.write_text(text, "utf-8")

    assert EXPECTED == read_leak_list(file)


def test_ids_of_lists(tmp_path: Path) -> None:
    """Ids are in two's complement, as tables have them; a dangling ledger has no version."""
    file = tmp_path / "list.csv"
    file.write_text("class,scope_id,ledger_id,version\ndangling,-1,-2,\n")

    assert [ListedLeak(LedgerId(2**64 - 1, 2**64 - 2), "dangling", None)] == read_leak_list(file)


@pytest.mark.parametrize(
    ("file_name", "content", "reason"),
    [
        ("l.csv", b"class,ledger_id\nleaked,7\n", "line 2 has no column scope_id"),
        (
            "l.csv",
            b"class,scope_id,ledger_id,version\nleaked,0,x,3\n",
            "line 2: ledger_id is not an int",
        ),
        ("l.csv", b"class,scope_id,ledger_id,version\nleaked,0\n", "line 2: ledger_id is not an"),
        *(
            (
                "l.csv",
                b"class,scope_id,ledger_id,version\nleaked,0,%s,3\n" % number,
                "not an integer",
            )
            for number in (b"1E+12", b"7.0", b"1_0", b"7 8", b"9" * 99)
        ),
        ("l.csv", b"class,scope_id,ledger_id,version\nleaked,0,7,3,4\n", "line 2 has more values"),
        (
            "l.csv",
            b"class,scope_id,ledger_id,version,ledger_id\n",
            "more than one column ledger_id",
        ),
        ("l.csv", b"class,scope_id,ledger_id,version\n" + b"x" * 200_000, "line 2: field larger"),
        *(
            ("l.json", json.dumps([{**ROW, column: value}]).encode(), f"{column} is not an integer")
            for column in ("ledger_id", "scope_id", "version")
            for value in (8.7, 8.0, True, [8])
        ),
        (
            "l.csv",
            b"class,scope_id,ledger_id,version\nleaked,0,\xff,3\n",
            "offset 42: is not UTF-8",
        ),
        ("l.csv", b"class\0", "NUL"),
        ("l.json", b"{}", "is not a list"),
        ("l.json", b"[3]", r"\[0\] is not an object"),
        ("l.jsonl", b"{}\n", "line 1 has no column class"),
        ("l.jsonl", b"{\n", "not JSON"),
    ],
)
def test_other_lists(tmp_path: Path, file_name: str, content: bytes, reason: str) -> None:
    """A list of another form is refused, with the file and the line."""
    file = tmp_path / file_name
    file.write_bytes(content)
    with pytest.raises(CorruptionError, match=reason) as caught:
        read_leak_list(file)

    assert str(file) == caught.value.file


def test_other_files(tmp_path: Path, capsys: pytest.CaptureFixture[Any]) -> None:
    """Another suffix is refused."""
    file = tmp_path / "l.txt"
    file.write_text("")
    with pytest.raises(InvalidArgument, match=r"not a \.csv"):
        read_leak_list(file)
    with pytest.raises(SystemExit):
        main(["metadata", "delete", "x"])
    assert "--from" in capsys.readouterr().err
