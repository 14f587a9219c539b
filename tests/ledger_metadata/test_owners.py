"""Owners of ledgers: what custom metadata state, and which owners a filter chooses."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from bkstore.ledger_metadata import LedgerOwner, OwnerFilter, read_owner
from bkstore.ledger_metadata.topic_names import (
    TopicName,
    decode_element,
    encode_element,
    parse_managed_ledger,
    parse_topic_url,
)
from bkstore.tables.commands import OWNERS

ENCODED = {
    "orders": "orders",
    "a b": "a+b",
    "a+b": "a%2Bb",
    "a/b:c": "a%2Fb%3Ac",
    "100%": "100%25",
    "über": "%C3%BCber",
    "t~1*-_.": "t%7E1*-_.",
    "雪": "%E9%9B%AA",
}
"""Names and what Java's `URLEncoder.encode(name, UTF_8)` makes of them, by its documentation."""


@pytest.mark.parametrize(("name", "element"), ENCODED.items())
def test_elements(name: str, element: str) -> None:
    """A name is encoded as Java does, and decoded again."""
    assert (element, name) == (encode_element(name), decode_element(element))


@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_any_element(name: str) -> None:
    """Every name is one element of a path, and comes back."""
    element = encode_element(name)

    assert "/" not in element
    assert element.isascii()
    assert name == decode_element(element)


@pytest.mark.parametrize(
    ("managed_ledger", "namespace", "url", "partition"),
    [
        ("t/n/persistent/a%2Fb", "t/n", "persistent://t/n/a/b", None),
        ("t/n/persistent/x-partition-12", "t/n", "persistent://t/n/x-partition-12", 12),
        ("t/n/persistent/x-partition-0", "t/n", "persistent://t/n/x-partition-0", 0),
        ("t/n/persistent/x-partition-01", "t/n", "persistent://t/n/x-partition-01", None),
        ("t/n/persistent/x-partition-00", "t/n", "persistent://t/n/x-partition-00", None),
        ("t/n/persistent/x-partition-", "t/n", "persistent://t/n/x-partition-", None),
        ("t/n/persistent/-partition-1", "t/n", "persistent://t/n/-partition-1", None),
        ("t/c/n/persistent/x", "t/c/n", "persistent://t/c/n/x", None),
        ("t/n/persistent/persistent", "t/n", "persistent://t/n/persistent", None),
    ],
)
def test_managed_ledgers(
    managed_ledger: str, namespace: str, url: str, partition: int | None
) -> None:
    """The name of a managed ledger is its namespace and its topic, decoded."""
    topic = parse_managed_ledger(managed_ledger)

    assert topic is not None
    assert ("t", namespace, url) == (topic.tenant, topic.namespace, topic.url)
    assert (partition, managed_ledger) == (topic.partition, topic.managed_ledger)


@pytest.mark.parametrize(
    "managed_ledger",
    ["", "x", "t/n/x", "t/n/non-persistent/x", "t/n/persistent/", "//persistent/x"],
)
def test_other_managed_ledgers(managed_ledger: str) -> None:
    """A name that is no topic's is kept as it is, and nothing is made of it."""
    custom = {"application": b"pulsar", "component": b"managed-ledger"}
    owner = read_owner({**custom, "pulsar/managed-ledger": managed_ledger.encode()})

    assert parse_managed_ledger(managed_ledger) is None
    assert (None, None, managed_ledger) == (owner.topic, owner.tenant, owner.managed_ledger)


def test_topic_urls() -> None:
    """A topic's URL has at least three parts; slashes after them belong to the name."""
    assert parse_topic_url("persistent://t/n/a/b") == TopicName("t/n", "a/b")
    assert "persistent://t/n/a" == TopicName("t/n", "a-partition-0").partitioned_url
    for url in ("", "persistent://t/n", "persistent://t/n/", "http://t/n/x", "t/n/x"):
        assert parse_topic_url(url) is None


