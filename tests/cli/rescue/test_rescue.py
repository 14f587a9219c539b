"""`bkstore rescue`: outputs, exit codes, choices, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bkstore.cli.main import main
from bkstore.formats.metadata.json_file import ClusterMetadata, decode_file, encode_file
from tests.rescue.rescue_runs import read_folder
from tests.rescue.rescue_worlds import RescueWorld


@pytest.fixture
def world(tmp_path: Path) -> RescueWorld:
    """Return a world with several bookies, and its metadata in a file."""
    made = RescueWorld(tmp_path / "world", seed=3)
    assert len(made.bookies) > 1
    assert all(ledger.records for ledger in made.ledgers.values())
    ledgers = tuple(ledger.metadata for ledger in made.ledgers.values())
    (tmp_path / "metadata.json").write_bytes(encode_file(ClusterMetadata(ledgers), passwords=True))
    return made


def words(world: RescueWorld, tmp_path: Path) -> list[str]:
    """Return the command with METADATA and all bookies."""
    bookies = [f"{bookie}={world.path(bookie)}" for bookie in world.bookies]
    return ["rescue", str(tmp_path / "metadata.json"), *bookies]


def test_parquet_has_every_payload(world: RescueWorld, tmp_path: Path) -> None:
    """One row per entry in order, and the metadata with passwords for their owner alone."""
    out = tmp_path / "out"
    assert main([*words(world, tmp_path), str(out), "--as", "parquet"]) == 0

    rows = [
        row for path in sorted(out.glob("*.parquet")) for row in pq.read_table(path).to_pylist()
    ]
    written = [
        (*ledger_id.signed, entry, payload)
        for ledger_id in sorted(world.ledgers)
        for entry, payload in world.ledgers[ledger_id].payloads.items()
    ]
    columns = ("scope_id", "ledger_id", "entry_id", "payload")
    assert [tuple(row[name] for name in columns) for row in rows] == written
    saved = decode_file((out / "metadata.json").read_bytes()).ledgers
    assert sorted(saved, key=lambda each: each.ledger) == [
        world.ledgers[ledger_id].metadata for ledger_id in sorted(world.ledgers)
    ]
    assert (out / "metadata.json").stat().st_mode & 0o777 == 0o600


def test_one_ledger(world: RescueWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only the chosen ledger is rescued."""
    ledger_id = min(world.ledgers)
    chosen = ["--ledger-id", ledger_id.qualified_name, "--format", "jsonl"]
    assert main([*words(world, tmp_path), str(tmp_path / "out"), *chosen]) == 0

    (row,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (row["kind"], row["entries"]) == ("whole", len(world.ledgers[ledger_id].records))
    assert read_folder(tmp_path / "out", ledger_id) == world.ledgers[ledger_id].payloads
    assert len(list((tmp_path / "out").iterdir())) == 2


def test_exit_codes(world: RescueWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """0 whole, 1 lost, 2 refused, 3 nothing chosen; nothing is left behind."""
    command = words(world, tmp_path)
    assert main([*command, "--dry-run"]) == 0
    assert main([*command[:3], "--dry-run", "--ledger-id", "999"]) == 3
    assert main([*command, str(tmp_path / "world"), "--dry-run"]) == 2
    assert main([*command, str(world.path(world.bookies[0]) / "out")]) == 2
    assert main([*command, str(tmp_path / "metadata.json")]) == 2
    for ledger in world.ledgers.values():
        for bookie in world.bookies:
            world.flip(bookie, ledger.records[0])
    capsys.readouterr()
    assert main([*command, "--dry-run", "--format", "jsonl"]) == 1
    rows = list(map(json.loads, capsys.readouterr().out.splitlines()))
    assert [row["groups"] for row in rows if row["kind"] == "lost"] == [[[0, 0, 1, 0]]] * len(
        world.ledgers
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metadata.json", "world"]


def test_usage_errors(world: RescueWorld, tmp_path: Path) -> None:
    """A missing or repeated word is refused before anything is written."""
    command, out = words(world, tmp_path), str(tmp_path / "out")
    for arguments in (command, [*command[:2], out]):  # without OUT, without a bookie
        with pytest.raises(SystemExit) as exit_info:
            main(arguments)
        assert exit_info.value.code == 2
    assert main([*command, command[2], out]) == 2
    assert main([*command, f"nobody={tmp_path}/none", out]) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metadata.json", "world"]
