"""The documentation, run: examples, transcripts, bytes on the format pages, links, doctests.

What the pages use to be checkable: a `python` block runs, and becomes a file if its first line
is `# FILE.py`; an `output` block behind it is what it prints; in a `console` block `$ bkstore ...`
runs and what follows is its output ("..." stands for anything, white space is ignored); the first
line `# needs spark` keeps a block for the Spark run; `<!-- example: NAME -->` names the block
behind it. A page that begins with `<!-- needs zookeeper -->` is run by `test_ensemble_pages`.
"""

from __future__ import annotations

import doctest
import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bkstore import Availability, BookieDir, CorruptionError, LedgerId, UnsupportedLayout, tables
from bkstore.cli.commands import COMMANDS
from bkstore.cli.main import make_parser
from bkstore.formats import cookie, idxfile, journal, ledgerdata
from bkstore.index import scope_marker
from bkstore.index.api import LedgerState
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks import RocksIndex, keys
from bkstore.storage.journal import JournalWriter, scan_journal, write_last_mark
from tests.docs.format_pages import FORMATS, shown_bytes, shown_text
from tests.docs.installed_pages import OPTIONAL_MODULES, PageRunner, read_install_line
from tests.docs.page_blocks import FENCE, PAGES, README, blocks
from tests.docs.page_runs import NEEDS_SPARK, run_page
from tests.paths import ROOT

MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted(ROOT.glob("bkstore/**/*.py"))
    if path.name != "__main__.py"
]

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HTML_LINK = re.compile(r'\b(?:href|src|srcset)="([^"]*)"')

page_parameter = pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))


# -- running pages


def _needs_spark(page: Path) -> bool:
    return any(block.text.startswith(NEEDS_SPARK) for block in blocks(page))


def _needs_zookeeper(page: Path) -> bool:
    return page.read_text(encoding="utf-8").startswith("<!-- needs zookeeper -->")


@pytest.fixture(scope="module")
def page_runner() -> Iterator[PageRunner]:
    """Yield what runs pages without packages that they do not name."""
    runner = PageRunner()
    yield runner
    runner.close()


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if not _needs_zookeeper(page)],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_page_runs(page: Path, tmp_path: Path, page_runner: PageRunner) -> None:
    """A page's examples run from top to bottom and print what the page shows, with the core and
    what the page says to install; pages without that line have all that is installed."""
    line = read_install_line(page)
    modules = OPTIONAL_MODULES if line.text is None else line.modules
    for module in line._replace(extras=line.extras - {"peers"}).modules:  # examples run without
        pytest.importorskip(module)

    problem = page_runner.run(page, tmp_path, modules)
    assert problem == "", problem


LONG_WITH_SPARK = "command-line.md"
"""Its examples start a session each; by default it runs without those, by `test_page_runs`."""


def _marks(page: Path) -> tuple[pytest.MarkDecorator, ...]:
    return (pytest.mark.long,) if page.name == LONG_WITH_SPARK else ()