def test_components() -> None:
    """Each component of Pulsar has keys of its own; a key of another component is not read."""
    pulsar = {"application": b"pulsar"}
    data = {**pulsar, "component": b"managed-ledger", "pulsar/managed-ledger": b"t/n/persistent/x"}
    compacted = {
        **pulsar,
        "component": b"compacted-ledger",
        "pulsar/compactedTopic": "persistent://t/n/ü".encode(),
        "pulsar/compactedTo": b"\xff",
    }
    schema = {**pulsar, "component": b"schema", "pulsar/schemaId": b"t/n/x y"}
    topic = ("t", "t/n", "persistent://t/n/x", None)
    managed = LedgerOwner("pulsar", "managed-ledger", *topic, managed_ledger="t/n/persistent/x")

    assert managed == read_owner(data)
    assert managed._replace(cursor="my sub") == read_owner({**data, "pulsar/cursor": b"my+sub"})
    assert managed._replace(cursor="a b+") == read_owner({**data, "pulsar/cursor": b"a b+"})
    assert ("compacted-ledger", "persistent://t/n/ü", "t/n/persistent/%C3%BC") == (
        read_owner(compacted).component,
        read_owner(compacted).topic,
        read_owner(compacted).managed_ledger,
    )
    assert LedgerOwner("pulsar", "schema", "t", "t/n", schema="t/n/x y") == read_owner(
        {**schema, "pulsar/managed-ledger": b"t/n/persistent/other"}
    )
    assert [f"t/n/{name}" for name in ("a b", "a+b%")] == [
        read_owner({**schema, "pulsar/schemaId": f"t/n/{name}".encode()}).schema
        for name in ("a+b", "a+b%")
    ]
    assert OWNERS.replace("?", "").split() == list(LedgerOwner._fields[:-1])
    assert len(managed.columns) == len(OWNERS.split())


@pytest.mark.parametrize(
    ("custom", "owner"),
    [
        ({}, LedgerOwner()),
        ({"application": b"\xff"}, LedgerOwner()),
        ({"application": b"distributedlog", "component": b"x"}, LedgerOwner("distributedlog", "x")),
        (
            {"application": b"other", "pulsar/managed-ledger": b"t/n/persistent/x"},
            LedgerOwner("other"),
        ),
        ({"application": b"pulsar"}, LedgerOwner("pulsar")),
        ({"application": b"pulsar", "component": b"schema"}, LedgerOwner("pulsar", "schema")),
        (
            {
                "application": b"pulsar",
                "component": b"compacted-ledger",
                "pulsar/compactedTopic": b"x",
            },
            LedgerOwner("pulsar", "compacted-ledger"),
        ),
    ],
)
def test_unknown_owners(custom: dict[str, bytes], owner: LedgerOwner) -> None:
    """What is not stated, or cannot be read, is unknown; other applications have no topics."""
    assert owner == read_owner(custom)


def test_filters() -> None:
    """All patterns must match; a partitioned topic stands for its partitions and its schemas."""
    pulsar = {"application": b"pulsar", "component": b"managed-ledger"}
    name = b"shop/orders/persistent/paid-partition-3"
    topic = read_owner({**pulsar, "pulsar/managed-ledger": name})
    schema = read_owner(
        {"application": b"pulsar", "component": b"schema", "pulsar/schemaId": b"shop/orders/paid"}
    )
    chosen_topics = [
        "persistent://shop/orders/paid-partition-3",
        "persistent://shop/orders/paid",
        "shop/orders/paid",
        "shop/*",
        "*paid*",
    ]

    for pattern in chosen_topics:
        assert OwnerFilter(topic=pattern).matches(topic), pattern
    for pattern in ("paid", "shop/orders/paid-partition-4", "shop/orders", "SHOP/*"):
        assert not OwnerFilter(topic=pattern).matches(topic), pattern
    assert OwnerFilter(topic="shop/orders/paid").matches(schema)
    assert OwnerFilter(namespace="shop/orders", tenant="shop").matches(topic)
    assert OwnerFilter(namespace="orders").matches(schema)
    assert not OwnerFilter(namespace="shop/orders", component="schema").matches(topic)
    assert not OwnerFilter(tenant="orders").matches(topic)
    for field in OwnerFilter.__slots__:
        assert not OwnerFilter(**{field: "*"}).matches(LedgerOwner("pulsar")), field
        assert OwnerFilter(**{field: "*"})
    assert not OwnerFilter()
    assert OwnerFilter().matches(LedgerOwner())
