"""The lab's frame: documents, tables, pictures, pages, the command line. No times."""

from __future__ import annotations

import argparse
import doctest
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from bkstore.errors import InvalidArgument
from bkstore.ids import LedgerId
from bkstore.index.rocks.database import Database
from bkstore.index.rocks.options import location_options
from bkstore.lab import LabRun, ResultColumn, Row, main, number_format
from bkstore.lab.documents.document import (
    FORMAT,
    SummaryError,
    build_document,
    read_document,
    save_document,
)
from bkstore.lab.experiment import Rows
from bkstore.lab.measuring import latencies_and_costs
from bkstore.lab.measuring.latencies_and_costs import (
    measure_cost,
    measure_files,
    measure_latencies,
    measure_latency,
    median_cost,
)
from bkstore.lab.measuring.timing import TimedSide, run_samples
from bkstore.lab.number_format import as_text
from bkstore.lab.presentation import log_axes
from bkstore.lab.presentation.page import build_page
from bkstore.lab.presentation.picture import draw_picture
from bkstore.lab.stores.other_stores import LevelDb, Lmdb, Store
from bkstore.lab.workloads.index_loads import SHAPES, make_index_load, read_index_load
from bkstore.lab.workloads.traces import TRACES, make_trace
from tests.lab.toys import TOY, measure_toys
from tests.patched_modules import patch_module

Document = dict[str, Any]


@pytest.fixture
def document(tmp_path: Path) -> Document:
    """Return the document of a run of the toy."""
    run = LabRun(tmp_path, rounds=2)
    return build_document(TOY, run, measure_toys(run), ["--rounds", "2"], 1.5)


def test_where_files_are_is_not_said(tmp_path: Path) -> None:
    """A command with a path of this machine is kept with the path's last part."""
    words = ["--world", str(tmp_path / "some world"), "--into", "docs/figures"]
    kept_as = build_document(TOY, LabRun(tmp_path), measure_toys(LabRun(tmp_path)), words, 1.0)[
        "command"
    ]

    assert "bkstore lab toy --world 'some world' --into docs/figures" == kept_as


def test_a_document_says_how_it_was_made(document: Document) -> None:
    """Machine, versions, seed, scale, data and absent peers stand beside the rows."""
    assert (FORMAT, "toy", 20260801, 1.0, 2) == tuple(
        document[name] for name in ("format", "experiment", "seed", "scale", "rounds")
    )
    assert ["no_such_library"] == document["absent"]
    assert "bkstore lab toy --rounds 2" == document["command"]
    assert {"numpy", "rocksdict", "bkstore"} <= document["packages"].keys()
    assert document["machine"]["cores"] >= 1
    assert ["7 rows, the largest 2000."] == document["finding"]
    assert [column.name for column in TOY.columns] == list(document["rows"][0])


def test_rows_have_declared_columns_and_names_of_their_own(tmp_path: Path) -> None:
    """A column that is not declared is an error, and so are two rows with one name."""
    run = LabRun(tmp_path)
    with pytest.raises(KeyError, match="other"):
        build_document(TOY, run, [{"side": "a", "size": 1, "other": 2}], [], 0)
    with pytest.raises(ValueError, match="same given columns"):
        build_document(
            TOY, run, [{"side": "a", "size": 1}, {"side": "a", "size": 1, "time": 3.0}], [], 0
        )


def test_saved_and_read_again(document: Document, tmp_path: Path) -> None:
    """What is read again is what was saved; other files and other experiments are refused."""
    target = tmp_path / "toy.json"
    save_document(document, target)

    assert document == read_document(TOY, target)
    for text, reason in (
        ("{", "no result can be read"),
        ('{"format": "x"}', "format 'x'"),
        ("[]", "format None"),
        (json.dumps({**document, "experiment": "game"}), "a result of game, not of toy"),
    ):
        target.write_text(text)
        with pytest.raises(InvalidArgument, match=reason):
            read_document(TOY, target)
    with pytest.raises(InvalidArgument, match=r"nowhere\.json: cannot be read: No such file"):
        read_document(TOY, tmp_path / "nowhere.json")


def test_the_same_document_is_the_same_picture(document: Document) -> None:
    """An SVG has the titles, the axes with units, the sides and no date, twice the same bytes."""
    pytest.importorskip("matplotlib")
    first, again = (draw_picture(TOY, document, "svg") for _ in range(2))
    text = first.decode()

    assert first == again
    assert "{http://www.w3.org/2000/svg}svg" == ElementTree.fromstring(text).tag
    for words in ("Room", "Playing", "room, bytes", "playing, ms", "children", "two &amp; &lt;"):
        assert words in text, words
    assert "dc:date" not in text
    assert draw_picture(TOY, document, "png").startswith(b"\x89PNG")


