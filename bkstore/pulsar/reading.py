"""Reading the references of Pulsar's metadata: topics with their cursors, then schemas."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from bkstore.errors import CorruptionError
from bkstore.index.api import Finding
from bkstore.ledger_metadata.owners import (
    COMPACTED_LEDGER,
    MANAGED_LEDGER,
    LedgerOwner,
    decode_schema_id,
    owner_of_schema,
    owner_of_topic,
)
from bkstore.ledger_metadata.topic_names import (
    decode_element,
    encode_element,
    is_node_path,
    parse_managed_ledger,
    parse_topic_path,
)
from bkstore.pulsar.node_values import (
    COMPACTION_CURSOR,
    ListedLedger,
    SchemaVersions,
    decode_cursor,
    decode_managed_ledger,
    decode_schema_locator,
)
from bkstore.pulsar.references import (
    DELAYED_INDEX_BUCKET,
    LedgerReference,
    NodeChange,
    NodeKey,
    NodeKind,
    PulsarReferences,
    cursor_key,
    topic_key,
)
from bkstore.pulsar.sources.node_paths import chunks, list_managed_ledgers, list_schemas
from bkstore.pulsar.sources.nodes import MANAGED_LEDGERS, SCHEMAS, NodeValue, PulsarNodes

_TOPICS_AT_ONCE = 1000

_T = TypeVar("_T")


def read_references(
    nodes: PulsarNodes,
    managed_ledgers: Iterable[str] | None = None,
    schemas: Iterable[str] | None = None,
) -> PulsarReferences:
    """Read the references of Pulsar's metadata: of all topics and schemas, or of these managed
    ledgers (names below `/managed-ledgers`) and schemas (ids).

    A value that cannot be decoded is a finding, and a doubt about the ledgers that it may refer to;
    it never counts as absent. So is a tree that an incomplete copy does not have, and a topic
    or schema in a copy that has other nodes below it and no value. Names that a metadata store
    cannot have are left out. O(nodes); values of a thousand topics are in memory at a time."""
    references = PulsarReferences()
    if managed_ledgers is None:
        managed_ledgers = _require_tree(
            references, nodes, MANAGED_LEDGERS, list_managed_ledgers(nodes)
        )
    if schemas is None:
        locators = _require_tree(references, nodes, SCHEMAS, list_schemas(nodes))
    else:
        locators = [path for schema in schemas for path in _locator_paths(schema)]
    for names in chunks(filter(is_node_path, managed_ledgers), _TOPICS_AT_ONCE):
        _read_topics(nodes, names, references)
    for paths in chunks(locators, _TOPICS_AT_ONCE):
        _read_schemas(nodes, paths, references)
    return references


def _require_tree(
    references: PulsarReferences, nodes: PulsarNodes, tree: str, paths: list[str] | None
) -> list[str]:
    """Return the paths of a tree's nodes, none if they are None: the tree does not exist. If
    `nodes` are an incomplete copy, that is recorded as a doubt and a finding."""
    if paths is None and not nodes.is_complete:
        reason = f"{nodes.location_of(tree)} is not in the copy"
        references.doubts[NodeKind.TREE, tree] = reason
        references.findings.append(Finding("oddity", "is not in the copy", nodes.location_of(tree)))
    return paths or []


def _locator_paths(schema: str) -> list[str]:
    """Return the paths that the locator of a schema may have: with its topic encoded, or as it
    is."""
    topic = parse_topic_path(schema)
    schema_ids = {schema}
    if topic is not None:
        schema_ids.add(f"{topic.namespace}/{encode_element(topic.local_name)}")
    return sorted(f"{SCHEMAS}/{each}" for each in schema_ids if is_node_path(each))


def _read_topics(
    nodes: PulsarNodes, managed_ledgers: list[str], references: PulsarReferences
) -> None:
    """Read the lists and cursors of some topics."""
    # A topic's node lists its ledgers; its child nodes are its cursors.
    paths = [f"{MANAGED_LEDGERS}/{managed_ledger}" for managed_ledger in managed_ledgers]
    lists, children = nodes.read_many(paths), nodes.list_children(paths)
    cursor_paths: list[tuple[LedgerOwner, str]] = []
    for managed_ledger, path, value, cursors in zip(managed_ledgers, paths, list(lists), children):
        owner = _owner_of_managed_ledger(managed_ledger)
        topic = topic_key(owner)
        assert topic is not None
        if value is None and cursors is None:
            continue
        # A running broker may have created the topic after its value was requested.
        if value is None and not nodes.is_live:
            value = CorruptionError(None, None, "the topic has cursors, but no value")
        references.topics[topic] = managed_ledger
        key = (NodeKind.TOPIC, topic)
        listed = _decode(references, nodes, path, value, decode_managed_ledger, [key])
        _add_listed(references, owner, listed or [])
        cursor_paths += [(owner, f"{path}/{cursor}") for cursor in cursors or ()]
    # Read the cursors of all these topics together.
    values = nodes.read_many([path for _, path in cursor_paths])
    for (owner, path), value in zip(cursor_paths, values):
        _read_cursor(nodes, owner, path, value, references)


def _add_listed(
    references: PulsarReferences, owner: LedgerOwner, listed: list[ListedLedger]
) -> None:
    plain = LedgerReference(owner)  # one object for most ledgers of the topic
    for ledger_id, offloaded, bookkeeper_deleted in listed:
        is_plain = not offloaded and not bookkeeper_deleted
        reference = plain if is_plain else LedgerReference(owner, offloaded, bookkeeper_deleted)
        references.add(ledger_id, reference)


def _read_cursor(
    nodes: PulsarNodes,
    owner: LedgerOwner,
    path: str,
    value: NodeValue | CorruptionError | None,
    references: PulsarReferences,
) -> None:
    """Add the ledgers that a cursor's node refers to: the ledger with its positions, a compacted
    ledger, and those with delayed messages."""
    topic = topic_key(owner)
    assert topic is not None
    cursor_name = decode_element(path.rpartition("/")[2])
    is_compaction = cursor_name == COMPACTION_CURSOR
    keys = [(NodeKind.CURSORS, topic), cursor_key(topic, cursor_name)]
    if is_compaction:
        keys.append((NodeKind.COMPACTION, topic))
    cursor = _decode(references, nodes, path, value, decode_cursor, keys)
    if cursor is None:
        return
    if cursor.cursor_ledger is not None:
        references.add(cursor.cursor_ledger, LedgerReference(owner._replace(cursor=cursor_name)))
    if cursor.compacted_ledger is not None:
        compacted_owner = owner._replace(component=COMPACTED_LEDGER)
        # While the cursor has a ledger of its own, newer positions are there, not in its node.
        has_newer_positions = cursor.cursor_ledger is not None
        reference = LedgerReference(compacted_owner, may_be_replaced=has_newer_positions)
        references.add(cursor.compacted_ledger, reference)
    if is_compaction:
        references.compacted_ledgers[topic] = cursor
    for bucket in cursor.buckets:
        bucket_owner = owner._replace(component=DELAYED_INDEX_BUCKET, cursor=cursor_name)
        references.add(bucket, LedgerReference(bucket_owner))


def _read_schemas(nodes: PulsarNodes, paths: list[str], references: PulsarReferences) -> None:
    """Add the ledgers of the versions that each schema's locator lists."""
    for path, value in zip(paths, nodes.read_many(paths)):
        if value is None and not nodes.is_live and next(nodes.list_children([path])):
            value = CorruptionError(None, None, "there are nodes below it, but no value")
        schema = decode_schema_id(path.removeprefix(f"{SCHEMAS}/"))
        keys = [(NodeKind.SCHEMA, schema)]
        versions = _decode(references, nodes, path, value, decode_schema_locator, keys)
        if isinstance(versions, SchemaVersions):
            references.lowest_versions[schema] = versions.lowest_version
            owner = owner_of_schema(schema)
            for ledger_id in versions.ledgers:
                references.add(ledger_id, LedgerReference(owner))


