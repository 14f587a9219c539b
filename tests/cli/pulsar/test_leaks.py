"""`bkstore leaks`: rows, counts, exit codes, from files, folders and ZooKeeper."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bkstore import LedgerStorage
from bkstore.cli.main import main
from bkstore.cli.pulsar import leaks
from bkstore.cli.pulsar.durations import parse_duration, parse_time
from bkstore.cluster import ZooKeeperStore, open_metadata, snapshot
from bkstore.formats.metadata.json_file import encode_file
from bkstore.offline.dump import dump
from bkstore.pulsar import MemoryNodes
from bkstore.pulsar.sources.exports import encode_nodes, read_all_nodes
from bkstore.testing.zookeeper_server import ZooKeeperServer
from tests.cluster.store.samples import new_uri
from tests.pulsar.samples import (
    NOW,
    YOUNG,
    cursor,
    ledger,
    listed,
    managed_ledger,
    node_values,
    owned,
    schema_of,
    store_of,
    topic_path,
)

STORED = [
    ledger(1, owned()),
    ledger(2, owned()),
    ledger(3, owned(), YOUNG),
    ledger(4, owned(cursor_name="gone")),
    ledger(5, {"application": b"distributedlog"}),
    ledger(6, owned("other")),
    ledger(7, schema_of("old")),
]
TREE = {
    topic_path("paid"): managed_ledger(1, listed(2, deleted=True), 9),
    topic_path("paid", "sub"): cursor(-1),
    topic_path("other"): managed_ledger(6),
}
CLASSES = {
    9: "dangling",
    4: "leaked",
    7: "leaked",
    2: "offloaded-copy",
    5: "unknown-owner",
    3: "unreferenced-young",
    1: "referenced",
    6: "referenced",
}


def write_file(path: Path, tree: dict[str, Any], stored: Any = STORED) -> str:
    """Write a metadata file with Pulsar's nodes, read at NOW, and return its path."""
    nodes = encode_nodes(read_all_nodes(MemoryNodes(node_values(tree))), NOW, True)
    path.write_bytes(encode_file(snapshot(store_of(stored)), other_parts={"pulsar": nodes}))
    return str(path)


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Return the path of a metadata file."""
    return write_file(tmp_path / "metadata.json", TREE)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[Any], str]:
    """Return the exit code of leaks, its rows and what it says."""
    capsys.readouterr()
    code = main(["leaks", *words, "--format", "jsonl"])
    out, err = capsys.readouterr()
    return code, [json.loads(line) for line in out.splitlines()], err


def test_rows(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A row for each ledger that is not as it should be, the worst first; all on request."""
    code, rows, err = run(capsys, file)

    assert 1 == code
    shown = {ledger: CLASSES[ledger] for ledger in (9, 4, 7, 2, 5)}
    assert list(shown.items()) == [(row["ledger_id"], row["class"]) for row in rows]
    topic = "persistent://shop/orders/paid"
    assert [topic, f"{topic}, cursor gone", "schema shop/orders/old", topic, "distributedlog"] == [
        row["owner"] for row in rows
    ]
    assert ("CLOSED", 1000, 10.0, 0, topic, "gone") == tuple(
        rows[1][name] for name in ("state", "length", "age_days", "version", "topic", "cursor")
    )
    assert (None, None, None) == tuple(rows[0][name] for name in ("state", "ctime", "version"))
    assert (
        "1 dangling, 2 leaked, 1 offloaded and still here, 1 of unknown owner, "
        "1 unreferenced, but young, 2 referenced\n"
    ) == err
    every = run(capsys, file, "--all")[1]
    assert list(CLASSES.items()) == [(row["ledger_id"], row["class"]) for row in every]


