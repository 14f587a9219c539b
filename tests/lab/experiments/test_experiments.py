"""Each experiment of the lab at a tiny size: its numbers that are known beforehand, its counts.

No times. The documents are those of `bkstore lab NAME --scale 0.001 --rounds 1 --seed 1`.
"""

from __future__ import annotations

import importlib.util
import io
import json
import math
import re
from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from html import escape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from bkstore import Bookie, LedgerId, LedgerStorage
from bkstore.errors import InvalidArgument, NoSuchEntry
from bkstore.formats.entry import Coder
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.memtable import MemtableIndex
from bkstore.index.rocks import RocksIndex
from bkstore.lab import Experiment, LabRun, main
from bkstore.lab.catalog import QUESTIONS, load_experiment
from bkstore.lab.command import make_parser
from bkstore.lab.experiment import columns_of_kind
from bkstore.lab.experiments import availability
from bkstore.lab.experiments.layouts import DETAILED_SHAPE
from bkstore.lab.experiments.pages import PAGE_SIZES, PagePool, make_ledgers
from bkstore.lab.progress import StepProgress
from bkstore.lab.stores.index_sides import Layered
from bkstore.lab.stores.read_cache import ReadCache
from bkstore.lab.workloads.index_loads import make_index_load
from bkstore.lab.workloads.recorded_reads import read_recording, record_reads, span_entries
from bkstore.lab.workloads.traces import Trace, make_trace
from tests.paths import ROOT

NAMES = tuple(QUESTIONS)
SHORT = ("pages", "keys")
"""Those that are run twice in a short test run."""

Rows = list[dict[str, Any]]
Result = Callable[[str], dict[str, Any]]


def _experiment(name: str) -> Experiment:
    return load_experiment(name)


def _run(name: str, folder: Path, *words: str) -> dict[str, Any]:
    target = folder / f"{name}-{len(list(folder.iterdir()))}.json"
    assert 0 == main(_experiment(name), [*words, "--json", str(target)])
    document: dict[str, Any] = json.loads(target.read_text())
    return document


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Return what runs an experiment at its tiny size, once."""
    folder = tmp_path_factory.mktemp("experiments")

    @cache
    def run(name: str) -> dict[str, Any]:
        return _run(name, folder, "--scale", "0.001", "--rounds", "1", "--seed", "1")

    return run


@pytest.mark.parametrize("name", NAMES)
def test_a_panel_has_one_figure_for_each_value(name: str, result: Result) -> None:
    """Tables by panel leave none out: x and series together name one row."""
    experiment, rows = _experiment(name), result(name)["rows"]
    for panel in experiment.panels:
        keys = [
            (row[panel.x], panel.series_column and row[panel.series_column])
            for row in panel.rows(rows)
        ]

        assert len(keys) == len(set(keys)), panel.title


@pytest.mark.parametrize("name", NAMES)
def test_a_tiny_run_is_whole(name: str, result: Result) -> None:
    """There are rows, a finding of sentences, and a value in each column at least once."""
    document = result(name)
    empty = [
        column["name"]
        for column in document["columns"]
        if all(row[column["name"]] is None for row in document["rows"])
    ]

    assert name == document["experiment"]
    assert [] == empty
    assert document["finding"]
    assert all(sentence.endswith(".") and "nan" not in sentence for sentence in document["finding"])
    assert document["finding"] == _experiment(name).summarize(document["rows"])


@pytest.mark.parametrize("name", NAMES)
def test_every_panel_has_rows(name: str, result: Result) -> None:
    """A panel that chooses rows finds some, and its series have a value at each place."""
    experiment = _experiment(name)

    for panel in experiment.panels:
        if name == "workload" and panel.where.get("operation") not in (None, "read", "write"):
            assert [] == panel.rows(result(name)["rows"])  # not among the operations of this run
            continue
        assert panel.rows(result(name)["rows"]), panel.title
        for column in filter(
            None, (panel.x, panel.y, panel.series_column, panel.tick_column, *panel.where)
        ):
            assert experiment.column(column)


def test_a_tiny_run_is_drawn(result: Result, tmp_path: Path) -> None:
    """The picture is drawn from the JSON alone, with each panel's title."""
    pytest.importorskip("matplotlib")
    saved, picture = tmp_path / "a.json", tmp_path / "a.svg"
    saved.write_text(json.dumps(result("deletes")))
    assert 0 == main(_experiment("deletes"), ["--from", str(saved), "--picture", str(picture)])
    text = "".join(ElementTree.fromstring(picture.read_text()).itertext())

    assert [] == [p.title for p in _experiment("deletes").panels if p.title not in text]