def _decode(
    references: PulsarReferences,
    nodes: PulsarNodes,
    path: str,
    value: NodeValue | CorruptionError | None,
    decode: Callable[[bytes], _T],
    keys: list[NodeKey],
) -> _T | None:
    """Return a node's decoded value, None if it is absent. One that cannot be decoded is a finding,
    and a doubt about the `keys`; their last change is recorded."""
    if value is None:
        return None
    try:
        if isinstance(value, CorruptionError):
            raise value
        for key in keys:
            change = NodeChange(value.version, value.modified)
            known = references.changes.get(key, change)
            references.changes[key] = max(known, change, key=lambda each: each.modified)
        return decode(value.data)
    except CorruptionError as error:
        located = error if error.file is not None else error.relocate(nodes.location_of(path))
        references.findings.append(Finding.of(located))
        references.doubts |= dict.fromkeys(keys, f"{nodes.location_of(path)} cannot be read")
        return None


def _owner_of_managed_ledger(managed_ledger: str) -> LedgerOwner:
    topic = parse_managed_ledger(managed_ledger)
    if topic is None:
        return LedgerOwner("pulsar", MANAGED_LEDGER, managed_ledger=managed_ledger)
    return owner_of_topic(topic, MANAGED_LEDGER)._replace(managed_ledger=managed_ledger)
