"""`bkstore analyze` and `sql` with a copy of Pulsar's metadata: table, summary, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bkstore.cli.main import main
from bkstore.cluster.store.dump_store import snapshot
from bkstore.formats.metadata.json_file import encode_file
from bkstore.ids import LedgerId
from bkstore.pulsar import NodeValue
from bkstore.pulsar.sources.exports import encode_nodes
from tests.models.pulsar_dumps import random_pulsar
from tests.pulsar.samples import NOW, ledger, managed_ledger, owned, store_of, topic_path
from tests.worlds.random_dumps import DumpWorld, write_dump

pytest.importorskip("duckdb")


def test_classes_and_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --pulsar there is a line about leaks, and with --only the table; the default place of
    the copy is the file of the ledger metadata. Nodes that cannot be read are findings."""
    world = random_pulsar(2, unreadable=False)  # a file has only metadata that can be read
    document = encode_file(snapshot(world.store)).rstrip().removesuffix(b"}")
    nodes = encode_nodes(world.nodes.items(), NOW, is_complete=True)
    (tmp_path / "both.json").write_bytes(document + b', "pulsar": ' + nodes.encode() + b"}")
    command = ["analyze", str(write_dump(world.dump, tmp_path / "dump"))]
    command += ["--metadata", f"{tmp_path}/both.json"]
    only = [*command, "--only", "leaked_ledgers", "--format", "json"]

    assert 1 == main([*only, "--as-of", "2026-09-21T14:13:20"])
    captured = capsys.readouterr()
    rows = json.loads(captured.out)

    assert [row[:3] for row in world.rows()] == [
        (row["class"], row["scope_id"], row["ledger_id"]) for row in rows
    ]
    assert all(f"both.json: {path}" in captured.err for path in world.doubtful)
    # A copy knows when it was made.
    main(only)
    assert rows == json.loads(capsys.readouterr().out)
    main([*only, "--grace", "365d"])
    assert "leaked" not in {row["class"] for row in json.loads(capsys.readouterr().out)}
    main([*command, "--format", "jsonl"])
    assert "leaked_ledgers" not in capsys.readouterr().out
    main([*command, "--pulsar", f"{tmp_path}/both.json", "--format", "jsonl"])
    lines = map(json.loads, capsys.readouterr().out.splitlines())
    (line,) = (each for each in lines if each["analysis"] == "leaked_ledgers")
    leaks = [row for row in world.rows() if row[0] in ("leaked", "offloaded-copy")]

    assert line["finding"]
    assert f"leaked: {sum(row[0] == 'leaked' for row in leaks)} ledgers" in line["result"]
    assert f"{sum(row[5] for row in leaks):,} bytes of leaks and offloaded copies" in line["result"]
    assert f"{len(world.doubtful)} finding" in line["result"]


def test_a_copy_is_needed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A running cluster is refused, and metadata without Pulsar's, and a query without them."""
    world = random_pulsar(3, unreadable=False)
    (tmp_path / "metadata.json").write_bytes(encode_file(snapshot(world.store)))
    dump = str(write_dump(world.dump, tmp_path / "dump"))
    command = ["analyze", dump, "--metadata", f"{tmp_path}/metadata.json"]
    query = ["sql", *command[1:]]
    for words, refusal in {
        (
            *command,
            "--only",
            "leaked_ledgers",
        ): "has no metadata of Pulsar; export it with --pulsar",
        (*command, "--pulsar", "zk://localhost:1/"): "need a copy, not a running cluster",
        (*query, "select * from leaked_ledgers"): "leaked_ledgers needs Pulsar's metadata",
    }.items():
        assert 2 == main(list(words))
        assert refusal in capsys.readouterr().err


def test_leaks_that_are_not_shown(tmp_path: Path) -> None:
    """The exit code is 1 also if the leak is not among the top rows."""
    world = DumpWorld(held={"b1": {}})
    sizes = {LedgerId.of(1): 10, LedgerId.of(2): 9000, LedgerId.of(9): 1}
    world.logs = {("b1", 0, 1): (10035, True, sizes)}
    ledgers = [ledger(1, owned()), ledger(2, {"application": b"x"}), ledger(9, owned())]
    topic = NodeValue(managed_ledger(9))
    values = [("/managed-ledgers", topic), (topic_path("paid"), topic)]
    parts = {"pulsar": encode_nodes(values, NOW, is_complete=True)}
    document = encode_file(snapshot(store_of(ledgers)), other_parts=parts)
    (tmp_path / "both.json").write_bytes(document)
    dump = str(write_dump(world, tmp_path / "dump"))
    words = ["analyze", dump, "--metadata", f"{tmp_path}/both.json", "--only", "leaked_ledgers"]

    assert 1 == main(words)
    assert 1 == main([*words, "--top", "1"])
    assert 0 == main([*words, "--grace", "365d", "--top", "1"])