def _counts(experiment: Experiment, rows: Rows) -> list[list[Any]]:
    columns = columns_of_kind(experiment.columns, "given", "count")
    return [[row[column.name] for column in columns] for row in rows]


@pytest.mark.parametrize(
    "name",
    [*SHORT, *(pytest.param(n, marks=pytest.mark.long) for n in NAMES if n not in SHORT)],
)
def test_the_same_seed_gives_the_same_counts(name: str, result: Result, tmp_path: Path) -> None:
    """What is counted, not measured, is the same in every run."""
    again = _run(name, tmp_path, "--scale", "0.001", "--rounds", "1", "--seed", "1")
    experiment = _experiment(name)

    assert _counts(experiment, again["rows"]) == _counts(experiment, result(name)["rows"])


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_quick_run(name: str, tmp_path: Path) -> None:
    """A tenth of the usual size runs, and draws its page."""
    pytest.importorskip("matplotlib")
    target = tmp_path / "page.html"
    words = ["--scale", "0.1", "--rounds", "2", "--picture", str(target)]
    document = _run(name, tmp_path, *words)

    assert all(escape(sentence) in target.read_text() for sentence in document["finding"])


@pytest.mark.parametrize("name", NAMES)
def test_each_is_a_command(name: str) -> None:
    """`bkstore lab NAME` runs it; the module says so in its first lines, the list its question."""
    text = (ROOT / "bkstore/lab/experiments" / f"{name}.py").read_text(encoding="utf-8")

    assert f"`bkstore lab {name}`" in text.partition('"""\n\n')[0]
    assert name == _experiment(name).name
    assert QUESTIONS[name] == _experiment(name).question


def test_all_experiments_are_listed() -> None:
    """Each module of the experiments is in the catalog, in the order of the page."""
    modules = (ROOT / "bkstore/lab/experiments").glob("[!_]*.py")
    page = (ROOT / "docs/lab.md").read_text(encoding="utf-8")

    assert sorted(QUESTIONS) == sorted(path.stem for path in modules)
    assert list(QUESTIONS) == re.findall(r"^\| `bkstore lab (\w+)`", page, re.M)


@pytest.mark.parametrize("name", NAMES)
def test_the_steps_are_those_expected(name: str, tmp_path: Path) -> None:
    """An experiment begins as many steps as it expects, so that shares end at the whole."""
    steps = StepProgress(io.StringIO())
    options = make_parser(_experiment(name)).parse_args([])
    run = LabRun(tmp_path, 0.001, 1, rounds=1, progress=steps, options=options)
    assert list(_experiment(name).measure(run))

    assert steps.expected_steps == steps.begun_steps > 1


# -- numbers that are known beforehand


