"""The classes of ledgers, and that what changes while it is read is not reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from bkstore.cluster.store.key_value_store import MemoryStore
from bkstore.errors import CorruptionError, UnsupportedLayout
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.pulsar import LeakReport, LeakSearch, MemoryNodes, NodeValue
from tests.pulsar.samples import (
    DAY,
    NOW,
    OLD,
    YOUNG,
    compacted_of,
    cursor,
    ledger,
    listed,
    locator,
    managed_ledger,
    node_values,
    owned,
    schema_of,
    store_of,
    topic_path,
)

MINUTE = 60 * 1000


def search(store: MemoryStore, tree: dict[str, Any], **options: Any) -> LeakReport:
    """Return the report of a search over these nodes."""
    return LeakSearch(store, MemoryNodes(node_values(tree)), now=NOW, **options).run()


def classes(report: LeakReport) -> dict[int, str]:
    """Return the class of each ledger."""
    return {each.ledger.ledger: each.ledger_class for each in report.ledgers}


TREE = {
    topic_path("paid"): managed_ledger(1, listed(2, deleted=True), listed(3, deleted=True), 4),
    topic_path("paid", "sub"): cursor(5),
    topic_path("paid", "__compaction"): cursor(-1, 6),
    "/schemas/shop/orders/paid": locator(7),
}
STORED = [
    ledger(1, owned()),
    ledger(2, owned()),
    ledger(5, owned(cursor_name="sub")),
    ledger(6, compacted_of()),
    ledger(7, schema_of()),
    ledger(11, owned()),
    ledger(12, owned(), YOUNG),
    ledger(13, owned("gone")),
    ledger(14, owned(cursor_name="gone")),
    ledger(15, compacted_of()),
    ledger(16, schema_of("gone")),
    ledger(17, {}),
    ledger(18, {"application": b"distributedlog"}),
    ledger(19, owned(), -1),
    ledger(20, {"application": b"pulsar", "component": b"newer"}),
]
EXPECTED = {
    **dict.fromkeys((1, 5, 6, 7), "referenced"),
    2: "offloaded-copy",
    4: "dangling",
    **dict.fromkeys((11, 13, 14, 15, 16), "leaked"),
    12: "unreferenced-young",
    **dict.fromkeys((17, 18), "unknown-owner"),
    **dict.fromkeys((19, 20), "undetermined"),
}


def test_classes() -> None:
    """A ledger of each class, the worst first; one that is only in long-term storage is none."""
    report = search(store_of(STORED), TREE)
    by_id = {each.ledger.ledger: each for each in report.ledgers}

    assert EXPECTED == classes(report)
    assert [4, 11, 13, 14, 15, 16, 2] == [each.ledger.ledger for each in report.ledgers][:7]
    assert {"": len(by_id)} == {each.caution: len(by_id) for each in report.ledgers}
    assert not report.is_clean
    assert [] == report.findings
    assert 5 == report.counts["leaked"]
    assert "persistent://shop/orders/paid" == by_id[4].owner.topic
    assert by_id[4].stored is None


def test_grace() -> None:
    """A ledger is old enough from the grace period on, and not a millisecond before."""
    stored = [ledger(1, owned(), NOW - DAY), ledger(2, owned(), NOW - DAY + 1)]
    future = ledger(3, owned(), NOW + MINUTE)

    assert {1: "leaked", 2: "unreferenced-young", 3: "unreferenced-young"} == classes(
        search(store_of([*stored, future]), {topic_path("paid"): b""}, grace=DAY)
    )


def test_clean() -> None:
    """Without a leak, a dangling ledger or a finding the report is clean."""
    tree = {topic_path("paid"): managed_ledger(1)}
    stored = [ledger(1, owned()), ledger(2, {}), ledger(3, owned(), YOUNG)]

    assert search(store_of(stored), tree).is_clean
    assert not search(store_of(stored), {**tree, topic_path("x"): b"garbage"}).is_clean


def test_undecodable_nodes() -> None:
    """Nothing that belongs to a topic whose value is garbage is a leak; the rest is found."""
    report = search(store_of(STORED), {**TREE, topic_path("paid"): b"\x47\x78garbage"})
    expected = dict(EXPECTED)
    del expected[4]  # it is not known to be listed
    expected |= dict.fromkeys((1, 2, 11, 12, 14, 15), "undetermined")
    details = {each.ledger.ledger: each.detail for each in report.ledgers}

    assert expected == classes(report)
    assert f"{topic_path('paid')} cannot be read" == details[11]
    assert 1 == len(report.findings)


def test_unreadable_metadata() -> None:
    """A ledger whose metadata cannot be read is there, so it is not dangling; nor is it a leak."""

    class Damaged(MemoryStore):
        def read_many(self, ledgers: Iterable[int | LedgerId]) -> Iterator[Any]:
            for ledger_id, versioned in super().read_many(ledgers):
                is_damaged = ledger_id.ledger in (1, 2)
                yield ledger_id, CorruptionError("f", 3, "bad") if is_damaged else versioned

    store = Damaged()
    for metadata in [*STORED[:1], ledger(2, owned())]:
        store.create(metadata)
    report = search(store, {topic_path("paid"): managed_ledger(1)})

    assert {1: "referenced", 2: "undetermined"} == classes(report)
    assert [1, 2] == [finding.ledger.ledger for finding in report.findings if finding.ledger]


def test_scopes() -> None:
    """Pulsar refers to ledgers of scope 0 only: one of another scope is no other's twin."""
    store = store_of([ledger(1, owned())])
    store.create(ledger(LedgerId(5, 1), {}))  # type: ignore[arg-type]
    report = search(store, {topic_path("paid"): managed_ledger(1)})

    assert {(0, "referenced"), (5, "unknown-owner")} == {
        (each.ledger.scope, each.ledger_class) for each in report.ledgers
    }


