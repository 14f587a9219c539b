"""`bkstore streams lookup` and `streams compare`: rows, exit codes, errors in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bkstore.cli.main import main
from bkstore.cli.streams import _STRATEGIES
from bkstore.streams import STRATEGIES
from bkstore.tables import LOOKUPS
from bkstore.testing.stream_worlds import WorldShape, stream_image
from tests.golden.stream_tables import CELLS, QUERIES, WORLDS
from tests.streams.small_world import S, world


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Return the file of a world: stream 7 in three objects of ten, 9 of one its own."""
    document = world(3)
    document["stream_objects"] = [{"object_id": 9, "stream_id": S, "start": 30, "end": 40}]
    path = tmp_path / "image.json"
    path.write_text(json.dumps(document))
    return path


def _rows(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    assert code == main(["streams", *words, "--format", "json"])
    return json.loads(capsys.readouterr().out)


def _lookup(path: Path, start: int, end: int, *words: str) -> list[str]:
    where = ["lookup", str(path), "--stream", str(S), "--start", str(start), "--end", str(end)]
    return [*where, *words]


def test_the_choices_are_the_strategies() -> None:
    """The strategies that `--help` shows, which loads no look-up, are those that there are."""
    assert STRATEGIES == _STRATEGIES


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_lookup(image: Path, capsys: pytest.CaptureFixture[str], strategy: str) -> None:
    """A row for each object of the answer, in order, the same under every strategy."""
    rows = _rows(capsys, *_lookup(image, 15, -1, "--strategy", strategy))

    assert [
        {"kind": "SSO", "object_id": 2, "start": 10, "end": 20},
        {"kind": "SSO", "object_id": 3, "start": 20, "end": 30},
        {"kind": "SO", "object_id": 9, "start": 30, "end": 40},
    ] == rows


def test_lookup_transcript(image: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Data go to stdout, what they cost to stderr."""
    assert 0 == main(["streams", *_lookup(image, 5, 35, "--limit", "2", "--format", "csv")])
    out, err = capsys.readouterr()

    assert "kind,object_id,start,end\nSSO,1,0,10\nSSO,2,10,20\n" == out
    assert (
        "complete: 2 objects, covered to 20; 3 loads in 1 wave [1,2,3]; 0 refused by filters\n"
        == err
    )


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--stream", "5", "--start", "0"], "no stream 5"),
        (["--stream", "7", "--start", "-1"], "stream 7 begins at 0"),
        (["--stream", "7", "--start", "9", "--end", "5"], "is not a valid range"),
        (["--stream", "7", "--start", "9", "--limit", "-1"], "is not a valid range"),
        (["--stream", "7", "--start", "9", "--batch", "0"], "batch must be a whole number"),
        (["--stream", "7", "--start", "9", "--world", "x"], "no world 'x'"),
    ],
)
def test_lookup_refused(
    image: Path, capsys: pytest.CaptureFixture[str], words: list[str], reason: str
) -> None:
    """What cannot be asked is one line on stderr, and exit code 2."""
    assert 2 == main(["streams", "lookup", str(image), *words])
    out, err = capsys.readouterr()

    assert "" == out
    assert reason in err
    assert 1 == err.count("\n")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ("\xff", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("7", "must be an object"),
        ('{"worlds": [7]}', "must be an object"),
        ('{"worlds": []}', "has no world"),
        ('{"streams": []}', "nodes must be a list"),
    ],
    ids=["cut", "bytes", "deep", "number", "worlds", "none", "half"],
)
@pytest.mark.parametrize("command", ["lookup", "compare"])
def test_bad_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, text: str, reason: str
) -> None:
    """A file that is no image is refused by name."""
    path = tmp_path / "odd.json"
    path.write_text(text, encoding="latin-1")
    words = ["--stream", "7", "--start", "0"] if command == "lookup" else []

    assert 2 == main(["streams", command, str(path), *words])
    err = capsys.readouterr().err
    assert "odd.json" in err
    assert reason in err


@pytest.mark.parametrize(
    "query", [7, {"q": [7, 0, 1]}, {"q": [7, 0, "1", 4]}, {"q": [7, 0, 1, 4], "objects": [7]}]
)
def test_bad_queries(tmp_path: Path, capsys: pytest.CaptureFixture[str], query: Any) -> None:
    """A query of the file that is none is refused."""
    path = tmp_path / "image.json"
    path.write_text(json.dumps({**world(), "queries": [query]}))

    assert 2 == main(["streams", "compare", str(path)])
    assert "quer" in capsys.readouterr().err


def test_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is not there is exit code 2, too."""
    assert 2 == main(["streams", "compare", str(tmp_path / "none.json")])
    assert "No such file" in capsys.readouterr().err


def test_compare_random(image: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Random look-ups: a row each and strategy, and the sums, which add up."""
    rows = _rows(capsys, "compare", str(image), "--queries", "5", "--seed", "3")
    again = _rows(capsys, "compare", str(image), "--queries", "5", "--seed", "3")

    assert len(STRATEGIES) * 6 == len(rows)
    for at, strategy in enumerate(STRATEGIES):
        own = rows[6 * at : 6 * at + 6]

        assert {strategy} == {row["strategy"] for row in own}
        assert [0, 1, 2, 3, 4, None] == [row["query"] for row in own]
        for name in ("loads", "waves", "preloads", "filter_refusals", "index_hits"):
            assert own[-1][name] == sum(row[name] for row in own[:-1])
        assert (None if at == 0 else True) == own[-1]["agrees"]
    assert [row["answer"] for row in rows] == [row["answer"] for row in again]
    assert LOOKUPS.names == list(rows[0])


def test_compare_finds_wrong_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An answer that is not the file's is a line on stderr, and exit code 1."""
    right = {"q": [S, 5, 20, 9], "status": "ok", "objects": [["SSO", 1, 0, 10], ["SSO", 2, 10, 20]]}
    wrong = {"q": [S, 5, 20, 9], "status": "ok", "objects": [["SSO", 1, 0, 10]]}
    invalid = {"q": [99, 5, 20, 9], "status": "ok", "objects": []}
    path = tmp_path / "image.json"
    path.write_text(json.dumps({**world(), "queries": [right, wrong, invalid]}))
    words = ["streams", "compare", str(path), "--strategy", "bloom", "--strategy", "partial"]

    assert 1 == main([*words, "--format", "json"])
    out, err = capsys.readouterr()
    rows = json.loads(out)

    assert [True, False, False, False] * 2 == [row["agrees"] for row in rows]
    assert ["1 2", "1 2", "invalid", None] * 2 == [row["answer"] for row in rows]
    assert 4 == err.count("\n")
    assert "None: bloom: query 1 [7, 5, 20, 9]: 1 2, not 1\n" in err


def test_compare_totals_of_worlds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--totals has the sums alone; a file of several worlds gives each its rows, or one."""
    worlds = [{"name": name, **stream_image(WorldShape(), 8).to_json()} for name in "ab"]
    path = tmp_path / "worlds.json"
    path.write_text(json.dumps({"worlds": worlds}))
    rows = _rows(capsys, "compare", str(path), "--totals", "--queries", "4")
    one = _rows(capsys, "compare", str(path), "--totals", "--queries", "4", "--world", "b")

    assert [(name, s) for name in "ab" for s in STRATEGIES] == [
        (row["world"], row["strategy"]) for row in rows
    ]
    assert {None} == {row["query"] for row in rows}
    assert {"b"} == {row["world"] for row in one}
    assert 2 == main(["streams", *_lookup(path, 0, 5)])
    assert "choose one by --world: a, b" in capsys.readouterr().err


@pytest.mark.parametrize("name", WORLDS)
def test_compare_shows_the_table(
    golden: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """The seed's look-ups under every strategy: loads and waves of the worked example."""
    document = json.loads((golden / "stream" / "worlds.json").read_bytes())
    (chosen,) = [one for one in document["worlds"] if one["name"] == WORLDS[name]]
    asked = [query for query in chosen["queries"] if tuple(query["q"][1:]) in QUERIES]
    path = tmp_path / "world.json"
    path.write_text(json.dumps({**chosen, "queries": asked}))
    rows = _rows(capsys, "compare", str(path))
    eager = _rows(capsys, "compare", str(path), "--strategy", "preload", "--preload", "eager")

    for line in CELLS[name].split("\n")[1:-1]:
        strategy, *expected = line.split()
        shown = eager if strategy == "eager" else rows
        of = "preload" if strategy == "eager" else strategy
        own = [row for row in shown if row["strategy"] == of and row["query"] is not None]

        assert expected == [f"{row['loads']}/{row['waves']}" for row in own]
    assert all(row["agrees"] for row in rows + eager)