def _pages(ids: Any, page_size: int) -> int:
    return 1024 + (int(ids[-1]) // (page_size // 8) + 1) * page_size


def test_layouts_list_what_was_put(result: Result) -> None:
    """Every layout lists each entry once; index files take whole pages, a memtable 16 bytes."""
    rows = result("layouts")["rows"]
    for row in rows:
        assert row["entries"] == row["listed"]
    files = {row["shape"]: row for row in rows if row["side"] == "idx files"}
    for shape, row in files.items():
        ids = make_index_load(shape, 600, 1).expected.values()
        known = sum(_pages(one, 8192) for one in ids) / row["entries"]

        assert (known, len(ids)) == (row["bytes_per_entry"], row["files"])
    assert {16} == {row["bytes_per_entry"] for row in rows if row["side"] == "memtable"}


def test_options_of_rocksdb_are_applied(result: Result) -> None:
    """Less compression and more bits of the filter make larger tables."""
    rows = result("layouts")["rows"]
    size = {row["side"]: row["bytes_per_entry"] for row in rows if row["shape"] == DETAILED_SHAPE}

    assert size["zstd"] < size["rocksdb"] < size["no compression"]
    assert size["no bloom filter"] < size["rocksdb"] < size["20 bloom bits"]
    assert size["rocksdb"] < size["4 KiB blocks"]


def test_memory_goes_before_the_disk(tmp_path: Path) -> None:
    """Both are asked for locations, single ones and many; memory has the newer ones."""
    memory = MemtableIndex()
    memory.put_many(7, [2, 3], [20, 30])
    with RocksIndex(tmp_path, writable=True) as disk:
        disk.put_many(7, [0, 2], [1, 2])
        both = Layered(memory, disk)

        assert [1, None, 20, 30] == [both.get(7, entry) for entry in range(4)]
        assert [1, 0, 20, 30] == both.get_many(7, np.arange(4)).tolist()


def test_deletes_leave_what_is_live(result: Result) -> None:
    """A scan finds the live rows and no others, however ledgers were deleted."""
    for row in result("deletes")["rows"]:
        ledgers = 4 * min(row["step"], 12)
        if row["strategy"] != "nothing deleted":
            ledgers = min(ledgers, 8) if row["step"] <= 12 else 2

        assert ledgers * 500 == row["live"] == row["rows"]


def test_tombstones_are_seen(result: Result) -> None:
    """Deleting leaves tombstones in tables, rows one each; where nothing is deleted are none."""
    most: dict[str, int] = {}
    for row in result("deletes")["rows"]:
        most[row["strategy"]] = max(most.get(row["strategy"], 0), row["tombstones"])

    assert 0 == most["nothing deleted"]
    assert 4 <= most["deleteRange"] < 500 < most["point deletes"]


def test_pages_are_whole(result: Result) -> None:
    """A file is its header and as many pages as its highest entry needs."""
    sizes = [row for row in result("pages")["rows"] if not row["trace"]]

    assert set(PAGE_SIZES) == {row["page"] << 10 for row in sizes}
    for row in sizes:
        ledgers = make_ledgers(row["shape"], 600, 1)
        known = sum(_pages(ids, row["page"] << 10) for ids in ledgers.values())
        assert known / row["entries"] == row["bytes_per_entry"]


@pytest.mark.parametrize("order", ["zipf", "sequential"])
def test_the_pool_drops_the_least_recently_used(order: str, tmp_path: Path) -> None:
    """Pages read are those that a list of the most recently used ones does not have."""
    ledgers = make_ledgers("long", 600, 1)
    reads = make_trace(order, ledgers, 500, 1).queries
    with HierarchicalIndex(tmp_path, writable=True, page_size=1024) as index:
        for ledger, ids in ledgers.items():
            index.put_many(ledger, ids, ids + 1000)
        index.flush()
        pool = PagePool(index, 1024, 5)
        answers = [pool.get(*query) for query in reads]
        pool.close()
    recent: list[tuple[LedgerId, int]] = []
    missed = 0
    for ledger, entry in reads:
        page = (ledger, entry // 128)
        missed += page not in recent
        recent = [page, *(other for other in recent if other != page)][:5]

    assert [entry + 1000 for _, entry in reads] == answers
    assert missed == pool.page.cache_info().misses == pool.bytes_read // 1024


def test_keys_have_their_words(result: Result) -> None:
    """16 and 24 bytes; 8 more in RocksDB's log, 9 in the record."""
    by = {row["key"]: row for row in result("keys")["rows"]}
    narrow, wide = by["ledger, entry"], by["scope, ledger, entry"]

    assert {16: 36, 24: 45} == {row["key_bytes"]: row["record_bytes"] for row in by.values()}
    assert 8 == pytest.approx(wide["log_per_entry"] - narrow["log_per_entry"], abs=0.1)
    assert {8 * 500} == {row["rows"] for row in by.values()}


def test_filters_have_their_bytes(result: Result) -> None:
    """Bits by Guava's rule; what is measured is what the bits that are set make likely."""
    rows = [row for row in result("blooms")["rows"] if row["side"] == "bkstore"]
    for row in rows:
        bits = -row["ids"] * math.log(row["rate"]) / math.log(2) ** 2
        spread = math.sqrt(row["filled"] * (1 - row["filled"]) / 2000)

        assert math.ceil(math.floor(bits) / 64) * 8 == row["bytes"]
        assert max(1, round(-math.log(row["rate"]) / math.log(2))) == row["hashes"]
        assert row["filled"] == pytest.approx(row["measured"], abs=5 * spread + 0.01)
    assert 8 + 3 == len(rows)


def test_forms_have_their_bytes(result: Result) -> None:
    """64 bytes and 24 a group, or a sequence in BookKeeper's form; bits are a bit an entry."""
    rows = {(row["pattern"], row["form"]): row for row in result("availability")["rows"]}

    for pattern, groups, sequences in (("2 of 3", 1, 400), ("3 of 5", 3, 241)):
        assert 64 + 24 * groups == rows[pattern, "grouped"]["bytes"]
        assert 64 + 24 * sequences == rows[pattern, "BookKeeper's"]["bytes"]
        assert 1200 // 8 == rows[pattern, "bit vector"]["bytes"]
    assert 88 == rows["all", "BookKeeper's"]["bytes"]


@pytest.mark.parametrize("count", [6, 7, 8, 9, 20])
@pytest.mark.parametrize("form", ["grouped", "BookKeeper's", "bit vector", "roaring"])
def test_forms_say_what_is_missing(form: str, count: int) -> None:
    """Each form's set of missing ids is that of plain sets, behind the last id and byte too."""
    forms = availability.FORMS
    if form == "roaring":
        forms = {form: availability.roaring_form(pytest.importorskip("pyroaring"))}
    side, ids = forms[form], [1, 2, 5]
    held = side.decode(side.encode(np.array(ids)))
    missing = sorted(set(range(count)) - set(ids))

    assert missing == side.ids(side.missing(held, count)).tolist()
    assert len(missing) == side.count_missing(held, count)


def test_reads_are_hits_or_fetches(result: Result) -> None:
    """Every read is one or the other; without read-ahead nothing is fetched but what is asked."""
    rows = [row for row in result("cache")["rows"] if row["series"] != "tail"]
    for row in rows:
        assert row["reads"] == round(row["hit_ratio"] * row["reads"]) + row["fetches"]
    alone = [row for row in rows if row["series"] == "entries" and row["ahead"] == 1]

    assert {True} == {row["fetches"] / row["reads"] == row["amplification"] for row in alone}


@pytest.mark.parametrize("ahead", [1, 4])
def test_the_read_cache_drops_the_least_recently_read(ahead: int, tmp_path: Path) -> None:
    """Fetches are of records that the most recent ones are not; answers are right."""
    ids, payload = {LedgerId(0, 7): np.arange(200)}, bytes(64)
    reads = make_trace("zipf", ids, 400, 1).queries
    with LedgerStorage.open(tmp_path, "db") as storage:
        batch = Coder("CRC32C").encode_batch(7, ids[LedgerId(0, 7)], [payload] * 200)
        storage.add_batch(batch, master_key=b"k")
        records = dict(enumerate(batch.records()))
        cached = ReadCache(storage, 20 * 100, ahead)
        answers = [cached.read(*query) for query in reads]
    recent: OrderedDict[int, None] = OrderedDict()
    fetches = 0
    for _, entry in reads:
        fetches += entry not in recent
        wanted = [entry] if entry in recent else range(entry, min(entry + ahead, 200))
        for each in wanted:
            recent.pop(each, None)
            recent[each] = None
        while len(recent) > 20:
            recent.popitem(last=False)

    assert [records[entry] for _, entry in reads] == answers
    assert (fetches, 400 - fetches) == (cached.fetches, cached.hits)


def test_a_batch_is_a_call(result: Result) -> None:
    """Reads and adds take as many calls as there are batches; size 0 makes one for each entry."""
    rows = result("batch")["rows"]
    for row in rows:
        assert math.ceil(row["entries"] / (row["batch"] or 1)) == row["requests"]
        assert ("server" in row and row["server"] is not None) == (row["where"] != "in process")
    places = ("in process", "over the socket")

    assert {("reads", place) for place in places} | {("adds", place) for place in places} == {
        (row["what"], row["where"]) for row in rows
    }


def test_recorded_reads_are_an_order_of_reading(tmp_path: Path) -> None:
    """What is read of a bookie is read again by `cache --trace`, hit by hit."""
    payload, target = bytes(50), tmp_path / "reads"
    with Bookie.open(tmp_path / "bookie", "sorted") as bookie:
        for ledger in (LedgerId(0, 3), LedgerId(9, 4)):
            batch = Coder("CRC32C").encode_batch(ledger, range(60), [payload] * 60)
            bookie.add_batch(batch, b"k" * 20, sync=False)
        with record_reads(bookie, target):
            for entry in (10, 11, 10):
                bookie.read_entry(3, entry)
            bookie.read_entry(LedgerId(9, 4))
            assert 5 == len(bookie.read_entries(3, 20, max_count=5))
            with pytest.raises(NoSuchEntry):
                bookie.read_entry(3, 999)
        bookie.read_entry(3, 7)
    reads = read_recording(target)
    first, second = LedgerId(0, 3), LedgerId(9, 4)
    expected = [*((first, n) for n in (10, 11, 10)), (second, 59)]
    expected += [(first, n) for n in range(20, 25)]

    assert ["bkstore-reads 1", "0 3 10 1"] == target.read_text().splitlines()[:2]
    assert expected == reads.queries
    assert {first: range(10, 25), second: range(59, 60)} == {
        name: range(ids[0], ids[-1] + 1) for name, ids in span_entries(reads, 16).items()
    }

    words = ["--scale", "0.001", "--rounds", "1", "--trace", str(target)]
    document = _run("cache", tmp_path, *words)
    rows = [row for row in document["rows"] if row["trace"] == "recorded"]
    whole = {row["ahead"]: row for row in rows if row["series"] == "entries" and row["room"] == 50}

    assert {9} == {row["reads"] for row in rows}
    assert 9 - 1 == whole[1]["fetches"], "one entry is read twice, and kept"
    assert document["finding"][-1].startswith("For the recorded reads, cheapest in 10 % is ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "begins with ''"),
        ("reads 2\n0 3 1 1\n", "begins with 'reads 2'"),
        ("bkstore-reads 1\n", "begins with 'bkstore-reads 1'"),
        ("bkstore-reads 1\n0 3 1\n", "line 2"),
        ("bkstore-reads 1\n0 3 1 1\n0 3 -1 1\n", "line 3: 1 entries from -1 on"),
        ("bkstore-reads 1\n0 3 1 0\n", "line 2: 0 entries"),
        ("bkstore-reads 1\n0 3 1 99999999999\n", "line 2: more than"),
    ],
    ids=["empty", "format", "no reads", "three words", "negative", "none", "too many"],
)
def test_a_recording_that_is_none(text: str, said: str, tmp_path: Path) -> None:
    """It is refused by line and reason before anything is measured."""
    path = tmp_path / "reads"
    path.write_text(text)
    with pytest.raises(InvalidArgument, match=said):
        read_recording(path)


def test_reads_that_span_too_much() -> None:
    """Ledgers are not made for a recording that spans more entries than may be made."""
    reads = Trace([LedgerId(0, 1)], np.array([0, 0]), np.array([5, 2**50]))
    with pytest.raises(InvalidArgument, match="more than 100"):
        span_entries(reads, 100)


@pytest.mark.parametrize(
    ("name", "peers"),
    [
        ("keys", ("lmdb", "plyvel")),
        ("blooms", ("rbloom", "fastbloom_rs")),
        ("availability", ("pyroaring",)),
    ],
)
def test_peers_are_measured_or_named(name: str, peers: tuple[str, ...], result: Result) -> None:
    """A library to compare with is a side where it is installed, and absent by name elsewhere."""
    document = result(name)
    text = json.dumps(document["rows"])
    absent = sorted(peer for peer in peers if importlib.util.find_spec(peer) is None)

    assert absent == document["absent"]
    assert [] == [
        peer for peer in peers if peer not in absent and peer.removeprefix("py") not in text
    ]


@pytest.mark.long
def test_a_dump_is_data(tmp_path: Path) -> None:
    """With `--dump` the entries of a dump are a shape of `layouts` and the ledgers of `cache`."""
    pytest.importorskip("pyarrow")
    from bkstore.offline.dump import dump
    from bkstore.testing import workloads

    world = workloads.interleaved(5, 40)
    with LedgerStorage.open(tmp_path / "b", "db") as storage:
        storage.add_entries(world.records(), master_key=world.master_key)
    dump([tmp_path / "b"], tmp_path / "dump")
    words = ["--scale", "0.001", "--rounds", "1", "--dump", str(tmp_path / "dump")]
    rows = _run("layouts", tmp_path, *words)["rows"]
    mine = [row for row in rows if row["shape"] == "dump"]

    assert {(200, 5, 200)} == {(row["entries"], row["ledgers"], row["listed"]) for row in mine}
    assert _run("cache", tmp_path, *words)["rows"]
