"""The lab of look-ups runs, and its document and picture have what a reader needs. No times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bkstore.streams import STRATEGIES
from tools import lookups


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Measure the tiny size, its claim's world tiny too; return the JSON."""
    path = tmp_path_factory.mktemp("lookups") / "result.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lookups, "CLAIM", {"objects": 60, "streams": 30})
        assert 0 == lookups.main(["--size", "tiny", "--seed", "1", "--json", str(path)])
    return path


def test_document(result: Path) -> None:
    """Every series has its points and strategies, both turns, and says how it was made."""
    document: dict[str, Any] = json.loads(result.read_text())
    rows = document["rows"]
    points = [(row["series"], row["objects"], row["streams"], row["fpp"]) for row in rows]

    assert "bkstore-lookups/1" == document["format"]
    assert document["command"].startswith("python -m tools.lookups --size tiny --seed 1")
    assert set(STRATEGIES) == {row["strategy"] for row in rows if row["series"] == "claim"}
    assert [
        ("length", 10, 15, 0.01),
        ("length", 20, 15, 0.01),
        ("streams", 20, 10, 0.01),
        ("streams", 20, 20, 0.01),
        ("rate", 20, 20, 0.5),
        ("rate", 20, 20, 0.01),
        ("claim", 60, 30, 0.01),
    ] == list(dict.fromkeys(points))
    for row in rows:
        if row["strategy"] == "load-all":
            assert (row["objects"], 1) == (row["first"]["loads"], row["first"]["waves"])


def test_claims(result: Path) -> None:
    """The claims are the ratios of the rows that they are about."""
    document: dict[str, Any] = json.loads(result.read_text())
    warm = {r["strategy"]: r["again"] for r in document["rows"] if r["series"] == "claim"}
    claims = document["claims"]

    assert 60 / warm["bloom"]["loads"] == claims["load_all_loads_per_bloom_load"]
    assert warm["bloom"]["waves"] == claims["bloom_waves"]
    assert warm["bloom"]["loads"] < warm["index"]["loads"] < warm["sparse-index"]["loads"]


def test_picture(result: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The picture is drawn from the JSON alone, and is an SVG with a line for each strategy."""
    pytest.importorskip("matplotlib")
    path = tmp_path / "lookups.svg"
    assert 0 == lookups.main(["--read", str(result), "--svg", str(path)])
    out = capsys.readouterr().out
    text = path.read_text()

    assert "fewer loads than load-all" in out
    assert "{http://www.w3.org/2000/svg}svg" == ElementTree.fromstring(text).tag
    for strategy in STRATEGIES:
        assert f"<!-- {strategy} -->" in text
