"""The report's page, read without a browser: form, escaping, cuts, writing."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from bkstore import MissingDependency, WriteFailed, tables
from bkstore.report import write_report
from bkstore.report.charts import ledgers_chart
from bkstore.report.html.rendering import read_template_file
from bkstore.report.sections import PARTS, SECTIONS
from bkstore.tables.safe_text import escape_surrogates
from tests.paths import ROOT
from tests.report.made_tables import SCHEMAS, health, made
from tests.report.page_reader import Element, page_of, read, rows, tile, written
from tests.report.samples import SAMPLES

pa = pytest.importorskip("pyarrow")
pytest.importorskip("matplotlib")

EVIL = "<script>alert(1)</script>&\"'"


@pytest.fixture(scope="module", params=list(SAMPLES))
def page(request: pytest.FixtureRequest, sample_file: Callable[[str], Path]) -> Element:
    """Return the page of each sample."""
    return read(sample_file(request.param).read_text(encoding="utf-8"))


# -- form


def test_well_formed(page: Element) -> None:
    """Every element is closed in its place, ids are unique, and links lead to parts that exist."""
    ids = [e.attributes["id"] for e in page.everything() if "id" in e.attributes]
    keys = ("href", "xlink:href")
    links = [e.attributes[k] or "" for e in page.everything() for k in keys if k in e.attributes]

    assert ["html"] == [e.name for e in page.children if isinstance(e, Element)]
    assert sorted(set(ids)) == sorted(ids)
    assert set() == {link.removeprefix("#") for link in links} - set(ids)
    assert len(links) > 5


def test_refers_to_nothing_outside(page: Element) -> None:
    """No attribute, style or script names anything outside the page, and the policy forbids it."""
    loading = ("src", "srcset", "data", "action", "poster", "background", "xlink:href", "href")
    outside = [
        (e.name, key, value)
        for e in page.everything()
        for key, value in e.attributes.items()
        if key in loading and not (value or "").startswith("#")
    ]
    texts = [value or "" for e in page.everything() for value in e.attributes.values()]
    texts.append(next(page.all("style")).text)
    policies = [text for text in texts if text.startswith("default-src")]
    loads = re.compile(r"https?:|@import|url\(")

    assert [] == outside
    assert [] == [text for text in texts if loads.search(text)]
    assert not re.search(r"fetch|import|XMLHttp|https?:", next(page.all("script")).text)
    assert [] == [e.name for e in page.everything() if e.name in ("link", "img", "iframe", "base")]
    assert 1 == len(policies)
    assert policies[0].startswith("default-src 'none';")


def test_policy_lets_one_script_run(page: Element) -> None:
    """The policy names the digest of the page's one script, so no other would run."""
    (script,) = page.all("script")
    digest = base64.b64encode(hashlib.sha256(script.text.encode()).digest()).decode()
    (policy,) = (
        e.attributes["content"] or ""
        for e in page.all("meta")
        if e.attributes.get("http-equiv") == "Content-Security-Policy"
    )

    assert f"script-src 'sha256-{digest}'" in policy
    assert "unsafe-inline" not in policy.partition("script-src")[2]
    assert [] == [k for e in page.everything() for k in e.attributes if k.startswith("on")]
    assert "aria-sort" in script.text


def test_readable_by_all(page: Element) -> None:
    """One h1, no level of heading left out, and each table, header, region and drawing named."""
    levels = [int(e.name[1]) for e in page.everything() if re.fullmatch(r"h[1-6]", e.name)]
    regions = [e for e in page.everything() if e.attributes.get("role") in ("img", "region")]
    drawings = [e for e in page.everything() if e.name == "svg"]

    assert "en" == next(page.all("html")).attributes["lang"]
    assert 1 == levels.count(1)
    assert [] == [(a, b) for a, b in pairwise(levels) if b > a + 1]
    for table in page.all("table"):
        assert "caption" == next(c.name for c in table.children if isinstance(c, Element))
        assert {"col"} == {head.attributes["scope"] for head in table.all("th")}
    assert [] == [e.name for e in regions if not e.attributes.get("aria-label")]
    assert {"img"} == {e.attributes.get("role") for e in drawings}
    assert next(page.all("title")).text == next(page.all("h1")).text


