"""A world of Pulsar's brokers, step by step: each step changes one node or one ledger.

Operations are generators that yield between their steps. One may go on, or end with its broker at
any step; `Operation.holds` are the ledgers that its later steps would list or delete.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator

from bkstore.cluster.store.api import ValuesOrErrors, Versioned
from bkstore.cluster.store.key_value_store import MemoryStore
from bkstore.errors import CorruptionError
from bkstore.ids import LedgerId
from bkstore.pulsar import NodeValue
from tests.pulsar.samples import (
    CODECS,
    DAY,
    NOW,
    compacted_of,
    cursor,
    ledger,
    listed,
    locator,
    managed_ledger,
    owned,
    packed,
    schema_of,
    topic_path,
)

TOPICS = ("a", "b%2Fc", "d-partition-0")
_SECOND = 1000


class Operation:
    """A broker's work on a topic."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.holds: set[int] = set()
        self.steps: Iterator[None] = iter(())


class Topic:
    """What a topic's nodes have: ledgers with their offload states, cursors, a schema's ledgers."""

    def __init__(self) -> None:
        self.exists = False
        self.ledgers: dict[int, str] = {}
        self.cursors: dict[str, tuple[int, int | None]] = {}
        self.schema: list[int] = []


class World:
    """BookKeeper's ledgers, Pulsar's nodes, and brokers. A `PulsarNodes` and the store's maker.

    While `busy`, brokers go on between any two reads.
    """

    is_live = True
    is_complete = True
    read_at = None

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.clock = NOW
        self.busy = False
        self.store = _WorldStore(self)
        self.nodes: dict[str, NodeValue] = {"/managed-ledgers": NodeValue(b"", 0, NOW)}
        self.topics = {topic: Topic() for topic in TOPICS}
        self.running: list[Operation] = []
        self._next_ledger = 0

    # -- brokers

    def step(self) -> None:
        """Let a broker do a step: of a running operation, or the first of a new one."""
        self.clock += _SECOND
        if self.running and self.rng.random() < 0.7:
            self._advance(self.rng.choice(self.running))
            return
        idle = [topic for topic in TOPICS if topic not in {each.topic for each in self.running}]
        if idle:
            operation = Operation(self.rng.choice(idle))
            operation.steps = self.rng.choice(_OPERATIONS)(self, operation)
            self.running.append(operation)
            self._advance(operation)

    def _advance(self, operation: Operation) -> None:
        """Do the next step of an operation, or end it there: its broker is gone."""
        if self.rng.random() < 0.15 or next(operation.steps, "end") == "end":
            self.running.remove(operation)

    def finish(self) -> None:
        """Let all operations come to their end, some of them early."""
        while self.running:
            self.clock += _SECOND
            self._advance(self.rng.choice(self.running))

    def sleep(self) -> None:
        """Let the ledgers grow old, when no broker is at work."""
        self.finish()
        self.clock += 2 * DAY

    # -- steps

    def create(self, operation: Operation, custom: dict[str, bytes]) -> int:
        """Create a ledger, which the operation is to list."""
        self._next_ledger += self.rng.randint(1, 3)
        self.store.create(ledger(self._next_ledger, custom, self.clock))
        operation.holds.add(self._next_ledger)
        return self._next_ledger

    def delete(self, operation: Operation, ledger_id: int) -> None:
        """Delete a ledger, if it is there."""
        operation.holds.discard(ledger_id)
        if ledger_id >= 0 and LedgerId.of(ledger_id) in MemoryStore.ledgers(self.store):
            self.store.delete(ledger_id)

    def write(self, path: str, data: bytes, *, plain: bool = False) -> None:
        """Write a node."""
        if not plain and data:
            data = self.rng.choice([data, packed(data, self.rng.choice(list(CODECS)))])
        old = self.nodes.get(path)
        self.nodes[path] = NodeValue(data, 0 if old is None else old.version + 1, self.clock)

    def write_topic(self, topic: str) -> None:
        """Write a topic's list."""
        states = self.topics[topic].ledgers.items()
        infos = [
            listed(each, offloaded=state != "", deleted=state == "deleted")
            for each, state in states
        ]
        self.write(topic_path(topic), managed_ledger(*infos))

    # -- Pulsar's nodes

    def list_children(self, paths: Iterable[str]) -> Iterator[list[str] | None]:
        """As `PulsarNodes.list_children`."""
        for path in paths:
            self._go_on()
            below = [each for each in self.nodes if each.startswith(f"{path}/")]
            children = sorted({each[len(path) + 1 :].split("/")[0] for each in below})
            yield children if below or path in self.nodes else None

    def read_many(self, paths: Iterable[str]) -> Iterator[NodeValue | CorruptionError | None]:
        """As `PulsarNodes.read_many`."""
        for path in paths:
            self._go_on()
            yield self.nodes.get(path)

    def location_of(self, path: str) -> str:
        """Return the path."""
        return path

    def close(self) -> None:
        """Do nothing."""

    def _go_on(self) -> None:
        if self.busy and self.rng.random() < 0.3:
            self.step()

    # -- the truth

    def unneeded(self, now: int) -> tuple[set[int], set[int]]:
        """Return (leaks of a day, offloaded copies): ledgers that no node refers to, or only as
        deleted from BookKeeper, and that no step of a running operation would list or delete."""
        needed: set[int] = set()
        offloaded: set[int] = set()
        for topic in self.topics.values():
            for ledger_id, state in topic.ledgers.items():
                (offloaded if state == "deleted" else needed).add(ledger_id)
            for cursor_ledger, compacted in topic.cursors.values():
                needed |= {cursor_ledger, -1 if compacted is None else compacted}
            needed |= set(topic.schema)
        held = set().union(*(each.holds for each in self.running))
        stored = {each.ledger for each in MemoryStore.ledgers(self.store)} - held
        ctimes = {each: self.store.read(each).metadata.ctime for each in stored}
        leaked = {each for each in stored - needed - offloaded if now - ctimes[each] >= DAY}
        return leaked, (stored & offloaded) - needed