@pytest.mark.spark
@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=_marks(p), id=p.name) for p in PAGES if _needs_spark(p)],
)
def test_page_runs_with_spark(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page's Spark examples run too, behind the others."""
    pytest.importorskip("pyspark")
    monkeypatch.chdir(tmp_path)
    run_page(page, spark=True)


@page_parameter
def test_command_lines_parse(page: Path) -> None:
    """Every `bkstore` command line on a page has the options that the command has."""
    for block in blocks(page):
        for line in block.text.replace("\\\n", " ").splitlines():
            command = line.removeprefix("$ ").split("|")[0].split(" > ")[0]
            if command.startswith("bkstore ") and block.kind in ("console", "sh"):
                make_parser().parse_args(shlex.split(command, comments=True)[1:])


def test_readme_names_every_command() -> None:
    """The README names every command and no other."""
    text = README.read_text(encoding="utf-8")
    named = set(re.findall(r"(?:`|\$ |^)bkstore ([a-z][\w-]*)", text, re.MULTILINE))

    assert set(COMMANDS) == named


def _anchors(page: Path) -> set[str]:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@page_parameter
def test_links_resolve(page: Path) -> None:
    """A relative link leads to a file of the repository, and to a heading of it."""
    broken = []
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for link in _LINK.findall(text) + _HTML_LINK.findall(text):
        if re.match(r"\w+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            broken.append(link)

    assert [] == broken


@pytest.mark.parametrize("name", MODULES)
def test_doctests(name: str) -> None:
    """The examples in a module's docstrings give what they say."""
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"optional dependency: {error}")

    assert 0 == doctest.testmod(module).failed


# -- bytes on the format pages


FIRST = [1, 2, 4, 5, 7, 8, 10, 11]
SECOND = [1, 2, 3, 6, 7, 8, 11, 13, 16, 17, 18, 21, 22]
LONG = Availability.from_ranges([(0, 2**31 + 9)])


@pytest.mark.parametrize(
    ("name", "here", "encoding"),
    [
        ("first", Availability.from_entries(FIRST), "grouped"),
        ("first-built", Availability.from_entries(FIRST), "bookkeeper"),
        ("second", Availability.from_entries(SECOND), "grouped"),
        ("second-built", Availability.from_entries(SECOND), "bookkeeper"),
        ("long-run", LONG, "grouped"),
    ],
)
def test_availability_page(name: str, here: Availability, encoding: Any) -> None:
    """BP-34's worked examples encode to the bytes of the page, and decode from them."""
    shown = shown_bytes("availability.md", name)

    assert shown == here.to_bytes(encoding)
    assert here == Availability.from_bytes(shown)


def test_availability_page_refusals() -> None:
    """Each group that the page says is refused is refused with that reason; compat takes some."""
    rows = re.findall(
        r"^(-?\d+) (-?\d+) (-?\d+) (-?\d+) +; (.*)$", shown_text("availability.md", "refused"), re.M
    )

    assert 7 <= len(rows)
    for first, last, size, period, reason in rows:
        data = bytearray(64)
        data[7] = 1
        for value, width in ((first, 8), (last, 8), (size, 4), (period, 4)):
            data += int(value).to_bytes(width, "big", signed=True)
        with pytest.raises(CorruptionError, match=re.escape(reason)):
            Availability.from_bytes(data)


EXAMPLE_LEDGER = 0x1234
EXAMPLE_KEY = bytes.fromhex("2e2a69d870796fe05c0e77c52a29ce5e4222b758")
EXAMPLE_LAC = bytes.fromhex("00000000000012340000000000000002fc6dcbe8")
EXAMPLE_ENTRIES = {0: 2 << 32 | 1028, 1: 2 << 32 | 1100, 3: 2 << 32 | 1200}
SCOPED = LedgerId(0x550E8400E29B41D4, 0xA716446655440000)


def _write_example(index: HierarchicalIndex | RocksIndex, ledger: int | LedgerId) -> None:
    index.set_state(ledger, LedgerState(EXAMPLE_KEY, fenced=True, explicit_lac=EXAMPLE_LAC))
    index.put_many(ledger, list(EXAMPLE_ENTRIES), list(EXAMPLE_ENTRIES.values()))


def test_idxfile_page_is_what_is_written(tmp_path: Path) -> None:
    """The page's file is, byte for byte, the one that the index writes for that ledger."""
    with HierarchicalIndex(tmp_path, writable=True) as index:
        _write_example(index, EXAMPLE_LEDGER)
    written = tmp_path / "current" / "12" / "34" / "1234.idx"

    assert shown_bytes("idxfile.md", "file") == written.read_bytes()


def test_idxfile_page_is_what_is_read(tmp_path: Path) -> None:
    """The page's file reads back as the state and entries that the page says."""
    path = tmp_path / "current" / idxfile.index_path(LedgerId.of(EXAMPLE_LEDGER))
    path.parent.mkdir(parents=True)
    path.write_bytes(shown_bytes("idxfile.md", "file"))
    with BookieDir(tmp_path) as bookie:
        entries, locations = bookie.index.items(EXAMPLE_LEDGER)
        state = bookie.index.state(EXAMPLE_LEDGER)

    assert EXAMPLE_ENTRIES == dict(zip(entries.tolist(), locations.tolist()))
    assert LedgerState(EXAMPLE_KEY, True, False, EXAMPLE_LAC) == state


def test_idxfile_page_version_0() -> None:
    """A version 0 header has no explicit LAC field; the page's bytes encode and decode so."""
    header = idxfile.IdxHeader(EXAMPLE_KEY, version=0)

    assert shown_bytes("idxfile.md", "version-0") == idxfile.encode_header(header)
    assert header == idxfile.decode_header(shown_bytes("idxfile.md", "version-0"))


def test_idxfile_page_paths() -> None:
    """The page's paths are those of its ledgers, both ways, all scopes."""
    rows = [line.split() for line in shown_text("idxfile.md", "paths").splitlines()]

    assert 8 <= len(rows)
    for text, path in rows:
        ledger = LedgerId.parse(text)

        assert path == idxfile.index_path(ledger)
        assert ledger == idxfile.parse_index_path(tuple(path.split("/")))


@pytest.mark.parametrize(
    ("name", "ledger"), [("location", LedgerId.of(EXAMPLE_LEDGER)), ("location-128", SCOPED)]
)
def test_rocksdb_page_location_rows(name: str, ledger: LedgerId) -> None:
    """The page's location rows are what the key and value builders make."""
    key, value = (
        shown_bytes("rocksdb.md", f"{name}-key"),
        shown_bytes("rocksdb.md", f"{name}-value"),
    )
    entry, location = 3, EXAMPLE_ENTRIES[3]

    assert key == keys.entry_key(ledger, entry)
    assert [key] == keys.entry_keys(ledger, np.array([entry]))
    assert [value] == keys.encode_locations(np.array([location]))
    assert 8 * keys.key_words(ledger) == len(key)


def test_rocksdb_page_ledger_rows() -> None:
    """The page's rows of `ledgers` encode and decode as it says, flags row and scopes too."""
    data = ledgerdata.LedgerData(EXAMPLE_KEY, True, EXAMPLE_LAC)
    plain = keys.ledger_key(LedgerId.of(EXAMPLE_LEDGER))

    assert shown_bytes("rocksdb.md", "ledger-value") == ledgerdata.encode(data)
    assert data == ledgerdata.decode(shown_bytes("rocksdb.md", "ledger-value"))
    assert shown_bytes("rocksdb.md", "ledger-key") == plain
    assert shown_bytes("rocksdb.md", "rebuilt-key") == plain + bytes(8)
    assert shown_bytes("rocksdb.md", "ledger-128-key") == keys.ledger_key(SCOPED)
    assert shown_bytes("rocksdb.md", "flags-key") == ledgerdata.FLAGS_KEY


def test_rocksdb_page_rows_are_what_is_read(tmp_path: Path) -> None:
    """Rows put into bare databases as the page has them read back as the ledgers it names."""
    from rocksdict import Options, Rdict

    page = "rocksdb.md"
    rows = {
        "locations": [("location-key", "location-value")],
        "ledgers": [("ledger-key", "ledger-value"), ("flags-key", "flags-value")],
        "locations-128": [("location-128-key", "location-128-value")],
        "ledgers-128": [("ledger-128-key", "ledger-value")],
    }
    current = tmp_path / "current"
    current.mkdir()
    (current / scope_marker.MARKER_NAME).write_bytes(shown_bytes("marker.md", "marker"))
    for name, pairs in rows.items():
        database = Rdict(str(current / name), Options(raw_mode=True))
        for key, value in pairs:
            database[shown_bytes(page, key)] = shown_bytes(page, value)
        database.close()
    with RocksIndex(tmp_path) as index:
        assert [LedgerId.of(EXAMPLE_LEDGER), SCOPED] == index.ledgers()
        assert ledgerdata.NEEDS_INTEGRITY_CHECK == index.storage_flags
        for ledger in index.ledgers():
            assert EXAMPLE_ENTRIES[3] == index.get(ledger, 3)
            assert LedgerState(EXAMPLE_KEY, True, False, EXAMPLE_LAC) == index.state(ledger)


def test_marker_page(tmp_path: Path) -> None:
    """The page's marker is the one written with the first other scope; a newer one is refused."""
    with HierarchicalIndex(tmp_path, writable=True) as index:
        index.put(1, 0, 1028)
        before = (tmp_path / "current" / scope_marker.MARKER_NAME).exists()
        _write_example(index, SCOPED)
    path = tmp_path / "current" / scope_marker.MARKER_NAME

    assert not before
    assert shown_bytes("marker.md", "marker") == path.read_bytes()

    path.write_bytes(path.read_bytes().replace(b"\n1\n", b"\n2\n"))
    with pytest.raises(UnsupportedLayout, match="128-bit layout version 2"):
        HierarchicalIndex(tmp_path)


def test_journal_page_is_what_is_written(tmp_path: Path) -> None:
    """The page's file is, byte for byte, what the writer makes of those calls."""
    entry = EXAMPLE_LEDGER.to_bytes(8, "big") + bytes(8) + b"\xff" * 8 + (5).to_bytes(8, "big")
    entry += bytes.fromhex("20a691de") + b"hello"
    with JournalWriter(tmp_path, first_id=0x1A1FCE70409, preallocate=0) as writer:
        writer.append_special("master_key", EXAMPLE_LEDGER, EXAMPLE_KEY)
        writer.append(entry)
        mark = writer.sync()
        writer.append_special("fence", EXAMPLE_LEDGER)
        writer.append_special("explicit_lac", EXAMPLE_LEDGER, EXAMPLE_LAC)
    write_last_mark([tmp_path], mark)

    assert shown_bytes("journal.md", "file") == (tmp_path / "1a1fce70409.txn").read_bytes()
    assert shown_bytes("journal.md", "last-mark") == (tmp_path / "lastMark").read_bytes()
    assert shown_bytes("journal.md", "small-gap") == journal.padding_record(1020)


def test_journal_page_is_what_is_read(tmp_path: Path) -> None:
    """The page's file reads back as the records it shows."""
    path = tmp_path / "1a1fce70409.txn"
    path.write_bytes(shown_bytes("journal.md", "file"))
    records = [record for _, record in scan_journal(path).records()]

    assert ["master_key", "add", "fence", "explicit_lac"] == [record.kind for record in records]
    assert [EXAMPLE_KEY, b"", EXAMPLE_LAC] == [records[n].body for n in (0, 2, 3)]
    assert (0, -1, 5) == (records[1].entry_id, records[1].lac, records[1].length)


@pytest.mark.parametrize("kind", journal.SPECIAL_IDS)
def test_journal_page_scoped_records(kind: str) -> None:
    """The page's special records of another scope encode and decode as shown."""
    shown = shown_bytes("journal.md", f"scoped-{kind.replace('_', '-')}")
    body = {"master_key": EXAMPLE_KEY, "fence": b"", "explicit_lac": shown[29:]}[kind]

    assert shown == journal.encode_special(kind, SCOPED, body)
    assert (kind, SCOPED, body) == tuple(journal.decode_record(shown)[n] for n in (0, 1, 3))


def test_cookie_page() -> None:
    """The page's two cookies decode to the same bookie."""
    now = cookie.decode(shown_text("cookie.md", "version-5").encode())
    older = shown_text("cookie.md", "version-3").replace("<TAB>", "\t").encode()
    old = cookie.decode(older)

    assert ("bookie-1:3181", ("/data/1", "/data/2")) == (now.bookie_id, now.ledger_dirs)
    assert (now.bookie_id, now.journal_dirs, now.ledger_dirs) == (
        old.bookie_id,
        old.journal_dirs,
        old.ledger_dirs,
    )
    assert "0f0e0d0c" == now.instance_id
    assert old.instance_id is None
    assert shown_text("cookie.md", "version-5").encode() == cookie.encode(now)
    assert shown_text("cookie.md", "version-3").replace("<TAB>", "\t").encode() == cookie.encode(
        old
    )


@pytest.mark.parametrize("name", ["entries", "groups", "ledgers"])
def test_dump_page_columns(name: str) -> None:
    """The page lists each table's columns with kind and nullability, in order."""
    text = (FORMATS / "dump.md").read_text(encoding="utf-8")
    section = text.partition(f"### `{name}`\n")[2].partition("\n##")[0]
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (yes|no) \|", section, re.MULTILINE)
    schema = getattr(tables, name.upper())

    assert [tuple(column) for column in schema.columns] == [(n, k, y == "yes") for n, k, y in rows]
