"""What the page says fits what it was given: no sentence about what nobody asked or found."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from bkstore import tables
from bkstore.ids import LedgerId
from tests.report.made_tables import health, made
from tests.report.page_reader import Element, page_of, rows, sample_page, tile, verdict, written
from tests.report.samples import SAMPLES, sample, sick_world

pytest.importorskip("pyarrow")
pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

MUCH = "bookies|ledgers|replicas|entries|rows|findings|scopes|pieces|oddities|ranges|groups"


def _said(page: Element) -> list[str]:
    """Return the texts of a page: of each paragraph, caption, list item and drawing."""
    found = [
        each.text
        for name in ("p", "li", "caption", "h2", "h3", "figcaption", "dd")
        for each in page.all(name)
    ]
    found += [each.attributes["aria-label"] or "" for each in page.all("svg")]
    return found


@pytest.mark.parametrize("name", list(SAMPLES))
def test_numbers_and_nouns(name: str) -> None:
    """One is singular, others plural, and nothing is counted out of none."""
    said = _said(sample_page(name))
    wrong = re.compile(rf"\b0 of 0\b|(?<![\d,.])1 (?:{MUCH})\b|\bNone\b|[{{}}]")

    assert len(said) > 20
    assert [] == [text for text in said if wrong.search(text)]


@pytest.mark.parametrize("name", ["bare", "single", "apart"])
def test_nothing_about_losses_without_metadata(name: str) -> None:
    """Without metadata the page says so, and nothing of losses, quorums, orphans or health."""
    page = sample_page(name)
    absent = [
        item.text for each in page.all("ul") if _is(each, "absent") for item in each.all("li")
    ]
    listed = {text.partition(".")[0] for text in absent}
    said = [text for text in _said(page) if text not in absent]
    judged = re.compile(r"\blost\b|\blosses\b|at risk|no replica|quorum|[Oo]rphan|due\b|Violations")

    assert "No ledger metadata were given" in verdict(page)[1]
    assert {"Violations", "Ledgers without any bookie", "Orphan ledgers"} <= listed
    assert [] == [text for text in said if judged.search(text)]


def _is(element: Element, name: str) -> bool:
    return name in (element.attributes.get("class") or "").split()


def test_live_is_explained_by_what_was_given() -> None:
    """Live records are those of ledgers that the metadata know, or without them the index."""
    for name, said in (("sick", "the metadata contain"), ("bare", "the index of the bookie has")):
        page = sample_page(name)

        assert f"Live are records of ledgers that {said}" in page.by_id("bytes_by_bookie").text
        assert f"Live are records of ledgers that {said}" in page.by_id("log_occupancy").text
    assert "analyze with --metadata to judge" in page.by_id("holes").text


@pytest.mark.parametrize(
    ("name", "schema", "plain", "troubled", "advice"),
    [
        (
            "bytes_by_bookie",
            tables.BOOKIE_BYTES,
            {"garbage_bytes": 0},
            {"garbage_bytes": 9},
            "Much garbage",
        ),
        (
            "log_occupancy",
            tables.LOG_OCCUPANCY,
            {"garbage_bytes": 0},
            {"garbage_bytes": 9},
            "Compaction frees",
        ),
        (
            "findings",
            tables.BOOKIE_FINDINGS,
            {"severity": "oddity"},
            {"severity": "damage"},
            "Read a damaged disk",
        ),
        ("comparison", tables.COMPARISON, {"removed": 0}, {"removed": 2}, "that were removed"),
        ("ledger_health", tables.HEALTH, {}, {"not_judged": "open"}, "A reason in the last column"),
        ("bytes_by_scope", tables.SCOPE_BYTES, {"scope_id": 0}, None, "A scope belongs"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_advice_is_for_what_was_found(
    tmp_path: Path, name: str, schema: Any, plain: Any, troubled: Any, advice: str
) -> None:
    """Advice stands above rows that it is for, and not above others."""
    second = {**plain, "scope_id": 5} if troubled is None else troubled
    calm = written(tmp_path, {name: made(schema, plain)}, metadata="m.json")
    amiss = written(tmp_path, {name: made(schema, plain, second)}, metadata="m.json")

    assert advice not in calm.by_id(name).text
    assert advice in amiss.by_id(name).text


# -- one line a ledger


def test_holes_are_told_by_ledger(tmp_path: Path) -> None:
    """A ledger with holes on three bookies is one of the worst once, with all of them summed."""
    span = {"first_entry": 0, "last_entry": 99, "scope_id": 0, "off_stripe": 0}
    cells = [
        {**span, "ledger_id": 1, "bookie": "b1", "holes": 4},
        {**span, "ledger_id": 2, "bookie": "b1", "holes": 5},
        {**span, "ledger_id": 1, "bookie": "b2", "holes": 3, "last_entry": 120},
        {**span, "ledger_id": 3, "bookie": "b2", "holes": 6, "off_stripe": 2},
        {**span, "ledger_id": 1, "bookie": "b3", "holes": 1, "off_stripe": 1},
    ]
    page = written(tmp_path, {"holes": made(tables.HOLES, *cells)})
    (worst,) = (each for each in page.all("ol") if _is(each, "risks"))
    told = [" ".join(item.text.split()) for item in worst.all("li")]

    assert [
        "holes ledger 1: 8 replicas absent and 1 replica off the stripe between 0 and 120 "
        "on b1, b2, b3",
        "holes ledger 3: 6 entries absent and 2 entries off the stripe between 0 and 99 on b2",
        "holes ledger 2: 5 entries absent between 0 and 99 on b1",
    ] == told
    assert "3 ledgers have holes in the observed stripe" in tile(page, "at-risk")
    assert "5 rows about 3 ledgers" == next(page.by_id("holes").all("caption")).text


def test_worst_are_distinct() -> None:
    """No ledger is given twice among the worst, though each lacks entries on three bookies."""
    page = sample_page("thousand")
    (worst,) = (each for each in page.all("ol") if _is(each, "risks"))
    names = [next(item.all("code")).text for item in worst.all("li")]

    assert 5 == len(set(names)) == len(names)
    assert [32] * 5 == [len(name) for name in names]
    assert names == [next(item.all("code")).attributes["title"] for item in worst.all("li")]
    assert "95 more in the table below" in tile(page, "at-risk")
    assert "of 300 rows about 100 ledgers" in next(page.by_id("violations").all("caption")).text


# -- numbers of ledgers that differ


def test_ledgers_of_metadata_and_bookies(tmp_path: Path) -> None:
    """Where metadata and bookies have different ledgers, the page says how many and why."""
    world = sick_world()
    page = page_of(tmp_path, sample(world, "Sick"))
    known = {ledger.id for ledger in world.ledgers}
    here = {ledger for _, ledger in {**world.held, **world.orphans}}
    absent = known - here
    due = {x.id for x in world.ledgers if x.state == "CLOSED" and x.last >= 0}

    assert (4, 2) == (len(here - known), len(absent))
    assert absent <= due
    assert (
        f"The metadata list {len(known)} ledgers, the bookies have {len(here)}; "
        "4 are on bookies only (orphans); 2 are in the metadata only (should be there)."
    ) in tile(page, "how-healthy")


def test_why_ledgers_are_nowhere(tmp_path: Path) -> None:
    """A ledger that no bookie has should be there, or has no entries, or is not judged."""
    cells = [
        {"replicas_due": 6, "replicas_missing": 6, "category": "no_replica"},
        {"replicas_due": 0},
        {"replicas_due": None, "not_judged": "open"},
        {},
    ]
    held = made(
        tables.LEDGER_BYTES, {"scope_id": 0, "ledger_id": 4}, {"scope_id": -1, "ledger_id": -1}
    )
    content = {"ledger_health": health(*cells), "bytes_by_ledger": held}
    page = written(tmp_path, content, metadata="m.json")

    assert (
        "The metadata list 4 ledgers, the bookies have 2; 1 is on bookies only (an orphan); "
        "3 are in the metadata only (1 should be there, 1 without entries, 1 not judged)."
    ) in tile(page, "how-healthy")


def test_same_ledgers() -> None:
    """Where both have the same ledgers, one sentence says so."""
    page = sample_page("healthy")

    assert "The metadata list 40 ledgers; bookies have each of them." in tile(page, "how-healthy")


def test_ledgers_without_entries_in_an_index(tmp_path: Path) -> None:
    """Ledgers that only entry logs have, and empty ones, are told apart from the others."""
    cells = [
        {"ledger_id": 1, "replicas": 9, "bytes": 9},
        {"ledger_id": 2, "replicas": 0, "bytes": 9},
        {"ledger_id": 3, "replicas": 0, "bytes": 7},
        {"ledger_id": 4, "replicas": 0, "bytes": 0},
    ]
    page = written(tmp_path, {"bytes_by_ledger": made(tables.LEDGER_BYTES, *cells)})

    assert (
        "Of 4 ledgers, 2 have records in entry logs and no entry in an index and 1 has no entries."
    ) in tile(page, "how-much")


# -- two dumps


def _manifest(**read: bool) -> dict[str, Any]:
    bookies = [
        {"id": name, "read": it, "layout": "idx", "rows": {}, "damage": 0, "oddities": 0}
        | {"path": name, "reason": None if it else "in use"}
        for name, it in read.items()
    ]
    return {"bookies": bookies, "tables": {}}


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (
            {"b1": True, "b2": True},
            {"b3": True},
            "The two dumps have no bookie in common, so nothing was compared: "
            "the first has b1, b2; the second has b3.",
        ),
        (
            {"b1": False},
            {"b1": True},
            "No bookie was read in both dumps, so nothing was compared.",
        ),
        (
            {"b1": True, "b2": False},
            {"b1": True, "b2": True, "b4": True},
            "1 bookie is compared. Left out, as not read in both: "
            "b2 (first dump); b2, b4 (second dump).",
        ),
        ({"b1": True}, {"b1": True}, "Neither dump has a ledger."),
    ],
    ids=["none-in-common", "none-read", "some-left-out", "all"],
)
def test_bookies_of_two_dumps(
    tmp_path: Path, one: dict[str, bool], other: dict[str, bool], said: str
) -> None:
    """The comparison says which bookies it is about, where that is not all of both dumps."""
    content = {"comparison": made(tables.COMPARISON)}
    page = written(tmp_path, content, manifest=_manifest(**one), other=_manifest(**other))
    told = [e.text for e in page.by_id("comparison").all("p") if _is(e, "none")]

    assert [said] == told
    assert f"compared with a dump of {len(other)} bookie" in page.by_class("source").text


def test_comparison_that_was_not_asked() -> None:
    """Without a second dump the page says which option gives one, and compares nothing."""
    page = sample_page("sick")

    assert "Not requested: no second dump was given (--other)." in page.by_id("comparison").text
    assert "compared with" not in page.by_class("source").text
    assert LedgerId.of(1000).qualified_name not in rows(page, "violations")[0].values()