class _WorldStore(MemoryStore):
    """The ledgers of a world, in which brokers go on between reads."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """Return the ledgers of this moment."""
        ledgers = super().ledgers(scope)
        self._world._go_on()
        return ledgers

    def read_many(self, ledgers: Iterable[int | LedgerId]) -> ValuesOrErrors[Versioned]:
        """Yield ledgers, each as it is at its turn."""
        for ledger_id in ledgers:
            self._world._go_on()
            yield from super().read_many([ledger_id])


# -- operations


def _roll(world: World, operation: Operation) -> Iterator[None]:
    """Make a topic if there is none, create a ledger, list it."""
    topic = world.topics[operation.topic]
    if not topic.exists:
        topic.exists = True
        world.write(topic_path(operation.topic), b"")
        yield
    made = world.create(operation, owned(operation.topic))
    yield
    topic.ledgers[made] = ""
    world.write_topic(operation.topic)
    operation.holds.discard(made)


def _trim(world: World, operation: Operation) -> Iterator[None]:
    """Take ledgers off the list, delete them one by one, except those that are marked as deleted
    from BookKeeper."""
    topic = world.topics[operation.topic]
    trimmed = list(topic.ledgers)[: world.rng.randint(0, 2)]
    if not trimmed:
        return
    kept = [each for each in trimmed if topic.ledgers.pop(each) != "deleted"]
    operation.holds |= set(kept)
    world.write_topic(operation.topic)
    for each in kept:
        yield
        world.delete(operation, each)


def _offload(world: World, operation: Operation) -> Iterator[None]:
    """Copy a ledger to long-term storage, mark BookKeeper's copy as deleted, delete it."""
    topic = world.topics[operation.topic]
    plain = [each for each, state in topic.ledgers.items() if not state]
    if not plain:
        return
    topic.ledgers[plain[0]] = "complete"
    world.write_topic(operation.topic)
    yield
    topic.ledgers[plain[0]] = "deleted"
    world.write_topic(operation.topic)
    operation.holds.add(plain[0])
    yield
    world.delete(operation, plain[0])