def _contrast(one: str, two: str) -> float:
    """Return WCAG 2's contrast of two colours."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(two)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_contrast(theme: int) -> None:
    """Text has a contrast of 4.5 at least, bars and keys one of 3, in both themes (WCAG AA)."""
    root = re.findall(r":root \{(.*?)\}", read_template_file("style.css"), re.DOTALL)[theme]
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", root))
    texts = [
        ("ink", "panel"),
        ("dim", "panel"),
        ("dim", "page"),
        ("link", "page"),
        ("link", "panel"),
    ]
    tones = ["bad", "ack", "write", "part", "unknown", "good"]
    texts += [("on-chip", tone) for tone in tones] + [(tone, "panel") for tone in tones[:2]]
    bars = [(name, "panel") for name in (*tones, "live", "garbage")]

    assert [] == [pair for pair in texts if _contrast(colours[pair[0]], colours[pair[1]]) < 4.5]
    assert [] == [pair for pair in bars if _contrast(colours[pair[0]], colours[pair[1]]) < 3]


def test_every_analysis_has_its_part() -> None:
    """Each table of an analysis has a part, whose columns the table has."""
    names = [name for _, listed in PARTS for name in listed]

    assert {*SCHEMAS, "bookies"} == set(names) == set(SECTIONS)
    assert len(set(names)) == len(names)
    for name, schema in SCHEMAS.items():
        columns = [c.table_column for c in SECTIONS[name].columns if c.table_column]
        orders = [c.lstrip("-") for c in SECTIONS[name].order if c != "class"]

        assert [] == [c for c in [*columns, *orders] if c not in schema.names], name


@pytest.mark.parametrize("name", ["healthy", "sick", "hundred", "thousand"])
def test_small(sample_file: Callable[[str], Path], name: str) -> None:
    """The page of an ordinary dump stays under 300 KiB, with a hundred bookies too."""
    assert sample_file(name).stat().st_size < 300 * 1024


def test_charts_name_their_axes(tmp_path: Path) -> None:
    """Each chart says what both axes are, with the unit, in both of its widths."""
    page_ = page_of(tmp_path, SAMPLES["hundred"]())
    axes = {
        "bytes_by_bookie": ["bookies, the fullest first", "bytes of records, MiB"],
        "log_occupancy": ["live part of the entry log, %", "bytes of records, GiB"],
        "bytes_by_ledger": [
            "number of biggest ledgers (logarithmic)",
            "share of record bytes, %",
        ],
    }
    for name, said in axes.items():
        drawings = list(page_.by_id(name).all("svg"))

        assert 2 == len(drawings)
        for drawing in drawings:
            texts = [e.text for e in drawing.all("text")]

            assert said == [text for text in texts if " " in text]


# -- escaping, caps, order


@pytest.mark.parametrize(
    ("ledgers", "ticks"),
    [(3, "1 2 3"), (8, "1 2 5 8"), (11, "1 2 5 10"), (2500, "1 10 100 1,000 2,500")],
)
def test_ticks_of_few_and_many(ledgers: int, ticks: str) -> None:
    """The axis of how many ledgers has several ticks, up to the last, however few there are."""
    cells = [{"ledger_id": n, "bytes": n + 1} for n in range(ledgers)]
    chart = ledgers_chart(made(tables.LEDGER_BYTES, *cells))
    assert chart is not None
    for drawing in (chart.wide, chart.narrow):
        written_in = re.findall(r"<text[^>]*>([^<]*)</text>", drawing.inside)

        assert ticks.split() == written_in[: len(ticks.split())]
        assert "number of biggest" in written_in[len(ticks.split())]


def test_everything_is_escaped(tmp_path: Path) -> None:
    """Markup in an id, a path, a reason or a title comes out as text, in every table."""
    content = {
        name: made(schema, {c.name: EVIL for c in schema.columns if c.kind == "string"})
        for name, schema in SCHEMAS.items()
    }
    bookie = {"id": EVIL, "path": EVIL, "read": False, "reason": EVIL, "layout": EVIL}
    bookie |= {"rows": {}, "damage": 0, "oddities": 0}
    listed = [{**bookie, "id": f"{EVIL}2"}, {**bookie, "read": True}]
    manifest = {"bookies": listed, "tables": {}, "made_at": EVIL}
    source = {"manifest": manifest, "metadata": EVIL, "engine": EVIL, "made_at": EVIL}
    found = written(tmp_path, content, EVIL, **source, all_rows={"violations": EVIL})

    assert EVIL == next(found.all("h1")).text
    assert 1 == len(list(found.all("script")))
    assert [] == [e for e in found.everything() if "alert(1)" in e.name]
    assert EVIL == rows(found, "violations")[0]["Bookie"]
    assert EVIL == rows(found, "violations")[0]["Category"]
    assert EVIL == rows(found, "bookies")[0]["Reason"]
    assert EVIL in tile(found, "at-risk")
    assert EVIL in tile(found, "disk")


def test_controls_are_shown(tmp_path: Path) -> None:
    """A control character, an override of direction, half a pair or a formula of the charts'
    library in an id stands there as its escape; the page stays well formed and UTF-8."""
    evil = "b$\\frac$\x1b[2J\x00\u202e\ud800\n&"
    seen = "b$\\frac$\\x1b[2J\\x00\\u202e\\ud800\\n&"
    content = {
        name: made(
            schema, {c.name: escape_surrogates(evil) for c in schema.columns if c.kind == "string"}
        )
        for name, schema in SCHEMAS.items()
    }
    bookie = {name: escape_surrogates(evil) for name in ("id", "path", "reason", "layout")}
    bookie |= {"rows": {}, "damage": 0, "oddities": 0, "read": False}
    listed = [{**bookie, "id": "unread"}, {**bookie, "read": True}]
    source = {"manifest": {"bookies": listed, "tables": {}, "made_at": evil}, "metadata": evil}
    found = written(tmp_path, content, evil, **source)

    assert seen == next(found.all("h1")).text
    assert seen == rows(found, "violations")[0]["Bookie"]
    assert seen == rows(found, "bookies")[0]["Reason"]


def test_long_tables_are_cut_aloud(tmp_path: Path) -> None:
    """Of 12,345 rows the page has the first hundred in its order, and says where all are."""
    sizes = [(7919 * n) % 12_345 for n in range(12_345)]
    cells = [{"scope_id": 0, "ledger_id": n, "bytes": sizes[n]} for n in range(12_345)]
    content = {"bytes_by_ledger": made(tables.LEDGER_BYTES, *cells)}
    found = written(tmp_path, content)
    placed = written(tmp_path, content, all_rows={"bytes_by_ledger": "out/ledgers.parquet"})
    (caption,) = found.by_id("bytes_by_ledger").all("caption")
    expected = sorted(range(12_345), key=lambda n: -sizes[n])[:100]

    assert (
        "Showing 100 of 12,345 rows; all rows are in the table bytes_by_ledger of the analysis"
        == caption.text
    )
    assert [str(n) for n in expected] == [r["Ledger"] for r in rows(found, "bytes_by_ledger")]
    assert "all rows are in out/ledgers.parquet" in placed.by_id("bytes_by_ledger").text


def test_short_tables_are_whole(tmp_path: Path) -> None:
    """A table of as many rows as fit is whole, and nothing is said of others."""
    cells = [{"scope_id": 0, "ledger_id": n} for n in range(100)]
    found = written(tmp_path, {"orphans": made(tables.ORPHANS, *cells)})

    assert 100 == len(rows(found, "orphans"))
    assert ["100 rows"] == [e.text for e in found.by_id("orphans").all("caption")]


def test_ids(tmp_path: Path) -> None:
    """Ids of scope 0 are decimal, others their qualified name, and the top bit is no sign."""
    cells = [
        {"scope_id": 0, "ledger_id": 2**63 - 1, "bytes": 3},
        {"scope_id": -1, "ledger_id": -2, "bytes": 2},
        {"scope_id": 5, "ledger_id": 7, "bytes": 1},
    ]
    found = written(tmp_path, {"bytes_by_ledger": made(tables.LEDGER_BYTES, *cells)})
    scopes = written(tmp_path, {"bytes_by_scope": made(tables.SCOPE_BYTES, {"scope_id": -1})})

    assert ["9223372036854775807", "f" * 31 + "e", "0" * 15 + "5" + "0" * 15 + "7"] == [
        row["Ledger"] for row in rows(found, "bytes_by_ledger")
    ]
    assert ["f" * 16] == [row["Scope"] for row in rows(scopes, "bytes_by_scope")]


def test_numbers_that_are_not_there(tmp_path: Path) -> None:
    """The last entry of a ledger without any (-1), and what was not counted, is an en dash that
    stands where the column's numbers do."""
    first = {"state": "OPEN", "last_entry_id": -1, "replicas_due": None, "not_judged": "open"}
    table = health(first, {"last_entry_id": 0})
    page = written(tmp_path, {"ledger_health": table}, metadata="m")
    (body,) = page.by_id("ledger_health").all("tbody")
    kinds = {cell.text: cell.attributes.get("class") for cell in body.all("td")}
    listed = rows(page, "ledger_health")

    assert {("OPEN", "\N{EN DASH}", "\N{EN DASH}"), ("CLOSED", "0", "6")} == {
        (row["State"], row["Last entry"], row["Expected"]) for row in listed
    }
    assert "-1" not in kinds
    for row in body.all("tr"):
        cells = dict(zip(listed[0], row.all("td")))
        for name in ("Last entry", "Expected"):
            assert (cells[name].attributes["class"] or "").split()[0] == "n"


