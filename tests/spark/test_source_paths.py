"""Which bookies the paths of ``spark.read.format("bookie")`` stand for: names and patterns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bkstore import InvalidArgument
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.spark.errors import spark_errors
from bkstore.spark.source.options import parse_options

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]
pytest.importorskip("pyspark")


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """Return a folder of folders and a file, some with characters of patterns in their names."""
    names = ["b2", "b10", "b1", "c1", "dt=1/b1", "dt=2/b2", ".b", "[b1]", "x{b1,b2}", "b=*"]
    for name in names:
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "b.txt").touch()
    return tmp_path


def found(top: Path, *words: str) -> list[tuple[str | None, str]]:
    """Return (name, path below `top`) of the bookies that words with ``TOP`` stand for."""
    given = json.dumps([word.replace("TOP", str(top)) for word in words])
    sources = parse_options({"paths": given}).sources
    return [(one.bookie_id, str(Path(one.path).relative_to(top))) for one in sources]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("b[0-9]*", ["b1", "b10", "b2"]),
        ("?1", ["b1", "c1"]),
        ("[^b]1", ["c1"]),
        ("[!b]1", ["c1"]),
        ("{c,b}1", ["b1", "c1"]),
        ("{b{1,2},c1,b1,nowhere}", ["b1", "b2", "c1"]),
        ("dt=*/b*", ["dt=1/b1", "dt=2/b2"]),
        ("*/b1", ["dt=1/b1"]),
        ("**/b2", ["dt=2/b2"]),
        ("b.*", ["b.txt"]),
        ("b*/", ["b1", "b10", "b2", "b=*"]),
        ("[[]b*", ["[b1]"]),
    ],
)
def test_a_pattern_is_all_that_match(top: Path, pattern: str, expected: list[str]) -> None:
    """A pattern stands for what matches it, each once, sorted; hidden names do not match."""
    alone = parse_options({"path": f"{top}/{pattern}"}).sources  # as `load` gives one path

    assert [(None, path) for path in expected] == found(top, f"TOP/{pattern}")
    assert expected == [str(Path(one.path).relative_to(top)) for one in alone]


@pytest.mark.parametrize("name", ["[b1]", "x{b1,b2}", "b=*"])
def test_what_is_there_is_no_pattern(top: Path, name: str) -> None:
    """A path that is there as it is written is taken so, whatever would match it."""
    assert [(None, name)] == found(top, f"TOP/{name}")
    assert [("n", name)] == found(top, f"n=TOP/{name}")


def test_several_paths(top: Path) -> None:
    """Paths and patterns keep their order; each pattern is sorted in itself."""
    expected = [(None, "c1"), (None, "b1"), (None, "b10"), ("two", "b2"), (None, "dt=1/b1")]

    assert expected == found(top, "TOP/c1", "TOP/b1*", "two=TOP/b2", "TOP/dt=1/*")
    assert [(None, "nowhere"), (None, "b2")] == found(top, "TOP/nowhere", "TOP/?2")


def test_names_and_patterns(top: Path) -> None:
    """NAME=PATTERN names one bookie; a NAME may have a pattern's characters, as IPv6 has."""
    assert [("n", "c1")] == found(top, "n=TOP/c*")
    assert [("[::1]:3181", "c1")] == found(top, "[::1]:3181=TOP/c1")
    with pytest.raises(InvalidArgument, match=r"n=.*/b\?: one name for 2 paths that match$"):
        found(top, "n=TOP/b?")


@pytest.mark.parametrize(
    "word",
    ["TOP/e*", "n=TOP/e*", "TOP/{x,y}", "TOP/[z", "TOP/nowhere/*", "TOP/*/dt=1", "TOP/\0*/b"],
)
def test_a_pattern_without_a_match(top: Path, word: str) -> None:
    """A pattern that matches nothing is refused by name, also beside one that does."""
    for words in ([word], ["TOP/b*", word], [word, "TOP/b*"]):
        with pytest.raises(InvalidArgument) as told:
            found(top, *words)

        assert f"{word.replace('TOP', str(top))}: nothing matches this pattern" == str(told.value)


def test_the_schema_reads_no_directory() -> None:
    """Patterns are expanded where a query is planned; the columns need none."""
    assert () == parse_options({"path": "/nowhere/*"}, paths=False).sources


def test_spark_reads_patterns(spark: Any, tmp_path: Path) -> None:
    """`load` takes patterns: all bookies that match are read; none is an error of ours."""
    for number in range(3):
        with HierarchicalIndex(tmp_path / f"b{number}", writable=True) as index:
            index.put_many(7, [number], [1028])
    with HierarchicalIndex(tmp_path / "[b0]", writable=True) as index:
        index.put_many(7, [50], [1028])
    reading = spark.read.format("bookie")
    rows = reading.load(f"{tmp_path}/b*").select("bookie", "entry_id").collect()
    mixed = reading.load([f"{tmp_path}/b[12]", f"zero={tmp_path}/*0", f"{tmp_path}/[b0]"])
    with pytest.raises(InvalidArgument, match=r"/none\*: nothing"), spark_errors("the query"):
        spark.read.format("bookie").option("table", "findings").load(f"{tmp_path}/none*").count()

    assert [("b0", 0), ("b1", 1), ("b2", 2)] == sorted(map(tuple, rows))
    assert {("b1", 1), ("b2", 2), ("zero", 0), ("[b0]", 50)} == {
        (row.bookie, row.entry_id) for row in mixed.collect()
    }