def _roll_cursor(world: World, operation: Operation) -> Iterator[None]:
    """Give a cursor a new ledger, name it, delete the old one."""
    topic = world.topics[operation.topic]
    if not topic.exists:
        return
    name = world.rng.choice(["sub", "my+sub", "__compaction"])
    old, compacted = topic.cursors.get(name, (-1, None))
    made = world.create(operation, owned(operation.topic, name))
    yield
    topic.cursors[name] = made, compacted
    world.write(topic_path(operation.topic, name), cursor(made, compacted))
    operation.holds = {old} - {-1}
    yield
    world.delete(operation, old)


def _remove_cursor(world: World, operation: Operation) -> Iterator[None]:
    """Remove a cursor's node, delete its ledger."""
    topic = world.topics[operation.topic]
    names = sorted(set(topic.cursors) - {"__compaction"})
    if names:
        name = world.rng.choice(names)
        old, _ = topic.cursors.pop(name)
        del world.nodes[topic_path(operation.topic, name)]
        operation.holds.add(old)
        yield
        world.delete(operation, old)


def _compact(world: World, operation: Operation) -> Iterator[None]:
    """Write a compacted ledger, name it in the cursor, delete the old one."""
    topic = world.topics[operation.topic]
    if not topic.exists:
        return
    cursor_ledger, old = topic.cursors.get("__compaction", (-1, None))
    made = world.create(operation, compacted_of(operation.topic.replace("%2F", "/")))
    yield
    topic.cursors["__compaction"] = cursor_ledger, made
    world.write(topic_path(operation.topic, "__compaction"), cursor(cursor_ledger, made))
    operation.holds = set() if old is None else {old}
    yield
    if old is not None:
        world.delete(operation, old)


def _add_schema(world: World, operation: Operation) -> Iterator[None]:
    """Write a version of a schema, name it in the locator."""
    topic = world.topics[operation.topic]
    made = world.create(operation, schema_of(operation.topic))
    yield
    topic.schema.append(made)
    world.write(f"/schemas/shop/orders/{operation.topic}", locator(*topic.schema), plain=True)
    operation.holds.discard(made)


def _delete_schema(world: World, operation: Operation) -> Iterator[None]:
    """Remove a locator, delete its ledgers."""
    topic = world.topics[operation.topic]
    if topic.schema:
        old, topic.schema = topic.schema, []
        del world.nodes[f"/schemas/shop/orders/{operation.topic}"]
        operation.holds |= set(old)
        for each in old:
            yield
            world.delete(operation, each)


def _delete_topic(world: World, operation: Operation) -> Iterator[None]:
    """Remove cursors with their ledgers, delete the ledgers of the list, remove the topic."""
    topic = world.topics[operation.topic]
    if not topic.exists or world.rng.random() < 0.5:
        return
    for name in list(topic.cursors):
        old = {each for each in topic.cursors.pop(name) if each is not None and each >= 0}
        del world.nodes[topic_path(operation.topic, name)]
        operation.holds |= old
        for each in sorted(old):
            yield
            world.delete(operation, each)
    operation.holds |= set(topic.ledgers)
    for each in list(topic.ledgers):
        yield
        world.delete(operation, each)
    yield
    topic.ledgers.clear()
    topic.exists = False
    del world.nodes[topic_path(operation.topic)]


_OPERATIONS: list[Callable[[World, Operation], Iterator[None]]] = [
    *(_roll, _roll, _roll, _trim, _trim, _offload, _roll_cursor, _roll_cursor),
    *(_remove_cursor, _compact, _add_schema, _delete_schema, _delete_topic),
]