def test_sizes_are_binary_and_exact(tmp_path: Path) -> None:
    """Bytes read in binary units, with the exact number as title and as what is sorted by."""
    found = written(tmp_path, {"orphans": made(tables.ORPHANS, {"bytes": 1_234_567_890})})
    cell = next(e for e in found.by_id("orphans").all("td") if e.text == "1.15 GiB")

    assert ("1,234,567,890 bytes", "1234567890") == (
        cell.attributes["title"],
        cell.attributes["data-v"],
    )


# -- writing


def test_same_bytes(tmp_path: Path) -> None:
    """The same tables give the same bytes: in another process, in other pieces, at other times."""
    one, two = tmp_path / "one.html", tmp_path / "two.html"
    given_ = SAMPLES["sick"]()
    write_report(one, given_.tables, title=given_.title, source=given_.source)
    code = (
        "import sys; from pathlib import Path; import pyarrow as pa\n"
        "from bkstore.report import write_report; from tests.report.samples import SAMPLES\n"
        "s = SAMPLES['sick']()\n"
        "cut = {n: pa.concat_tables([t[:3], t[3:5], t[5:]]) for n, t in s.tables.items()}\n"
        "write_report(Path(sys.argv[1]), cut, title=s.title, source=s.source)\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "77", "TZ": "Asia/Tokyo"}
    subprocess.run([sys.executable, "-c", code, str(two)], cwd=ROOT, env=environment, check=True)

    assert one.read_bytes() == two.read_bytes()


def test_light_import() -> None:
    """Importing the package loads neither matplotlib nor Jinja2 nor pyarrow."""
    code = "import sys, bkstore.report; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert set() == {"matplotlib", "jinja2", "pyarrow"} & set(done.stdout.split())
    assert "bkstore.report.charts" in done.stdout.split()


@pytest.mark.parametrize("package", ["matplotlib", "jinja2"])
def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """Without matplotlib or Jinja2 the error names it and the extra, and nothing is written."""
    monkeypatch.setitem(sys.modules, package, None)
    said = f"A report needs {package}: pip install 'jinja2>=3.1' 'matplotlib>="
    with pytest.raises(MissingDependency, match=re.escape(said)):
        write_report(tmp_path / "out.html", {}, title="x", source={})

    assert [] == list(tmp_path.iterdir())


def test_full_disk(tmp_path: Path) -> None:
    """A write that the system refuses is one line, leaves the old page, and nothing beside it."""
    target = tmp_path / "out.html"
    target.write_text("the old page")
    write_report(tmp_path / "first.html", {}, title="x", source={})  # loads, and compiles, it all
    (tmp_path / "first.html").unlink()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(WriteFailed) as refused:
            write_report(target, {}, title="x", source={})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert f"{target}: cannot be written: File too large" == str(refused.value)
    assert "the old page" == target.read_text()
    assert [target] == list(tmp_path.iterdir())


@pytest.mark.parametrize("place", ["folder", "missing/out.html", "file/out.html"])
def test_unwritable_target(tmp_path: Path, place: str) -> None:
    """A target that cannot be a file is refused in one line that names it."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(WriteFailed) as refused:
        write_report(tmp_path / place, {}, title="x", source={})

    assert str(refused.value).startswith(f"{tmp_path / place}: cannot be written: ")
    assert {"folder", "file"} == {p.name for p in tmp_path.iterdir()}
    assert [] == list((tmp_path / "folder").iterdir())
    assert "\n" not in str(refused.value)


def test_reader_refuses_what_is_not_well_formed() -> None:
    """The reader of these tests sees a tag that is not closed, and one closed twice."""
    for broken in ("<p><b>x</p>", "<p>x", "<p>x</p></p>", "<rect/>"):
        with pytest.raises(AssertionError):
            read(broken)