def test_choices(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Filters choose the rows, and what the exit code is about; ages count from the copy."""
    assert (0, []) == run(capsys, file, "--topic", "shop/orders/other")[:2]
    code, rows, _ = run(capsys, file, "--component", "schema")
    assert (1, [7]) == (code, [row["ledger_id"] for row in rows])
    assert 3 == run(capsys, file, "--tenant", "nobody")[0]
    young = run(capsys, file, "--grace", "11d")[1]
    assert [9, 2, 5] == [row["ledger_id"] for row in young]
    later = run(capsys, file, "--as-of", "2026-11-28")[1]
    assert [9, 3, 4, 7, 2, 5] == [row["ledger_id"] for row in later]


def test_clean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing to report is exit code 0; a value that cannot be read is 1, and is named."""
    tree = {topic_path("paid"): managed_ledger(1)}
    clean = write_file(tmp_path / "clean.json", tree, [STORED[0], STORED[4]])
    code, rows, err = run(capsys, clean)
    assert (0, ["unknown-owner"]) == (code, [row["class"] for row in rows])
    assert "1 of unknown owner, 1 referenced\n" == err
    damaged = write_file(tmp_path / "damaged.json", {topic_path("paid"): b"x"}, STORED[:1])
    code, rows, err = run(capsys, damaged)
    assert (1, ["undetermined"]) == (code, [row["class"] for row in rows])
    assert f"damage: {damaged}: {topic_path('paid')}: offset 0: ManagedLedgerInfo" in err
    empty = write_file(tmp_path / "empty.json", tree, [])
    assert 1 == run(capsys, empty)[0]
    assert 3 == run(capsys, write_file(tmp_path / "none.json", {topic_path("x"): b""}, []))[0]
    assert 2 == main(["leaks", write_file(tmp_path / "absent.json", {}, STORED)])
    assert "does not exist: is the root of Pulsar's metadata right?" in capsys.readouterr().err


def test_screen(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The table of a screen."""
    assert 1 == main(["leaks", file, "--component", "schema"])
    header, _, row = capsys.readouterr().out.splitlines()

    assert ["class", "ledger_id", "owner", "component", "age_days", "length"] == header.split()[:6]
    assert ["leaked", "7", "schema", "shop/orders/old", "schema", "10", "1000"] == row.split()[:7]


@pytest.mark.parametrize("kind", ["directory", "dump"])
def test_usage(kind: str, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The bytes of each ledger on each bookie, the largest first, and what deleting frees."""
    bookie = tmp_path / "b1"
    for ledgers in ({1: 3, 4: 2}, {2: 5, 7: 1}):  # a log each
        with LedgerStorage.open(bookie, "sorted") as storage:
            for number, entries in ledgers.items():
                for entry in range(entries):
                    head = number.to_bytes(8, "big") + entry.to_bytes(8, "big")
                    storage.add_entry(head + bytes(80), master_key=b"k" * 20)
            storage.checkpoint()
    source = bookie
    if kind == "dump":
        pytest.importorskip("pyarrow")
        source = tmp_path / "dump"
        dump([bookie], source)
    code, rows, err = run(capsys, file, "--usage", str(source))
    columns = ("ledger_id", "bytes", "removable_bytes", "bytes_by_bookie")

    assert 1 == code
    assert [
        (9, 0, 0, None),
        (4, 200, 0, "b1 200"),
        (7, 100, 100, "b1 100"),
        (2, 500, 500, "b1 500"),
        (5, 0, 0, None),
    ] == [tuple(row[name] for name in columns) for row in rows]
    assert (
        "leaked ledgers and offloaded copies take 800 B on 1 bookie: "
        "deleting them frees 600 B, and compaction 200 B\n"
    ) in err
    assert 2 == main(["leaks", file, "--usage", str(source), "-o", f"{source}/x.csv"])
    assert 2 == main(["leaks", file, "--usage", str(tmp_path / "nowhere")])
    log = sorted(bookie.rglob("*.log"))[0]
    log.write_bytes(b"x" * 2000)
    if kind == "directory":
        assert str(log) in run(capsys, file, "--usage", str(bookie))[2]


def test_refusals(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without Pulsar's metadata nothing is a leak; no input is overwritten."""
    other = tmp_path / "other.json"
    other.write_bytes(encode_file(snapshot(store_of(STORED))))
    assert 2 == main(["leaks", str(other)])
    assert "has no metadata of Pulsar" in capsys.readouterr().err
    assert 1 == main(["leaks", str(other), "--pulsar", file])
    for words in ([file, "-o", file], [str(other), "--pulsar", file, "-o", file]):
        assert 2 == main(["leaks", *words])
    with pytest.raises(SystemExit):
        main(["leaks", file, "--pulsar", "zk://host:x/"])
    assert "host:x" in capsys.readouterr().err


@pytest.fixture
def running(zookeeper: ZooKeeperServer) -> Iterator[ZooKeeperStore]:
    """Yield the store of a cluster whose ZooKeeper has Pulsar's nodes too."""
    with ZooKeeperStore.format(f"{new_uri(zookeeper)}/pulsar/ledgers") as store:
        for metadata in STORED:
            store.create(metadata)
        root = store.uri.root.removesuffix("/ledgers")
        for path, value in TREE.items():
            store._connection.client.create(f"{root}{path}", value, makepath=True)
        yield store


def test_zookeeper(
    running: ZooKeeperStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A running cluster, its export and a copied folder have the same classes."""
    uri, file = str(running.uri), tmp_path / "metadata.json"
    options = ["--all", "--as-of", "2026-09-21T14:13:20", "--pause", "0"]
    expected = [(1, list(CLASSES.items()))]
    root = running.uri.root.removesuffix("/ledgers")
    pulsar = f"zk://{running.uri.servers[0]}{root}"
    for words in ([uri], [uri, "--pulsar", pulsar]):
        code, rows, _ = run(capsys, *words, *options)
        assert expected == [(code, [(row["ledger_id"], row["class"]) for row in rows])], words
    assert 0 == main(["metadata", "export", uri, "--pulsar", "-o", str(file)])
    assert "7 ledgers exported" in capsys.readouterr().err
    code, rows, _ = run(capsys, str(file), *options)
    assert expected == [(code, [(row["ledger_id"], row["class"]) for row in rows])]
    assert [each.ledger for each in STORED] == open_metadata(file).ledgers()


def test_pause(
    running: ZooKeeperStore, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A running cluster is looked at again after a pause; what was deleted by then is no leak."""

    def wait(seconds: float) -> None:
        assert seconds == 60.0
        running.delete(4)

    # Only the command's own clock: threads of other libraries sleep meanwhile.
    monkeypatch.setattr(leaks, "time", SimpleNamespace(sleep=wait))
    _, rows, err = run(capsys, str(running.uri), "--pause", "1m")

    assert [9, 3, 7, 2, 5] == [row["ledger_id"] for row in rows]  # 3 is no longer young today
    assert "looking again in 60 s" in err


AGES = [["analyze"], ["leaks"], ["metadata", "delete"]]


@pytest.mark.parametrize("words", AGES, ids=" ".join)
def test_age_options(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Commands that count the age of ledgers have --grace with one text, and take and refuse the
    same durations; those that do not delete have --as-of."""
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    text = " ".join(capsys.readouterr().out.split())

    assert (
        "--grace TIME age from which a ledger without a reference is leaked: 36h, 2d "
        "(default: 1d)" in text
    )
    assert ("delete" not in words) == (
        "--as-of TIME when these ages are counted from, as 2026-11-28T12:00 in UTC (default: now, "
        "or when the copy was made)" in text
    )
    with pytest.raises(SystemExit) as refused:
        main([*words, "M", "--grace", "1x"])
    assert 2 == refused.value.code
    assert "argument --grace: not a duration: '1x'" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "1x", "-1s", "1e3", "h", "1" * 13])
def test_durations(text: str) -> None:
    """A duration is a number and a unit."""
    with pytest.raises(argparse.ArgumentTypeError):
        parse_duration(text)
    assert [1, 60, 3600, 86400, 604800] == [parse_duration(f"1{unit}") for unit in "smhdw"]


def test_times() -> None:
    """A time is ISO 8601."""
    assert 1_790_000_000_000 == parse_time("2026-09-21T14:13:20")
    with pytest.raises(argparse.ArgumentTypeError):
        parse_time("yesterday")
