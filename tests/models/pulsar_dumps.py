"""Random clusters of Pulsar: ledgers on bookies, their metadata, Pulsar's nodes, and by how each
ledger is made the row that `leaked_ledgers` must have of it.

A ledger's class follows from the table of `docs/pulsar.md`, written out here case by case.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from bkstore.cluster import MemoryStore
from bkstore.ids import LedgerId
from bkstore.pulsar import MemoryNodes, NodeValue
from tests.pulsar.samples import (
    NOW,
    OLD,
    YOUNG,
    compacted_of,
    cursor,
    ledger,
    listed,
    locator,
    managed_ledger,
    owned,
    schema_of,
    topic_path,
)
from tests.worlds.random_dumps import DumpWorld

GONE = "BookKeeper does not have it"
RECENT = "Pulsar has just changed its references; a broker may be deleting the ledger"
UNREADABLE = "its metadata cannot be read"
OLDER_SCHEMAS = "older versions of the schema are not in its locator, and may be in this ledger"


class LeakRow(NamedTuple):
    """What the analysis has of a ledger beside its bytes."""

    ledger_class: str
    ledger: LedgerId
    owner: str | None
    detail: str | None = None
    caution: str | None = None


@dataclass
class PulsarWorld:
    """A dump with the logs of bookies, the ledgers' metadata, Pulsar's nodes; the expected rows,
    those of classes that are not shown too. `doubtful` paths have values that are garbage."""

    dump: DumpWorld = field(default_factory=DumpWorld)
    store: MemoryStore = field(default_factory=MemoryStore)
    nodes: dict[str, NodeValue] = field(default_factory=dict)
    expected: list[LeakRow] = field(default_factory=list)
    doubtful: list[str] = field(default_factory=list)

    def pulsar(self) -> MemoryNodes:
        """The nodes as a copy."""
        return MemoryNodes(self.nodes)

    def rows(self, *, topic: str | None = None) -> list[tuple[str | int | None, ...]]:
        """Return the rows that are shown, with bookies and bytes, in their order; of a topic only
        those of which it is part of the owner."""
        shown = [each for each in self.expected if each.ledger_class not in _QUIET]
        shown = [each for each in shown if topic is None or topic in (each.owner or "")]
        deleted = {each.ledger for each in shown if each.ledger_class in _DELETABLE}
        needed = {metadata.ledger for metadata in self.dump.metadata} - deleted
        rows = []
        for each in shown:
            logs = [(n, told) for (n, *_), (_, _, told) in self.dump.logs.items() if told]
            mine = [(name, told) for name, told in logs if each.ledger in told]
            removable = sum(told[each.ledger] for _, told in mine if not needed & told.keys())
            size = sum(told[each.ledger] for _, told in mine)
            sizes = (len({name for name, _ in mine}), size, removable)
            ids = each.ledger.signed
            rows.append((each.ledger_class, *ids, each.owner, *sizes, each.detail, each.caution))
        return sorted(rows, key=lambda row: (row[0], -row[5], LedgerId.from_signed(*row[1:3])))


_QUIET = ("referenced", "unreferenced-young")
_DELETABLE = ("leaked", "offloaded-copy")
COLUMNS = [
    "class",
    "scope_id",
    "ledger_id",
    "owner",
    "bookies",
    "bytes",
    "removable_bytes",
    "detail",
    "caution",
]
"""The columns of `PulsarWorld.rows`."""


class _Topic:
    """A topic being made: what its nodes list, and when they were changed."""

    def __init__(self, chance: random.Random, name: str, cursor_ledger: int) -> None:
        self.name, self.url = name, f"persistent://shop/orders/{name}"
        self.listed: list[bytes] = []
        self.schemas: list[int] = []
        self.is_garbage = chance.random() < 0.2
        self.is_recent = chance.random() < 0.3
        self.cursor_is_garbage = chance.random() < 0.2
        self.lowest_version = chance.choice([0, 0, 2])
        self.compaction = chance.choice([None, -1, cursor_ledger])  # the ledger of its cursor
        self.compacted: int | None = None
        self.named: int | None = None  # by the cursor "sub"

    def value(self, data: bytes) -> NodeValue:
        """Return a node that was changed a moment ago, or long ago."""
        return NodeValue(data, 3, NOW - 60_000) if self.is_recent else NodeValue(data, 0, NOW)

    @property
    def recent(self) -> str | None:
        """The caution about all that its nodes refer to."""
        return RECENT if self.is_recent else None


def random_pulsar(seed: int, ledgers: int = 40, *, unreadable: bool = True) -> PulsarWorld:
    """Return a world of some topics, with about that many ledgers of every kind; without
    `unreadable`, all metadata can be read."""
    chance = random.Random(seed)
    world = PulsarWorld()
    names = ("a", "b today", "ü-partition-7")
    topics = [_Topic(chance, name, number) for number, name in enumerate(names, 3)]
    _create(world, 9, {})  # so that the nodes are those of this cluster
    world.nodes[topic_path("sound")] = NodeValue(managed_ledger(9))
    world.expected.append(LeakRow("referenced", LedgerId.of(9), "persistent://shop/orders/sound"))
    for number in range(10, 10 + ledgers):
        make = chance.choice(_MAKERS if unreadable else _MAKERS[:-1])
        make(world, chance, chance.choice(topics), number)
    for topic in topics:
        _write_nodes(world, topic)
    _add_logs(world, chance)
    return world


def _encoded(name: str) -> str:
    return name.replace(" ", "+").replace("ü", "%C3%BC")


def _write_nodes(world: PulsarWorld, topic: _Topic) -> None:
    path = topic_path(_encoded(topic.name))
    garbage = topic.value(b"\xff\xff garbage")
    world.nodes[path] = garbage if topic.is_garbage else topic.value(managed_ledger(*topic.listed))
    sub = topic.value(cursor(-1 if topic.named is None else topic.named))
    world.nodes[f"{path}/sub"] = garbage if topic.cursor_is_garbage else sub
    if topic.compaction is not None:
        value = cursor(topic.compaction, topic.compacted)
        world.nodes[f"{path}/__compaction"] = topic.value(value)
        if topic.compaction >= 0:
            row = LeakRow("dangling", LedgerId.of(topic.compaction), "", GONE)
            world.expected.append(row._replace(owner=f"{topic.url}, cursor __compaction"))
    if topic.schemas:
        value = locator(*topic.schemas, first_version=topic.lowest_version)
        world.nodes[f"/schemas/shop/orders/{_encoded(topic.name)}"] = topic.value(value)
    world.doubtful += [path] * topic.is_garbage + [f"{path}/sub"] * topic.cursor_is_garbage


def _create(
    world: PulsarWorld, number: int, custom: dict[str, bytes], ctime: int = OLD, scope: int = 0
) -> None:
    metadata = replace(ledger(number, custom, ctime), ledger=LedgerId(scope, number))
    world.dump.metadata.append(metadata)
    world.store.create(metadata)


def _unlisted(
    world: PulsarWorld,
    chance: random.Random,
    number: int,
    custom: dict[str, bytes],
    row: LeakRow,
    doubt: str | None,
) -> None:
    """Make a ledger that nothing refers to; `row` is that of a leak, and `doubt` why it is none."""
    ctime = chance.choice([OLD, OLD, YOUNG, -1])
    scope = chance.choice([0, 0, 0, 7])
    _create(world, number, custom, ctime, scope)
    row = row._replace(ledger=LedgerId(scope, number))
    if doubt is not None or ctime < 0:
        reason = doubt or "when it was created is not known"
        row = row._replace(ledger_class="undetermined", detail=reason, caution=None)
    elif ctime == YOUNG:
        row = row._replace(ledger_class="unreferenced-young")
    world.expected.append(row)


def _garbage_doubt(topic: _Topic, cursor_too: bool = False) -> str | None:
    path = topic_path(_encoded(topic.name))
    if topic.is_garbage:
        return f"{path} cannot be read"
    return f"{path}/sub cannot be read" if cursor_too and topic.cursor_is_garbage else None


def _leak(number: int, owner: str, caution: str | None) -> LeakRow:
    return LeakRow("leaked", LedgerId.of(number), owner, "nothing refers to it", caution)


def _make_listed(world: PulsarWorld, chance: random.Random, topic: _Topic, number: int) -> None:
    """Make a ledger of a topic's list: there or not, offloaded or not, with its owner or not."""
    offloaded = chance.random() < 0.4
    deleted = offloaded and chance.random() < 0.6
    topic.listed.append(listed(number, offloaded=offloaded, deleted=deleted))
    is_stored, is_stated = chance.random() < 0.7, chance.random() < 0.7
    ledger_id, doubt = LedgerId.of(number), _garbage_doubt(topic)
    if chance.random() < 0.2:  # of the same number in another scope, to which nothing refers
        row = _leak(number, topic.url, topic.recent)._replace(ledger=LedgerId(7, number))
        if doubt is not None:
            row = row._replace(ledger_class="undetermined", detail=doubt, caution=None)
        _create(world, number, owned(_encoded(topic.name)), scope=7)
        world.expected.append(row)
    if is_stored:
        _create(world, number, owned(_encoded(topic.name)) if is_stated else {})
    if topic.is_garbage:
        row = LeakRow("undetermined", ledger_id, topic.url, doubt)
        unknown = LeakRow("unknown-owner", ledger_id, None)
        world.expected += [row if is_stated else unknown] if is_stored else []
    elif deleted and is_stored:
        detail = "its topic is read from long-term storage"
        row = LeakRow("offloaded-copy", ledger_id, topic.url, detail, topic.recent)
        world.expected.append(row)
    elif is_stored:
        world.expected.append(LeakRow("referenced", ledger_id, topic.url))
    elif not deleted:
        detail = f"{GONE}; a copy is in long-term storage" if offloaded else GONE
        world.expected.append(LeakRow("dangling", ledger_id, topic.url, detail))


