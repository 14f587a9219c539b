"""Which bookies the paths of ``spark.read.format("bookie")`` stand for: names and patterns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bkstore import InvalidArgument, LedgerId, open_index
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.offline.dump import dump
from bkstore.offline.load import load
from bkstore.spark.errors import convert_spark_errors
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
    with pytest.raises(InvalidArgument, match=r"n=.*/b\?: one name for 2 matching paths$"):
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


DOTTED = ["bookie.1", "bookie.2", "10.0.0.1:3181", "a.b/v1.0.d", ".hidden"]


@pytest.fixture
def dotted(tmp_path: Path) -> Path:
    """Return a folder of bookies with dots in their names, each with a ledger of its own."""
    for number, name in enumerate(DOTTED):
        with HierarchicalIndex(tmp_path / name, writable=True) as index:
            index.put_many(number, [0], [1028])
    return tmp_path


def read(top: Path, *words: str) -> list[tuple[str, int]]:
    """Return (bookie, ledger) of each row that words with ``TOP`` give."""
    from bkstore.spark.source.data_source import BookieReader

    reader = BookieReader(
        parse_options({"paths": json.dumps([word.replace("TOP", str(top)) for word in words])})
    )
    batches = (batch for part in reader.partitions() for batch in reader.read(part))
    rows = (row for batch in batches for row in batch.to_pylist())
    return sorted((row["bookie"], row["ledger_id"]) for row in rows)


def test_names_with_dots(dotted: Path) -> None:
    """A bookie without a cookie has the whole name of its folder, dots and all, however its path
    is written; a pattern takes names with dots, and hidden ones where it says their dot."""
    everything = [("bookie.1", 0), ("bookie.2", 1), ("10.0.0.1:3181", 2), ("v1.0.d", 3)]

    assert sorted([*everything, (".hidden", 4)]) == read(
        dotted, *(f"TOP/{name}" for name in DOTTED)
    )
    assert everything[:2] == read(dotted, "TOP/bookie.*")
    assert everything[1:2] == read(dotted, "TOP/*.2")
    assert everything[3:] == read(dotted, "TOP/a.*/v*.d")
    assert [(".hidden", 4)] == read(dotted, "TOP/.h*")
    for word in ("TOP/bookie.1/.", "TOP/a.b/../bookie.1", "TOP/./bookie.1/", "TOP/bookie.2/../*.1"):
        assert everything[:1] == read(dotted, word), word
    assert [("b.0", 0), ("b.1", 1)] == read(dotted, "b.0=TOP/bookie.1", "b.1=TOP/bookie.2")


def test_a_bookie_with_dots_that_cannot_be_opened(dotted: Path) -> None:
    """A finding calls it by the whole name of its folder, however its path is written."""
    from bkstore.spark.source.data_source import BookieReader

    (dotted / "bad.v1.0").mkdir()
    for word in ("bad.v1.0", "bad.v1.0/.", "bookie.1/../bad.v1.0", "bad.v1.0/"):
        options = {"path": f"{dotted}/{word}", "table": "findings"}
        reader = BookieReader(parse_options(options))
        batches = (batch for part in reader.partitions() for batch in reader.read(part))
        (row,) = (row for batch in batches for row in batch.to_pylist())

        assert "bad.v1.0" == row["bookie"]
        assert row["detail"].startswith("bookie bad.v1.0 was not read: ")


def test_a_dump_of_names_with_dots(dotted: Path) -> None:
    """Files of a dump keep the dots of their bookie's name, so that no two share one; none is
    hidden. A load finds them by the manifest, and without it."""
    for out in ("dump.v1", "d.1/.hidden.d"):
        dump([dotted / name for name in DOTTED], dotted / out)
        expected = ["10.0.0.1_3181", "b.hidden", "bookie.1", "bookie.2", "v1.0.d"]

        assert [f"{name}-00000.parquet" for name in expected] == sorted(
            path.name for path in (dotted / out / "entries").iterdir()
        )
        for listed in (True, False):
            if not listed:
                (dotted / out / "manifest.json").unlink()
            for ledger, name in enumerate([*DOTTED[:3], "v1.0.d", ".hidden"]):
                target = dotted / "indexes" / out / str(listed) / name
                target.parent.mkdir(parents=True, exist_ok=True)
                load(dotted / out, target, "idx", bookie=name)
                with open_index(target) as index:
                    assert [LedgerId.of(ledger)] == list(index.ledgers())


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
    with (
        pytest.raises(InvalidArgument, match=r"/none\*: nothing"),
        convert_spark_errors("the query"),
    ):
        spark.read.format("bookie").option("table", "findings").load(f"{tmp_path}/none*").count()

    assert [("b0", 0), ("b1", 1), ("b2", 2)] == sorted(map(tuple, rows))
    assert {("b1", 1), ("b2", 2), ("zero", 0), ("[b0]", 50)} == {
        (row.bookie, row.entry_id) for row in mixed.collect()
    }