def test_owner_by_reference() -> None:
    """A ledger from before custom metadata has the owner that refers to it."""
    (only,) = search(store_of([ledger(1, {})]), {topic_path("paid"): managed_ledger(1)}).ledgers

    assert ("referenced", "persistent://shop/orders/paid") == (only.ledger_class, only.owner.topic)


def test_managed_ledgers_of_no_topic() -> None:
    """A managed ledger of another form is read if a ledger names it."""
    custom = {**owned(), "pulsar/managed-ledger": b"my/ledger"}
    stored = [ledger(1, custom), ledger(2, custom)]

    assert {1: "referenced", 2: "leaked"} == classes(
        search(store_of(stored), {"/managed-ledgers/my/ledger": managed_ledger(1)})
    )
    assert {1: "undetermined", 2: "undetermined"} == classes(
        search(store_of(stored), {"/managed-ledgers/my/ledger": b"x"})
    )


def test_old_topic_names() -> None:
    """A compacted ledger of a topic with a cluster in its name is the topic's that refers to it."""
    custom = {**compacted_of(), "pulsar/compactedTopic": b"persistent://shop/west/orders/paid"}
    path = "/managed-ledgers/shop/west/orders/persistent/paid"
    tree = {path: managed_ledger(), f"{path}/__compaction": cursor(-1, 1)}
    stored = [ledger(1, custom), ledger(2, custom)]

    assert {1: "referenced", 2: "leaked"} == classes(search(store_of(stored), tree))
    assert {1: "undetermined", 2: "undetermined"} == classes(
        search(store_of(stored), {**tree, f"{path}/__compaction": b"x"})
    )


def test_cautions() -> None:
    """A ledger that may still be named where this does not look is to be left alone for now."""
    stored = [
        ledger(5, compacted_of()),
        ledger(9, compacted_of()),
        ledger(10, compacted_of("other")),
        ledger(11, schema_of()),
        ledger(12, owned("busy")),
        ledger(13, owned("idle")),
        ledger(14, owned("made")),
        ledger(15, owned("busy")),
    ]
    recent, longer = NOW - 5 * MINUTE + 1, NOW - 5 * MINUTE
    tree = {
        topic_path("paid"): b"",
        topic_path("paid", "__compaction"): cursor(4, 7),
        topic_path("other"): b"",
        topic_path("other", "__compaction"): cursor(-1, 7),
        "/schemas/shop/orders/paid": locator(8, first_version=1),
        topic_path("busy"): NodeValue(managed_ledger(listed(15, deleted=True)), 3, recent),
        topic_path("idle"): NodeValue(b"", 3, longer),
        topic_path("made"): NodeValue(b"", 0, recent),
    }
    report = search(store_of([*stored, ledger(4, {}), ledger(7, {}), ledger(8, {})]), tree)
    cautions = {each.ledger.ledger: each.caution for each in report.ledgers if each.caution}

    assert {9, 11, 12, 15} == set(cautions)
    assert "ledger 4" in cautions[9]
    assert "older versions" in cautions[11]
    assert "just changed" in cautions[12]
    assert {5, 9, 10, 11, 12, 13, 14} == {
        each.ledger.ledger for each in report.ledgers if each.ledger_class == "leaked"
    }