def _make_unlisted(world: PulsarWorld, chance: random.Random, topic: _Topic, number: int) -> None:
    row = _leak(number, topic.url, topic.recent)
    _unlisted(world, chance, number, owned(_encoded(topic.name)), row, _garbage_doubt(topic))


def _make_cursor(world: PulsarWorld, chance: random.Random, topic: _Topic, number: int) -> None:
    """Make the ledger that the cursor names, or a former one."""
    custom, owner = owned(_encoded(topic.name), "sub"), f"{topic.url}, cursor sub"
    doubt = _garbage_doubt(topic, cursor_too=True)
    if topic.named is None:
        topic.named = number
        if topic.cursor_is_garbage:
            _create(world, number, custom)
            world.expected.append(LeakRow("undetermined", LedgerId.of(number), owner, doubt))
        elif chance.random() < 0.5:
            _create(world, number, custom)
            world.expected.append(LeakRow("referenced", LedgerId.of(number), owner))
        else:
            world.expected.append(LeakRow("dangling", LedgerId.of(number), owner, GONE))
        return
    # The time of a cursor that cannot be read is known all the same.
    _unlisted(world, chance, number, custom, _leak(number, owner, topic.recent), doubt)


def _make_compacted(world: PulsarWorld, chance: random.Random, topic: _Topic, number: int) -> None:
    """Make the ledger that the compaction's cursor names, or another one."""
    custom = compacted_of(topic.name)
    if topic.compaction is not None and topic.compacted is None:
        topic.compacted = number
        if chance.random() < 0.5:
            _create(world, number, custom)
            world.expected.append(LeakRow("referenced", LedgerId.of(number), topic.url))
        elif topic.compaction >= 0:
            detail = f"{GONE}; the cursor's ledger may name a newer one"
            row = LeakRow("undetermined", LedgerId.of(number), topic.url, detail)
            world.expected.append(row)
        else:
            world.expected.append(LeakRow("dangling", LedgerId.of(number), topic.url, GONE))
        return
    caution = topic.recent if topic.compaction is not None else None
    if topic.compaction is not None and topic.compaction >= 0:  # made after the one that is named
        caution = f"ledger {topic.compaction} of the compaction's cursor may name it"
    row = _leak(number, topic.url, caution)
    doubt = _garbage_doubt(topic)
    if topic.is_garbage:
        row = row._replace(caution=None)
    _unlisted(world, chance, number, custom, row, doubt)


