"""Topics on the page: what each has lost, its ledgers, and its name beside each ledger's id."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from bkstore import tables
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerOwner, LedgerOwners
from bkstore.report import describe_headline
from bkstore.tables.safe_text import escape_unprintable
from tests.report.made_tables import SCHEMAS, health, made
from tests.report.page_reader import Element, rows, sample_page, tile, verdict, written
from tests.report.samples import RECORD, SAMPLES, World, topic_owners, topics_world

pytest.importorskip("pyarrow")
pytest.importorskip("matplotlib")


def _owners(**names: str) -> LedgerOwners:
    """Return the owners of ledgers: l1="paid" for a topic of ledger 1."""
    return LedgerOwners(
        (LedgerId.of(int(ledger[1:])), LedgerOwner("pulsar", "managed-ledger", topic=name))
        for ledger, name in names.items()
    )


def _sizes(*sizes: int) -> Any:
    """Return `bytes_by_ledger` of ledgers 1, 2..."""
    cells = [{"scope_id": 0, "ledger_id": n + 1, "bytes": size} for n, size in enumerate(sizes)]
    return made(tables.LEDGER_BYTES, *cells)


def _text(element: Element, name: str) -> str:
    return " ".join(element.by_class(name).text.split())


def _lines(page: Element) -> list[tuple[str, str, str, str]]:
    """Return each topic of the tile: its name, what is missing, its ledgers and its size."""
    classes = ("owner", "lacks", "count", "n")
    return [
        tuple(_text(summary, name) for name in classes)  # type: ignore[misc]
        for summary in page.by_class("topics").all("summary")
    ]


def _topic(owner: LedgerOwner) -> str:
    topic = "persistent://shop/orders/paid" if owner.schema else owner.topic
    return topic or owner.application or ""


def _lost(world: World) -> dict[str, int]:
    """Return the entries of each topic that no bookie has, entry by entry; ledgers on a bookie that
    was not read may have them."""
    owners, lost = topic_owners(world), dict[str, int]()
    for ledger in world.ledgers:
        if ledger.state == "CLOSED":
            here = set().union(*(world.held.get((b, ledger.id), set()) for b in world.bookies))
            name = _topic(owners[ledger.id])
            lost[name] = lost.get(name, 0) + len(set(range(ledger.last + 1)) - here)
    return {name: count for name, count in lost.items() if name and count}


def test_the_tile_of_a_sick_cluster() -> None:
    """Topics that lost entries come first, the most lost before others; sizes and ledgers are those
    of all ledgers of a topic, its subscriptions and schemas included."""
    world, page = topics_world(), sample_page("topics")
    owners, lost = topic_owners(world), _lost(world)
    listed = {name: (lacks, count) for name, lacks, count, _ in _lines(page)}
    expected = {name: f"{count:,} entries lost" for name, count in lost.items()}
    ledgers = [name for name in map(_topic, owners.values()) if name]

    assert [431, 321, 6, 6] == sorted(lost.values(), reverse=True)
    assert sorted(lost.values(), reverse=True) == [lost[name] for name in list(listed)[:4]]
    assert 5 == len(listed)
    for name, (lacks, count) in listed.items():
        assert expected.get(name, "123 replicas missing") == lacks
        assert f"{ledgers.count(name)} ledgers" == count
    assert re.search(r"1 other topic: [\d.]+ .iB", tile(page, "topics"))


def test_the_ledgers_of_a_topic(tmp_path: Path) -> None:
    """The worst comes first, then the largest; each says what it has of the topic."""
    paid = "persistent://shop/orders/paid"
    kinds = [
        LedgerOwner("pulsar", "managed-ledger", topic=paid),
        LedgerOwner("pulsar", "managed-ledger", topic=paid, cursor="billing"),
        LedgerOwner("pulsar", "schema", schema="shop/orders/paid"),
        LedgerOwner("pulsar", "compacted-ledger", topic=paid),
    ]
    owners = LedgerOwners((LedgerId.of(n + 1), owner) for n, owner in enumerate(kinds))
    lacking = {"category": "no_replica", "replicas_missing": 4, "lost_entries": 2}
    content = {"bytes_by_ledger": _sizes(10, 30, 20, 40), "ledger_health": health({}, {}, lacking)}
    page = written(tmp_path, content, metadata="m", owners=owners)
    (details,) = page.by_class("topics").all("details")
    (listed,) = details.all("ul")

    assert [(paid, "2 entries lost", "4 ledgers", "100 B")] == _lines(page)
    assert [
        "ledger 3 schema 2 entries lost 20 B",
        "ledger 4 compacted messages 40 B",
        "ledger 2 positions of subscription billing 30 B",
        "ledger 1 10 B",
    ] == [" ".join(line.text.split()) for line in listed.all("li")]


def test_the_order_and_what_is_left_out(tmp_path: Path) -> None:
    """Lost entries before missing replicas before sizes; other topics are summed up."""
    owners = _owners(l1="a", l2="b", l3="c", l4="d", l5="e", l6="f", l7="g")
    lacks = [
        {},
        {"category": "below_write_quorum", "replicas_missing": 5},
        {"category": "no_replica", "replicas_missing": 2, "lost_entries": 1},
        {"category": "no_replica", "replicas_missing": 1, "lost_entries": 77},
        {"category": "below_ack_quorum", "replicas_missing": 1},
        *[{}] * 2,
    ]
    content = {"bytes_by_ledger": _sizes(7, 1, 2, 3, 4, 6, 5), "ledger_health": health(*lacks)}
    source = {"metadata": "m", "owners": owners}
    page = written(tmp_path, content, **source)

    assert [
        ("d", "77 entries lost"),
        ("c", "1 entry lost"),
        ("e", "1 replica missing"),
        ("b", "5 replicas missing"),
        ("a", ""),
    ] == [line[:2] for line in _lines(page)]
    assert "2 other topics: 11 B." in tile(page, "topics")
    assert "(d lost 77 entries, 1 more topic too)" in verdict(page)[1]
    assert "(d lost 77 entries, 1 more topic too)" in describe_headline(content, source)


def test_many_ledgers_of_a_topic(tmp_path: Path) -> None:
    """Eight are listed, and the number of the others."""
    owners = _owners(**{f"l{n}": "paid" for n in range(1, 11)})
    page = written(tmp_path, {"bytes_by_ledger": _sizes(*range(10))}, owners=owners)
    (listed,) = page.by_class("topics").all("ul")
    lines = [" ".join(line.text.split()) for line in listed.all("li")]

    assert [*(f"ledger {n} {n - 1} B" for n in range(10, 2, -1)), "2 more ledgers"] == lines


def test_leaks_name_their_topic_once(tmp_path: Path) -> None:
    """The table of leaked ledgers has a column of its own; classes keep their order, and in each
    the largest comes first."""
    classes = ("leaked", "leaked", "dangling", "undetermined")
    cells = [
        {"class": each, "scope_id": 0, "ledger_id": n + 1, "owner": "paid", "bytes": n}
        for n, each in enumerate(classes)
    ]
    content = {"leaked_ledgers": made(SCHEMAS["leaked_ledgers"], *cells)}
    page = written(tmp_path, content, metadata="m", owners=_owners(l1="paid"))
    (table,) = page.by_id("leaked_ledgers").all("table")

    assert 1 == [head.text for head in table.all("th")].count("Topic")
    assert [("leaked", "2"), ("leaked", "1"), ("dangling", "3"), ("undetermined", "4")] == [
        (row["Class"], row["Ledger"]) for row in rows(page, "leaked_ledgers")
    ]


def test_the_topic_is_beside_each_ledger() -> None:
    """In each table with ids of ledgers, and on the first screen; ledgers that the metadata do not
    have, or whose owner they do not state, have none."""
    world, page = topics_world(), sample_page("topics")
    owners = {str(ledger): owner for ledger, owner in topic_owners(world).items()}
    seen = set()
    for table in ("violations", "findings", "ledger_health", "orphans", "holes", "bytes_by_ledger"):
        for row in rows(page, table):
            owner = owners.get(row["Ledger"], LedgerOwner())
            expected = owner.subject or owner.application
            assert escape_unprintable(expected or "\N{EN DASH}") == row.get("Topic", "\N{EN DASH}")
            seen.add((table, expected is not None))
    risks = page.by_class("risks")

    tables_seen = {table for table, is_known in seen if is_known}
    assert {"violations", "findings", "ledger_health", "holes", "bytes_by_ledger"} == tables_seen
    assert ("orphans", False) in seen
    for line in risks.all("li"):
        (ledger,) = (code.text for code in line.all("code"))
        names = [e.text for e in line.all("span") if e.attributes.get("class") == "owner"]
        assert [name for name in [_topic(owners[ledger])] if name] == [
            name.partition(", cursor")[0] for name in names if "schema" not in name
        ] or "schema" in names[0]


def test_without_owners(tmp_path: Path) -> None:
    """Metadata that state no owner change nothing."""
    made_sample = SAMPLES["sick"]()
    unknown = LedgerOwners((ledger.id, LedgerOwner()) for ledger in topics_world().ledgers)
    pages = []
    for number, more in enumerate(({}, {"owners": None}, {"owners": unknown})):
        folder = tmp_path / str(number)
        folder.mkdir()
        written(folder, made_sample.tables, made_sample.title, **made_sample.source, **more)
        pages.append((folder / "report.html").read_bytes())

    assert pages[0] == pages[1] == pages[2]
    assert b'id="tile-topics"' not in pages[0]


def test_long_names_in_the_headline(tmp_path: Path) -> None:
    """They lose their beginning, which topics have in common."""
    lacking = {"category": "no_replica", "replicas_missing": 1, "lost_entries": 1}
    content = {"ledger_health": health(lacking)}
    name = f"persistent://shop/{'x' * 200}/paid"
    (sentence, *_) = verdict(written(tmp_path, content, metadata="m", owners=_owners(l1=name)))[1:]

    assert f"(\N{HORIZONTAL ELLIPSIS}{'x' * 74}/paid lost 1 entry)" in sentence


def test_names_are_escaped(tmp_path: Path) -> None:
    """Markup and control characters of a name are text."""
    name = "persistent://a/b/<b>\x1b\u202e"
    page = written(tmp_path, {"bytes_by_ledger": _sizes(RECORD)}, owners=_owners(l1=name))

    assert [] == list(page.by_class("topics").all("b"))
    assert [escape_unprintable(name)] == [line[0] for line in _lines(page)]
    assert escape_unprintable(name) == rows(page, "bytes_by_ledger")[0]["Topic"]