def test_replaced_compacted_ledger() -> None:
    """A compacted ledger that is gone is not dangling if the cursor's ledger may name another."""
    open_cursor = {topic_path("x"): b"", topic_path("x", "__compaction"): cursor(4, 7)}
    closed_cursor = {topic_path("x"): b"", topic_path("x", "__compaction"): cursor(-1, 7)}

    assert "undetermined" == classes(search(store_of([ledger(4, {})]), open_cursor))[7]
    assert "dangling" == classes(search(store_of([]), closed_cursor))[7]


def test_other_cluster() -> None:
    """If nothing that Pulsar refers to is there, it may be another cluster's: nothing is a leak."""
    other = {topic_path("other"): managed_ledger(50, listed(1, deleted=True))}
    report = search(
        store_of([ledger(1, owned()), ledger(2, owned()), ledger(3, schema_of())]), other
    )

    assert {1: "offloaded-copy", 2: "undetermined", 3: "undetermined", 50: "dangling"} == classes(
        report
    )
    assert ["is this its Pulsar" in finding.detail for finding in report.findings] == [True]
    none = {topic_path("other"): managed_ledger(listed(50, deleted=True))}
    assert "leaked" == classes(search(store_of([ledger(2, owned())]), none))[2]
    with pytest.raises(UnsupportedLayout, match="is the root of Pulsar's metadata right"):
        search(store_of(STORED), {"/schemas/shop/orders/paid": locator(7)})


def test_no_topics() -> None:
    """Without a single topic all ledgers of Pulsar are leaked, with a caution and a finding; also
    if they are looked at again. Without ledgers of Pulsar it is nothing."""
    tree = {"/managed-ledgers/shop/orders": b"", "/schemas/shop/orders/paid": locator(7)}
    search = LeakSearch(store_of(STORED), MemoryNodes(node_values(tree)), now=NOW)
    report = search.run()
    leaked = [each for each in report.ledgers if each.ledger_class == "leaked"]

    assert {1, 2, 5, 6, 11, 13, 14, 15, 16} == {each.ledger.ledger for each in leaked}
    assert 1 == len({each.caution for each in leaked})
    assert "no topics at all" in leaked[0].caution
    assert leaked == search.check_again(leaked)
    assert [("/managed-ledgers", "oddity")] == [
        (finding.file, finding.severity) for finding in report.findings
    ]
    assert ["has no topics"] == [finding.detail[:13] for finding in report.findings]
    others = LeakSearch(store_of(STORED[11:13]), MemoryNodes({"/managed-ledgers": NodeValue(b"")}))
    assert others.run().is_clean
    # A copy without the tree does not say that there are no topics.
    copy = MemoryNodes(node_values({"/schemas/shop/orders/paid": locator(7)}), is_complete=False)
    findings = LeakSearch(store_of(STORED), copy, now=NOW).run().findings
    assert ["is not in the copy"] == [finding.detail for finding in findings]


class ChangingNodes(MemoryNodes):
    """Nodes that change when the tree has been read for the first time."""

    is_live = True

    def __init__(self, tree: dict[str, Any], change: Callable[[ChangingNodes], None]) -> None:
        super().__init__(node_values(tree))
        self._change: Callable[[ChangingNodes], None] | None = change

    def put(self, path: str, data: bytes) -> None:
        """Change a node's value."""
        self.values[path] = NodeValue(data)

    def list_children(self, paths: Iterable[str]) -> Iterator[list[str] | None]:
        """Change the tree before the schemas, the last that is read, are listed."""
        asked = list(paths)
        if asked == ["/schemas"] and self._change is not None:
            self._change(self)
            self._change = None
        return super().list_children(asked)


def just_changed(tree: dict[str, bytes]) -> dict[str, NodeValue]:
    """Return nodes that were changed a minute ago, so that the second look waits."""
    return {path: NodeValue(data, 1, NOW - MINUTE) for path, data in tree.items()}


def changing(
    stored: list[LedgerMetadata], tree: dict[str, bytes], change: Callable[[Any, Any], None]
) -> dict[int, str]:
    """Return the classes of a search during which something changes: before topics are read, or
    before the second look, which makes no difference."""
    store = store_of(stored)
    nodes = ChangingNodes(tree, lambda nodes: change(store, nodes))
    early = classes(LeakSearch(store, nodes, now=NOW).run())
    late = classes(changed_before_second_look(store_of(stored), tree, change))

    assert early == late
    return late