def _make_schema(world: PulsarWorld, chance: random.Random, topic: _Topic, number: int) -> None:
    """Make the ledger of a version in the locator, or of one that is not in it."""
    owner = f"schema shop/orders/{topic.name}"
    if not topic.schemas or chance.random() < 0.3:
        topic.schemas.append(number)
        _create(world, number, schema_of(topic.name))
        world.expected.append(LeakRow("referenced", LedgerId.of(number), owner))
        return
    caution = OLDER_SCHEMAS if topic.lowest_version else topic.recent
    row = _leak(number, owner, caution)
    _unlisted(world, chance, number, schema_of(topic.name), row, None)


def _make_foreign(world: PulsarWorld, chance: random.Random, _: _Topic, number: int) -> None:
    """Make a ledger of another application, of nobody, or of a kind that is not known."""
    custom: dict[str, bytes] = chance.choice([{}, {"application": b"distributedlog"}])
    _create(world, number, custom, chance.choice([OLD, -1]))
    owner = "distributedlog" if custom else None
    world.expected.append(LeakRow("unknown-owner", LedgerId.of(number), owner))


def _make_function(world: PulsarWorld, chance: random.Random, _: _Topic, number: int) -> None:
    """Make a ledger of Pulsar of a component that is not known."""
    custom = {"application": b"pulsar", "component": b"function"}
    doubt = "where Pulsar refers to ledgers of pulsar function is not known"
    _unlisted(world, chance, number, custom, _leak(number, "pulsar", None), doubt)


def _make_unreadable(world: PulsarWorld, _: random.Random, __: _Topic, number: int) -> None:
    """Make a ledger whose metadata are garbage."""
    _create(world, number, owned())
    key = world.store._key_of(LedgerId.of(number))
    world.store._values.put(key, b"garbage", 0)
    world.expected.append(LeakRow("undetermined", LedgerId.of(number), None, UNREADABLE))


_MAKERS: list[Callable[[PulsarWorld, random.Random, _Topic, int], None]] = [
    *(_make_listed, _make_listed, _make_unlisted, _make_cursor, _make_compacted, _make_schema),
    *(_make_foreign, _make_function, _make_unreadable),
]


def _add_logs(world: PulsarWorld, chance: random.Random) -> None:
    """Put each ledger, and some that have no metadata, into some logs of some bookies."""
    everything = [each.ledger for each in world.expected] + [LedgerId.of(900), LedgerId(3, 901)]
    for bookie in ("b1", "b2", "b3"):
        world.dump.held[bookie] = {}
        for directory, log in ((0, 1), (1, 1), (0, 2), (0, 3)):
            share = chance.choice([0.03, 0.1, 0.4])
            told = {each: chance.randint(1, 500) for each in everything if chance.random() < share}
            world.dump.logs[bookie, directory, log] = (1024 + sum(told.values()), True, told)
