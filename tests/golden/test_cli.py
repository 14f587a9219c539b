"""The command line's answers about real bookie directories agree with the real classes' answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkstore.cli.main import main

Run = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command with JSON lines out and returns the rows.

    Exit code 1 says that the ledger asked for is not `known`.
    """

    def call(*words: str, known: bool = True) -> list[dict[str, Any]]:
        code = main([*words, "--format", "jsonl"])
        out, err = capsys.readouterr()

        assert (0 if known else 1) == code, err
        return [json.loads(line) for line in out.splitlines()]

    return call


def test_ledgers(tree: Any, reader: Any, run: Run) -> None:
    """`ledgers` lists the active ledgers with counts, bounds and states."""
    rows = {row["ledger_id"]: row for row in run("ledgers", str(tree.root), "--show-keys")}

    assert sorted(tree.last["active_ledgers"]) == list(rows)
    for answer in tree.known:
        row = rows[answer["ledger"]]
        entries = reader.expand_runs(answer["entries"])
        bounds = (entries[0], entries[-1]) if entries else (None, None)

        assert (len(entries), *bounds) == (row["entries"], row["first_entry"], row["last_entry"])
        for key, column in (
            ("master_key_hex", "master_key"),
            ("fenced", "fenced"),
            ("explicit_lac_hex", "explicit_lac"),
            ("limbo", "limbo"),
        ):
            if key in answer and not reader.refused(answer[key]):
                assert answer[key] == row[column], (answer["ledger"], column)


def test_entries(tree: Any, reader: Any, run: Run) -> None:
    """`ledger` gives the entries and their places; the log lies in the directory it names."""
    folders = sorted(p for p in tree.root.iterdir() if p.name.startswith("ledgers"))
    for answer in tree.last["ledgers"]:
        known = answer["ledger"] in tree.last["active_ledgers"]
        rows = run("ledger", str(tree.root), "--ledger-id", str(answer["ledger"]), known=known)
        places = {row["entry_id"]: row for row in rows}

        assert reader.expand_runs(answer["entries"]) == list(places)
        for entry, location, *_ in answer["locations"]:
            row = places[entry]
            log = folders[row["dir_index"]] / "current" / f"{row['log_id']:x}.log"

            assert location == row["location"] == row["log_id"] << 32 | row["position"]
            assert log.is_file()


def test_availability(tree: Any, run: Run) -> None:
    """`availability` in both encodings; an unknown ledger's answer is the empty one."""
    for answer in tree.last["ledgers"]:
        words = ("availability", str(tree.root), "--ledger-id", str(answer["ledger"]))
        known = answer["ledger"] in tree.last["active_ledgers"]
        (built,) = run(*words, "--encoding", "bookkeeper", known=known)
        (grouped,) = run(*words, known=known)
        data = bytes.fromhex(built["bytes"])

        assert answer["availability_sha256"] == hashlib.sha256(data).hexdigest()
        assert answer["availability_total"] == built["entries"]
        assert answer["entries"] == built["ranges"] == grouped["ranges"]
        assert len(grouped["bytes"]) <= len(built["bytes"])


def test_inspect(tree: Any, run: Run) -> None:
    """`inspect` counts ledgers and entry logs as the bookie did, and finds nothing odd."""
    said = {row["property"]: row["value"] for row in run("inspect", str(tree.root))}

    assert str(len(tree.last["active_ledgers"])) == said["ledgers"]
    assert tree.layout == said["layout"]
    if "entry_logs" in tree.last and not tree.options.get("direct_io"):
        assert int(said["entry logs"]) >= len(tree.last["entry_logs"])


def test_clusters(cluster: tuple[Path, dict[str, Any]], run: Run) -> None:
    """For every bookie of the small clusters: the entries that its index really has."""
    top, document = cluster
    for ledger in document["after"]["state"]["ledgers"]:
        for bookie, expected in ledger["bookies"].items():
            words = ("availability", str(top / bookie), "--ledger-id", str(ledger["ledger"]))
            (answer,) = run(*words, known=bool(expected["held"]))

            assert expected["held"] == answer["ranges"], (ledger["ledger"], bookie)


def test_rocks(tree: Any, reader: Any, run: Run) -> None:
    """`rocks --rows` has the entries and locations that real RocksDB databases hold."""
    if tree.layout != "rocksdb":
        pytest.skip("an index of files")
    for answer in tree.known:
        expected = reader.expand_runs(answer["entries"])
        if len(expected) < 5000:
            words = ("--rows", "--database", "locations", "--ledger-id", str(answer["ledger"]))
            rows = run("rocks", str(tree.root), *words)
            located = {row["entry_id"]: row["location"] for row in rows}

            assert expected == [row["entry_id"] for row in rows]
            assert [row[1] for row in answer["locations"]] == [
                located[row[0]] for row in answer["locations"]
            ]
    files = run("rocks", str(tree.root))

    assert {"table", "manifest"} <= {row["kind"] for row in files}
    assert {"locations", "ledgers"} == {row["database"] for row in files}
