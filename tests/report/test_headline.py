"""The report's headline and first screen: what the numbers say.

Rule of the family: nothing that was not checked looks like all is well.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bkstore import tables
from bkstore.report.findings.affected_entries import covered_at_least
from bkstore.report.findings.key_figures import gather_facts
from bkstore.report.sections import OPTIONAL_SECTIONS, SECTIONS
from tests.report.made_tables import SCHEMAS, health, made
from tests.report.page_reader import page_of, rows, tile, verdict, written
from tests.report.samples import SAMPLES, ranges, sample, sick_world

pytest.importorskip("pyarrow")
pytest.importorskip("matplotlib")

# -- nothing checked never looks like all well


def test_no_tables(tmp_path: Path) -> None:
    """Of no table at all the page says that nothing was asked or judged, in every part."""
    found = written(tmp_path, {})

    assert "Not judged" == verdict(found)[0]
    assert "all replicas" not in found.by_class("tiles").text
    assert 4 == tile(found, "how-much").count("not requested")
    assert "Not judged: no ledger metadata were given." in tile(found, "how-healthy")
    assert "Not judged: no ledger metadata were given." in tile(found, "at-risk")
    for name in set(SCHEMAS) - OPTIONAL_SECTIONS:
        assert re.search(r"Not (judged|requested)", found.by_id(name).text), name


def test_empty_tables(tmp_path: Path) -> None:
    """Empty tables of metadata without ledgers are "not judged" too, the others say "none"."""
    content = {name: made(schema) for name, schema in SCHEMAS.items()}
    found = written(tmp_path, content, metadata="m.json")

    assert [
        "Not judged",
        "Whether anything is lost was not judged: the ledger metadata contain no ledger.",
    ] == verdict(found)
    for name in ("violations", "homeless", "surplus"):
        assert "Not judged: the ledger metadata contain no ledger." in found.by_id(name).text
    assert SECTIONS["holes"].nothing_found in found.by_id("holes").text
    assert [] == list(found.all("table"))


def test_without_metadata(tmp_path: Path) -> None:
    """Without metadata nothing is called sound; holes are told as holes."""
    found = page_of(tmp_path, SAMPLES["bare"]())
    world = sick_world()
    holed = {
        ledger.id
        for ledger in world.ledgers
        for bookie in ledger.ensemble
        if (here := world.held.get((bookie, ledger.id)))
        and any(bookie in ledger.due(e) and e not in here for e in range(min(here), max(here)))
    }

    assert [
        "Not judged",
        "No ledger metadata were given, so it is unknown what should be here; "
        f"{len(holed)} ledgers have holes in the observed stripe.",
    ] == verdict(found)[:2]
    assert "Not judged: no ledger metadata were given." in tile(found, "how-healthy")
    assert f"{len(holed)} ledgers have holes in the observed stripe" in tile(found, "at-risk")


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ({"ledger_health": health({})}, "Sound"),
        ({"ledger_health": health({"replicas_due": None, "not_judged": "open"})}, "Not judged"),
        ({"ledger_health": health({}, {"not_judged": "b9 is not in the dump"})}, "Not judged"),
        ({"ledger_health": health({"replicas_due": 0, "not_judged": "no bookie"})}, "Not judged"),
        ({"violations": made(tables.VIOLATIONS)}, "Not judged"),
        ({"ledger_health": health({"replicas_missing": 1})}, "At risk"),
        ({"ledger_health": health({"category": "below_ack_quorum"})}, "At risk"),
        ({"ledger_health": health({}, {"category": "no_replica"})}, "Data lost"),
        ({"ledger_health": health({}), "homeless": made(tables.HOMELESS, {})}, "Data lost"),
        (
            {
                "ledger_health": health({}),
                "violations": made(tables.VIOLATIONS, {"category": "overdue"}),
            },
            "At risk",
        ),
        (
            {
                "ledger_health": health({}),
                "findings": made(tables.BOOKIE_FINDINGS, {"severity": "damage"}),
            },
            "Not all read",
        ),
    ],
)
def test_word_of_the_headline(tmp_path: Path, content: dict[str, Any], word: str) -> None:
    """Sound is only what was judged, in full, whole and read in full; the worst thing decides."""
    assert word == verdict(written(tmp_path, content, metadata="m.json"))[0]


def test_ledgers_of_absent_bookies(tmp_path: Path) -> None:
    """A ledger of which no bookie is in the dump is not judged; one of some, whole where seen."""
    nowhere = {"replicas_due": 0, "not_judged": "bookies not in the dump: b7"}
    part = {"replicas_due": 3, "not_judged": "bookies not in the dump: b7"}
    found = written(tmp_path, {"ledger_health": health({}, nowhere, part)}, metadata="m.json")
    told = {row["Ledger"]: row["Health"] for row in rows(found, "ledger_health")}

    assert {
        "1": "all replicas present",
        "2": "not judged",
        "3": "complete where judged",
    } == told
    assert "No replica is missing in 2 judged ledgers." in tile(found, "at-risk")


def test_unread_bookie_is_told(tmp_path: Path) -> None:
    """A bookie that was not read is in the headline, in a tile, and qualifies what is empty."""
    healthy = SAMPLES["healthy"]()
    bookies = [dict(each) for each in healthy.source["manifest"]["bookies"]]
    said = "bookie bookie-2 was not read: no such directory"
    bookies[1] |= {"read": False, "reason": said}
    manifest = {**healthy.source["manifest"], "bookies": bookies}
    found = written(tmp_path, healthy.tables, **{**healthy.source, "manifest": manifest})

    assert ["Not all read", "1 of 3 bookies could not be read."] == verdict(found)[:2]
    assert "bookie-2 was not read: no such directory" in tile(found, "at-risk")
    assert {"bookie-1", "bookie-3"} == {row["Bookie"] for row in rows(found, "bytes_by_bookie")}
    assert "bookie-2" not in tile(found, "disk")
    assert "bookies read2 of 3" in tile(found, "how-much")
    assert "This covers only what was read: 1 bookie was not." in found.by_id("violations").text


# -- what the numbers say


def test_headline_of_a_sick_cluster(tmp_path: Path) -> None:
    """The headline counts ledgers by their worst entry, as counted entry by entry."""
    world = sick_world()
    found = page_of(tmp_path, sample(world, "Sick"))
    worst: dict[str, int] = {}
    for ledger in world.ledgers:
        if ledger.state == "CLOSED":
            fewest = min(
                sum(e in world.held.get((b, ledger.id), ()) for b in ledger.due(e))
                for e in range(ledger.last + 1)
            )
            kind = "lost" if not fewest else "ack" if fewest < ledger.ack else str(fewest)
            kind = "write" if kind == "1" else kind
            worst[kind] = worst.get(kind, 0) + 1

    assert {"lost": 5, "ack": 17, "write": 4, "2": worst["2"]} == worst
    assert [
        "Data lost",
        "5 ledgers have entries without any replica; 17 ledgers have entries below the ack quorum; "
        "4 ledgers lack some replicas; 1 piece of data could not be read.",
    ] == verdict(found)[:2]
    assert f"{worst['2']} all replicas present" in tile(found, "how-healthy")


def test_worst_ledgers(tmp_path: Path) -> None:
    """The tile names what is lost of the worst ledgers: entries without any replica, no others."""
    world = sick_world()
    found = page_of(tmp_path, sample(world, "Sick"))
    lost = {
        str(ledger.id): [
            e
            for e in range(ledger.last + 1)
            if not any(e in world.held.get((b, ledger.id), ()) for b in ledger.due(e))
        ]
        for ledger in world.ledgers
        if ledger.state == "CLOSED"
    }
    listed = next(e for e in found.all("ol") if e.attributes["class"] == "risks")
    told = {
        item.text.partition("ledger ")[2].partition(":")[0]: item.text for item in listed.all("li")
    }

    assert {name for name, entries in lost.items() if entries} == set(told)
    for name, text in told.items():
        runs = [f"{a}-{b}" if b > a else f"{a}" for a, b in ranges(set(lost[name]))]
        count = f" ({len(lost[name])} entries)" if len(runs) > 1 else ""

        assert f"ledger {name}: entries {', '.join(runs)}{count}" in text


@pytest.mark.parametrize(
    ("category", "quorums", "told"),
    [
        ("below_write_quorum", (4, 2), "entries 0-29"),
        ("below_ack_quorum", (4, 4), "entries 0-29"),
        ("below_ack_quorum", (4, 3), "entries 5-19"),
        ("below_ack_quorum", (4, 2), "entries 10-14"),
        ("below_ack_quorum", (3, 1), "entries 10-14"),
        ("no_replica", (3, 2), "entries 10-14"),
        ("no_replica", (2, 2), "entries 5-19"),
    ],
)
def test_entries_that_make_the_category(
    tmp_path: Path, category: str, quorums: tuple[int, int], told: str
) -> None:
    """Below the ack quorum are entries of which W - A + 1 replicas are missing, and no others.

    Entries 5-19 are missing at two bookies or three, 10-14 at three.
    """
    missing = {"b1": [[0, 19]], "b2": [[5, 14]], "b3": [[10, 29]]}
    said = {"category": category, "scope_id": 0, "ledger_id": 1, "missing_groups": []}
    violations = made(
        tables.VIOLATIONS,
        *(
            {**said, "bookie": bookie, "missing_entries": 9, "missing": ranges_}
            for bookie, ranges_ in missing.items()
        ),
    )
    write, ack = quorums
    judged = health({"category": category, "write_quorum_size": write, "ack_quorum_size": ack})
    given = {"violations": violations, "ledger_health": judged}
    found = written(tmp_path, given, metadata="m")

    assert f"ledger 1: {told}" in tile(found, "at-risk").replace("\n", " ")
    assert "on b1, b2, b3" in tile(found, "at-risk")


def test_unread_bookies_among_the_facts() -> None:
    """A bookie that was not read is named with its reason, counted, and is damage, once."""

    def bookie(name: str, damage: int, oddities: int, reason: str | None = None) -> dict[str, Any]:
        said = {"id": name, "read": reason is None, "reason": reason}
        return {**said, "damage": damage, "oddities": oddities}

    listed = [
        bookie("b1", 2, 1),
        bookie("b2", 0, 0, "bookie b2 was not read: no such directory"),
        bookie("b3", 3, 4, "in use"),
        bookie("b4", 0, 1),
    ]
    facts = gather_facts({}, {"manifest": {"bookies": listed, "tables": {}}})

    assert 4 == facts.bookies
    assert (("b2", "no such directory"), ("b3", "in use")) == facts.unread_bookies
    assert (6, 6) == (facts.damage, facts.oddities)


def test_missing_beyond_listing(tmp_path: Path) -> None:
    """Where an audit lists no ranges, as there are too many, groups say where they lie."""
    row = {
        "category": "below_write_quorum",
        "scope_id": 0,
        "ledger_id": 8,
        "bookie": "b1",
        "missing_entries": 40_000,
        "missing": None,
        "missing_groups": [[2, 119_999, 1, 3]],
    }
    found = written(tmp_path, {"violations": made(tables.VIOLATIONS, row)}, metadata="m")

    assert "40,000 replicas of entries between 2 and 119999" in tile(found, "at-risk")
    assert "2, 5, 8, ..., 119999 (40,000 entries)" == rows(found, "violations")[0]["Entries"]


def test_nulls(tmp_path: Path) -> None:
    """A null is a dash, in every nullable column of every table, and never a zero or "None"."""
    content = {name: made(schema, {}) for name, schema in SCHEMAS.items()}
    found = written(tmp_path, content, metadata="m.json")

    assert "None" not in found.by_id("findings").text
    assert "\N{EN DASH}" == rows(found, "findings")[0]["Offset"]
    assert "\N{EN DASH}" == rows(found, "ledger_health")[0]["Missing"]
    assert "\N{EN DASH}" == rows(found, "orphans")[0]["Entries"]
    assert "not judged" == rows(found, "ledger_health")[0]["Health"]


def test_no_entry_logs(tmp_path: Path) -> None:
    """Bookies without entry logs are said to have none; no bar of nothing, no chart."""
    row = {"log_file_bytes": 0, "live_bytes": 0, "garbage_bytes": 0}
    found = written(tmp_path, {"bytes_by_bookie": made(tables.BOOKIE_BYTES, row, row)})

    assert "The bookies that were read have no entry logs." in tile(found, "disk")
    assert [] == list(found.by_id("bytes_by_bookie").all("figure"))


def test_disk_headline(tmp_path: Path) -> None:
    """Few bookies with most of the bytes, and much garbage, are in the headline."""
    sizes = [820, 820, 102, 102, 102, 102]
    names = ("log_file_bytes", "live_bytes", "garbage_bytes", "damage")
    cells = [dict(zip(names, (n, n // 2, n // 2, 0)), bookie=f"b{n}") for n in sizes]
    found = written(tmp_path, {"bytes_by_bookie": made(tables.BOOKIE_BYTES, *cells)})

    assert (
        "Garbage is 50 % of 2.00 KiB on disk; 2 of 6 bookies fill 80 % of the disk."
        == verdict(found)[-1]
    )


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=12), st.integers(1, 4))
def test_depth_of_ranges(pieces: list[tuple[int, int]], level: int) -> None:
    """What lies in so many of some ranges is what counting id by id says."""
    listed = np.array([[a, a + n] for a, n in pieces], np.int64).reshape(-1, 2)
    inside = {e for e in range(80) if sum(a <= e <= a + n for a, n in pieces) >= level}

    assert ranges(inside) == covered_at_least(listed, level).tolist()