def changed_before_second_look(
    store: MemoryStore, tree: dict[str, bytes], change: Callable[[Any, Any], None]
) -> LeakReport:
    """Return the report of a search that waits, and meanwhile something changes."""
    nodes = ChangingNodes(just_changed(tree), lambda _: None)
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        change(store, nodes)

    report = LeakSearch(store, nodes, now=NOW, pause=7.0, wait=wait).run()
    assert [7.0] == waited
    return report


def test_deleted_meanwhile() -> None:
    """A ledger that a broker deletes while this reads is no leak."""
    tree = {topic_path("paid"): managed_ledger(2)}
    stored = [ledger(1, owned()), ledger(2, owned())]

    assert {2: "referenced"} == changing(stored, tree, lambda store, _: store.delete(1))


def test_made_meanwhile() -> None:
    """A ledger that is made after BookKeeper was read, and listed before Pulsar was, is there."""
    tree = {topic_path("paid"): managed_ledger(1, 2)}

    assert {1: "referenced", 2: "referenced"} == changing(
        [ledger(1, owned())], tree, lambda store, _: store.create(ledger(2, owned()))
    )


def test_unlisted_meanwhile() -> None:
    """A listed ledger that was not there is not dangling if it is off the list by now."""

    def unlist(_: Any, nodes: ChangingNodes) -> None:
        nodes.put(topic_path("paid"), managed_ledger(1))

    tree = {topic_path("paid"): managed_ledger(1, 2)}

    assert {1: "referenced"} == changing([ledger(1, owned())], tree, unlist)


def test_listed_meanwhile() -> None:
    """A ledger that is referred to by the time of the second look is no leak."""

    def list_it(_: Any, nodes: ChangingNodes) -> None:
        nodes.put(topic_path("paid"), managed_ledger(1))

    assert {1: "referenced"} == changing([ledger(1, owned())], {topic_path("paid"): b""}, list_it)


def test_damaged_meanwhile() -> None:
    """A suspect of a topic that cannot be read any more is in doubt, and the topic a finding."""
    report = changed_before_second_look(
        store_of([ledger(1, owned())]),
        {topic_path("paid"): b""},
        lambda _, nodes: nodes.put(topic_path("paid"), b"garbage"),
    )

    assert {1: "undetermined"} == classes(report)
    assert [topic_path("paid")] == [finding.file for finding in report.findings]


@pytest.mark.parametrize(
    ("node", "waits"),
    [
        (NodeValue(b"", 1, NOW - MINUTE), [7.0]),
        (NodeValue(b"", 1, NOW - 5 * MINUTE), []),
        (NodeValue(b"", 0, NOW - MINUTE), []),
        (None, [7.0]),
    ],
)
def test_pause(node: NodeValue | None, waits: list[float]) -> None:
    """The second look waits if a node was just changed, or is gone: a broker may be deleting."""
    tree: dict[str, Any] = {topic_path("other"): b""}
    if node is not None:
        tree[topic_path("paid")] = node
    store = store_of([ledger(1, owned()), ledger(2, owned())])
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        store.delete(1)

    nodes = ChangingNodes(tree, lambda _: None)
    report = LeakSearch(store, nodes, now=NOW, pause=7.0, wait=wait).run()

    assert waits == waited
    assert ({2} if waits else {1, 2}) == set(classes(report))
    nodes = ChangingNodes(tree, lambda _: None)
    LeakSearch(store, nodes, now=NOW, wait=wait).run()  # no pause was asked for
    assert waits == waited


def test_check_again() -> None:
    """The classes of some ledgers now; a ledger that is gone is left out."""
    store = store_of(STORED)
    nodes = MemoryNodes(node_values(TREE))
    search = LeakSearch(store, nodes, now=NOW)
    leaked = [each for each in search.run().ledgers if each.ledger_class == "leaked"]
    store.delete(11)
    nodes.values[topic_path("gone")] = NodeValue(managed_ledger(13))
    nodes._children[topic_path("gone")] = set()

    assert {13: "referenced", **dict.fromkeys((14, 15, 16), "leaked")} == {
        each.ledger.ledger: each.ledger_class for each in search.check_again(leaked)
    }
    assert [] == search.check_again([])
    assert OLD == leaked[1].stored.ctime if leaked[1].stored else False
