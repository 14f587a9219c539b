"""Files of a synthetic cluster: a dump like any other, in which analyses find what is planted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bkstore.errors import InvalidArgument
from bkstore.offline import analyses
from tools import scale
from tools.synthesize.__main__ import main
from tools.synthesize.shape import ClusterShape
from tools.synthesize.writing import write_cluster

pytest.importorskip("pyarrow")

SHAPE = ClusterShape(bookies=9, entries=5000, ledgers=300)
LOG_BYTES = 1 << 18


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Write a small cluster; return its folder and what is planted."""
    top = tmp_path_factory.mktemp("synthetic") / "out"
    return top, write_cluster(SHAPE, top, log_bytes=LOG_BYTES)


def _answer(world: tuple[Path, dict[str, Any]], name: str) -> list[dict[str, Any]]:
    top, _ = world
    rows: list[dict[str, Any]] = analyses.run(name, top / "dump", top / "metadata.json").to_pylist()
    return rows


def test_analyses_find_what_is_planted(
    world: tuple[Path, dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every planted number is what analyses answer; `tools.scale` tells one that is not."""
    planted = world[0] / "planted.json"
    said = planted.read_text()
    planted.write_text(json.dumps({**world[1], "orphans": 7}))
    code = scale.main([str(world[0]), "--json", str(tmp_path / "out.json")])
    planted.write_text(said)
    document = json.loads((tmp_path / "out.json").read_text())

    assert 1 == code
    assert {"orphans": [7, world[1]["orphans"]]} == document["not_as_planted"]
    names = [name for name, each in analyses.ANALYSES.items() if not each.needs_pulsar]
    assert ["(opening)", *names] == [row["analysis"] for row in document["analyses"]]
    assert "| sequences | " in capsys.readouterr().out


def test_logs_hold_the_entries_of_the_index(world: tuple[Path, dict[str, Any]]) -> None:
    """A bookie's logs have 256 bytes for each entry, and a header of 1,024 each."""
    top, found = world
    rows = _answer(world, "bytes_by_bookie")
    logs = json.loads((top / "dump" / "manifest.json").read_text())["tables"]["entry_logs"]

    assert found["bookies"] == len(rows)
    assert found["entries"] == sum(row["entries"] for row in rows)
    assert all(row["record_bytes"] == 256 * row["entries"] for row in rows)
    assert logs["rows"] > SHAPE.bookies
    assert sum(row["log_file_bytes"] for row in rows) == (
        256 * found["entries"] + 1024 * logs["rows"]
    )


def test_the_same_shape_gives_the_same_files_whatever_writes_them(
    world: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """Two processes write, byte for byte, what one does; only the manifest has a date."""
    write_cluster(SHAPE, tmp_path / "again", jobs=2, log_bytes=LOG_BYTES)
    files = {
        str(path.relative_to(world[0])): path.read_bytes()
        for path in sorted(world[0].rglob("*"))
        if path.is_file() and path.name != "manifest.json"
    }

    assert files == {
        str(path.relative_to(tmp_path / "again")): path.read_bytes()
        for path in sorted((tmp_path / "again").rglob("*"))
        if path.is_file() and path.name != "manifest.json"
    }
    assert len(files) == 2 + 6 * SHAPE.bookies


def test_what_is_there_is_not_overwritten(world: tuple[Path, dict[str, Any]]) -> None:
    """A folder with something in it is refused."""
    with pytest.raises(InvalidArgument):
        write_cluster(SHAPE, world[0])


def test_command_prints_the_planted_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command writes the cluster and says what is in it; a shape that cannot be is code 2."""
    small = ["--bookies", "7", "--entries", "4000", "--ledgers", "220", "--jobs", "1"]
    code = main([str(tmp_path / "out"), *small])
    said = capsys.readouterr().out
    refused = main([str(tmp_path / "more"), *small, "--ack-quorum", "5"])

    assert (0, 2) == (code, refused)
    assert "ledgers: 220\n" in said
    assert json.loads((tmp_path / "out" / "planted.json").read_text())["orphans"] == 250
    assert not (tmp_path / "more").exists()