def test_a_panel_shows_the_rows_it_names(document: Document) -> None:
    """Rows are chosen by one value or by any of several, and need a value to be shown."""
    chosen = [panel.rows(document["rows"]) for panel in TOY.panels]

    assert [6, 4, 3] == [len(rows) for rows in chosen]


def test_the_page_loads_nothing(document: Document) -> None:
    """The page has question, finding, picture, a table for each panel and one of all rows, folded
    up; names are escaped."""
    pytest.importorskip("matplotlib")
    pictures = [draw_picture(TOY, document, "svg", columns) for columns in (3, 1)]
    text = build_page(TOY, document, *pictures).decode()

    assert text.startswith("<!doctype html>")
    panels, _, all_rows = text.partition("<details>")
    assert len(document["rows"]) + 1 == all_rows.count("<tr>")
    titles = re.findall("<caption>(.*?)</caption>", panels)
    assert ["Room, bytes", "Playing, ms", "By toy, ms"] == titles
    # A header each; 3 sizes, 3 sizes, 3 toys.
    assert 3 + 3 + 3 + 3 == panels.count("<tr>")
    assert "<th>two &amp; &lt;three&gt;</th>" in panels
    assert "<li>7 rows, the largest 2000.</li>" in text
    assert "two &amp; &lt;three&gt;</td>" in text
    assert "<three>" not in text
    assert "<script" not in text
    assert 2 == len(re.findall('<svg class="(?:wide|narrow)" ', text))
    ids = re.findall(r' id="([^"]+)"', text)
    referred = set(re.findall(r'(?:url\(|href=")#([^")]+)', text))
    assert referred
    assert [] == [name for name in referred if 1 != ids.count(name)]  # into its own picture
    assert "default-src 'none'" in text.replace("&#x27;", "'")


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A result is measured once, and drawn and compared from its file as often as one likes."""
    pytest.importorskip("matplotlib")
    saved, again = tmp_path / "toy.json", tmp_path / "again.json"
    assert 0 == main(TOY, ["--scale", "0.5", "--seed", "7", "--json", str(saved)])
    known = json.loads(saved.read_text())
    words = ["--from", str(saved), "--json", str(again), "--compare", str(saved)]
    pictures = [("toy.svg", "toy.html"), ("toy.png",)]
    for names in pictures:
        targets = [word for name in names for word in ("--picture", str(tmp_path / name))]
        assert 0 == main(TOY, [*words, *targets])
    for name in chain(*pictures):
        assert (tmp_path / name).stat().st_size > 1000

    assert (0.5, 7) == (known["scale"], known["seed"])
    assert known == json.loads(again.read_text())
    assert "nothing moved" in capsys.readouterr().out
    (tmp_path / "kept").mkdir()
    assert 0 == main(TOY, ["--from", str(saved), "--markdown", "--into", str(tmp_path / "kept")])
    assert known == json.loads(next((tmp_path / "kept").iterdir()).read_text())
    assert "| toy | children | name | room, bytes | playing, ms |" in capsys.readouterr().out


def test_a_row_may_have_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """It stands in the table in place of figures, and the exit status is 1."""
    columns = (*TOY.columns, ResultColumn("error", "error", kind="told"))
    rows = [{"side": "a", "size": 1, "error": "it broke"}]
    broken = replace(TOY, columns=columns, measure=lambda _: rows, summarize=lambda _: [])

    assert 1 == main(broken, [])
    assert "it broke" in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["--json", "kept.json"]])
def test_rows_are_kept_if_the_summary_fails(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In the file of --json, else in one of the temporary directory; read again, they are
    summarized by what was mended."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def fail(rows: Rows) -> list[str]:
        raise KeyError("a column")

    with pytest.raises(SummaryError) as caught:
        main(replace(TOY, summarize=fail), words)
    (kept,) = tmp_path.glob("*.json")

    assert isinstance(caught.value.__cause__, KeyError)
    assert f"the rows are in {kept.name if words else kept}" in capsys.readouterr().err
    assert 0 == main(TOY, ["--from", str(kept)])
    assert "- 7 rows, the largest 2000." in capsys.readouterr().out


def test_an_experiment_has_options_and_tables_of_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its options arrive with the run; rows stand in the tables that it says."""

    def more(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--longer", type=int, default=0)

    def measured(run: LabRun) -> Iterator[Row]:
        yield from measure_toys(run)
        yield {"side": "more", "size": run.options.longer, "bytes": 1}

    titled = replace(
        TOY, add_options=more, measure=measured, table_title=lambda row: f"those of {row['side']}"
    )
    assert 0 == main(titled, ["--longer", "17", "--markdown"])
    out = capsys.readouterr().out

    assert ["one", "two & <three>", "words", "more"] == [
        table.splitlines()[2].split(" | ")[0].removeprefix("| ") for table in out.split("\n\n")
    ]
    assert "| toy | children | room, bytes |\n| --- | ---: | ---: |\n| more | 17 | 1 |" in out


@pytest.mark.parametrize(
    "words", [["--scale", "0"], ["--rounds", "0"], ["--picture", "x.gif"]], ids=lambda w: w[0]
)
def test_options_that_make_no_sense(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """They are refused before anything is measured."""
    with pytest.raises(SystemExit) as stopped:
        main(TOY, words)

    assert 2 == stopped.value.code
    assert words[0] in capsys.readouterr().err


def test_a_file_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line to stderr and exit 2, before anything is measured."""
    for option in ("--compare", "--into"):
        assert 2 == main(TOY, [option, str(tmp_path / "absent" / "toy.json")])
        assert 1 == len(capsys.readouterr().err.splitlines())


@pytest.mark.parametrize("module", [log_axes, number_format], ids=lambda module: module.__name__)
def test_examples_of_numbers(module: Any) -> None:
    """The examples in docstrings give what they say."""
    ran = doctest.testmod(module)

    assert (0, True) == (ran.failed, ran.attempted > 0)


def test_numbers_as_tables_show_them() -> None:
    """Three digits, or all before the point; so of what is below zero, as differences are."""
    values = (99.95, 100.0, 12345.6, -12345.6, -100.0, -0.012345, 0.0, 1e-9, -7, 1234, True, "x")
    below = ["-12,346", "-100", "-0.0123"]
    texts = ["100", "100", "12,346", *below, "0", "1e-09", "-7", "1,234", "yes", "x"]

    assert texts == [as_text(value) for value in values]


# -- what is measured with


def test_latency_is_of_the_middle_round() -> None:
    """Of each query the median over the rounds counts, then the percentiles are over queries."""
    asked: list[int] = []
    found = measure_latency(asked.append, [1, 2, 3], 5)

    assert [1, 2, 3] * 5 == asked
    assert 0 < found.p50 <= found.p99


def test_a_slow_round_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that took long in one round of three has the latency of its middle round."""
    taken = [1000, 2000, 90_000, 3000, 2000, 5000]  # three rounds of two queries, nanoseconds
    clock = iter([tick for each in taken for tick in (0, each)])
    patch_module(monkeypatch, latencies_and_costs, "time", perf_counter_ns=lambda: next(clock))

    assert (2.5, pytest.approx(2.99)) == measure_latency(lambda _: None, [1, 2], 3)


def test_ways_to_ask_take_turns() -> None:
    """Every way is asked all queries in each round, another one first in each."""
    asked: list[str] = []
    ways = {name: lambda query, name=name: asked.append(f"{name}{query}") for name in "ab"}  # type: ignore[misc]
    found = measure_latencies(ways, [1, 2], 2)

    assert ["a1", "a2", "b1", "b2", "b1", "b2", "a1", "a2"] == asked
    assert {"a", "b"} == found.keys()


def test_spending_counts_bytes(tmp_path: Path) -> None:
    """Bytes given to the system are those that were written, where the system tells."""
    with measure_cost() as spent:
        (tmp_path / "a.sst").write_bytes(bytes(100_000))
    if spent.written is None:
        pytest.skip("this system does not tell")

    assert 100_000 <= spent.written < 110_000
    assert (spent.wall, spent.written) == (median_cost([spent] * 3).wall, spent.written)
    assert (1, 100_000) == measure_files(tmp_path, (".sst",))[:2]
    assert (0, 0, 0) == measure_files(tmp_path, (".log",))


def test_files_that_go_are_not_counted(tmp_path: Path) -> None:
    """RocksDB removes tables behind one's back: what is listed and then gone is no error."""
    (tmp_path / "a.sst").write_bytes(bytes(100))
    (tmp_path / "gone.sst").symlink_to(tmp_path / "missing")

    assert (1, 100) == measure_files(tmp_path, (".sst",))[:2]


def test_sides_take_turns() -> None:
    """Each side is warmed up, then begins a round as often as the others."""
    order: list[str] = []
    sides = [TimedSide(name, lambda name=name: order.append(name)) for name in "abc"]  # type: ignore[misc]
    taken = run_samples(sides, 3, 0)

    assert "abcabcbcacab" == "".join(order)
    assert [3, 3, 3] == [len(one.cpu) for one in taken]
    assert all(one.seconds == sorted(one.cpu)[1] for one in taken)


# -- what goes in, and what is read


@pytest.mark.parametrize("shape", SHAPES)
def test_loads_put_what_they_say(shape: str) -> None:
    """The puts of a load have its entries, each flush in the order of ledgers and entries."""
    load = make_index_load(shape, 1200, 1, rows_per_flush=100)
    found: dict[LedgerId, set[int]] = {name: set() for name in load.expected}
    for flush in load.flushes:
        assert sorted(put.ledger_id for put in flush) == [put.ledger_id for put in flush]
        for put in flush:
            assert (np.diff(put.entry_ids) >= 0).all()
            assert (put.locations > 0).all()
            found[put.ledger_id].update(put.entry_ids.tolist())

    assert {name: set(ids.tolist()) for name, ids in load.expected.items()} == found
    assert load.entries == sum(map(len, found.values()))


def test_a_dump_is_a_load(tmp_path: Path) -> None:
    """The table `entry_ids` of a dump comes in the order of its logs, with the places it
    recorded."""
    pytest.importorskip("pyarrow")
    from bkstore import LedgerStorage
    from bkstore.offline.dump import dump
    from bkstore.testing import workloads

    world = workloads.interleaved(3, 20, scopes=(0, 5))
    with LedgerStorage.open(tmp_path / "b", "db") as storage:
        storage.add_entries(world.records(), master_key=world.master_key)
        storage.flush()
        places = {
            (name, entry): storage.write_paths[0].get_location(name, entry)
            for name, ids in world.expected.items()
            for entry in ids.tolist()
        }
    dump([tmp_path / "b"], tmp_path / "dump")
    load = read_index_load(tmp_path / "dump", 1000, rows_per_flush=7)
    found = {
        (put.ledger_id, entry): place
        for put in load.puts
        for entry, place in zip(put.entry_ids.tolist(), put.locations.tolist())
    }

    assert places == found
    assert {name: ids.tolist() for name, ids in sorted(world.expected.items())} == {
        name: ids.tolist() for name, ids in load.expected.items()
    }
    assert 10 == read_index_load(tmp_path / "dump", 10).entries


@pytest.mark.parametrize("order", TRACES)
def test_traces_ask_for_what_is_there(order: str) -> None:
    """Every read is of an entry that its ledger has, the same for the same seed."""
    entries = {LedgerId(0, 1): np.arange(0, 50, 2), LedgerId(1, 2): np.arange(100)}
    reads = make_trace(order, entries, 500, 3)

    assert 500 == len(reads.queries)
    assert all(entry in entries[ledger] for ledger, entry in reads.queries)
    assert reads.queries == make_trace(order, entries, 500, 3).queries
    assert reads.queries != make_trace(order, entries, 500, 4).queries


def test_zipf_prefers_few() -> None:
    """The most wanted tenth of the rows gets more than half of the reads, of uniform ones not."""
    entries = {LedgerId(0, 1): np.arange(1000)}
    shares = {}
    for order in ("zipf", "uniform"):
        counts = np.sort(np.bincount(make_trace(order, entries, 5000, 1).entry_ids, minlength=1000))
        shares[order] = counts[-100:].sum() / 5000
    hot = np.argsort(np.bincount(make_trace("zipf", entries, 5000, 1).entry_ids, minlength=1000))[
        -50:
    ]

    assert 300 < hot.mean() < 700, "the most wanted rows lie anywhere"
    assert shares["uniform"] < 0.25 < 0.5 < shares["zipf"]


@pytest.mark.parametrize("name", ["lmdb", "plyvel"])
def test_peers_answer_alike(name: str, tmp_path: Path) -> None:
    """What is compared with RocksDB has the same rows, keys and last keys as it."""
    module = pytest.importorskip(name)
    rows = [number.to_bytes(16, "big") for number in (3, 1, 260, 2**100)]
    stores: list[Store] = [
        Database(tmp_path / "a", location_options()),
        (Lmdb if name == "lmdb" else LevelDb)(module, tmp_path / "b"),
    ]
    answers = []
    for store in stores:
        store.put_list(rows, [key[:8] for key in rows], 3)
        store.sync()
        store.compact()
        some = [store.get(key) for key in (*rows, bytes(16))]
        ends = [store.seek_for_prev(key) for key in (*rows, bytes(16), b"\xff" * 16)]
        listed = np.asarray(store.keys(bytes(16), rows[2] + b"\0", 2)).tobytes()
        answers.append((some, ends, listed))
        store.close()

    assert answers[0] == answers[1]
    assert 3 * 16 == len(answers[0][2])
