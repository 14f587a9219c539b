"""Owners of ledgers: which application, topic, cursor or schema a ledger belongs to, as its creator
wrote into the custom metadata.

Source: BookKeeper's clients (keys ``application`` and ``component``), Pulsar's
`LedgerMetadataUtils`; since Pulsar 2.6. Table in `docs/pulsar.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from bkstore.ledger_metadata.topic_names import (
    TopicName,
    decode_if_encoded,
    parse_managed_ledger,
    parse_topic_path,
    parse_topic_url,
)

PULSAR = "pulsar"
"""The `application` of Pulsar's ledgers."""

MANAGED_LEDGER, COMPACTED_LEDGER, SCHEMA = "managed-ledger", "compacted-ledger", "schema"


OwnerKind = Literal["topic", "namespace", "tenant", "component"]
"""By what ledgers are summed up."""


class LedgerOwner(NamedTuple):
    """The owner of a ledger; what the metadata do not state is None.

    `namespace` includes the tenant; `topic` is a URL, decoded, with the suffix of its partition.
    `cursor` is the subscription whose positions the ledger has. `schema` is the id of a schema,
    ``TENANT/NAMESPACE/TOPIC``, whose ledgers have no `topic`. `managed_ledger` is a path below
    ``/managed-ledgers``.
    """

    application: str | None = None
    component: str | None = None
    tenant: str | None = None
    namespace: str | None = None
    topic: str | None = None
    partition: int | None = None
    cursor: str | None = None
    schema: str | None = None
    managed_ledger: str | None = None

    @property
    def columns(self) -> tuple[str | int | None, ...]:
        """The values that tables have: all but `managed_ledger`."""
        return self[:-1]

    @property
    def subject(self) -> str | None:
        """The topic with its cursor, or the schema; None if neither is known.

        >>> LedgerOwner("pulsar", "schema", schema="shop/orders/paid").subject
        'schema shop/orders/paid'
        """
        if self.schema is not None:
            return f"schema {self.schema}"
        topic = self.topic or self.managed_ledger
        return topic if self.cursor is None else f"{topic or 'unknown'}, cursor {self.cursor}"

    def name_by(self, kind: OwnerKind) -> str | None:
        """Return the topic, namespace, tenant or component; the application where the metadata do
        not state it, None if they state nothing. A schema belongs to its topic.

        >>> owner_of_schema("shop/orders/paid").name_by("topic")
        'persistent://shop/orders/paid'
        """
        names = {
            "topic": self.topic or _topic_of_schema(self) or self.subject,
            "namespace": self.namespace,
            "tenant": self.tenant,
            "component": self.component,
        }
        return names[kind] or self.application

    def __str__(self) -> str:
        words = " ".join(filter(None, (self.application, self.component)))
        return ", ".join(filter(None, (words or "unknown", self.subject)))


UNKNOWN_OWNER = LedgerOwner()


def read_owner(custom_metadata: Mapping[str, bytes]) -> LedgerOwner:
    """Return the owner that a ledger's custom metadata state, `UNKNOWN_OWNER` without any.

    Ledgers of other applications have at most `application` and `component`. A value that is not
    UTF-8, or not a name of the expected form, counts as absent. O(bytes).

    >>> owner = read_owner({"application": b"pulsar", "component": b"managed-ledger",
    ...                     "pulsar/managed-ledger": b"shop/orders/persistent/paid-partition-0"})
    >>> owner.topic, owner.namespace, owner.partition
    ('persistent://shop/orders/paid-partition-0', 'shop/orders', 0)
    >>> str(read_owner({"application": b"distributedlog"})), str(read_owner({}))
    ('distributedlog', 'unknown')
    """
    texts = {key: _as_text(value) for key, value in custom_metadata.items()}
    application, component = texts.get("application"), texts.get("component")
    owner = LedgerOwner(application, component)
    if application != PULSAR:
        return owner
    if component == COMPACTED_LEDGER:
        topic = parse_topic_url(texts.get("pulsar/compactedTopic") or "")
        return owner if topic is None else owner_of_topic(topic, component)
    if component == SCHEMA:
        schema_id = texts.get("pulsar/schemaId")
        return owner_of_schema(None if schema_id is None else decode_schema_id(schema_id))
    return _owner_of_managed_ledger(owner, texts)


def _owner_of_managed_ledger(owner: LedgerOwner, texts: Mapping[str, str | None]) -> LedgerOwner:
    """Return the owner that the keys of a managed ledger, or of a cursor, state: its topic."""
    managed_ledger = texts.get("pulsar/managed-ledger")
    cursor = texts.get("pulsar/cursor")
    if cursor is not None:
        owner = owner._replace(cursor=decode_if_encoded(cursor))
    if managed_ledger is None:
        return owner
    topic = parse_managed_ledger(managed_ledger)
    if topic is None:  # such as a managed ledger of an extension
        return owner._replace(managed_ledger=managed_ledger)
    stated = owner_of_topic(topic, owner.component, owner.cursor)
    return stated._replace(managed_ledger=managed_ledger)


def owner_of_topic(
    topic: TopicName, component: str | None, cursor: str | None = None
) -> LedgerOwner:
    """Return the owner of a ledger of Pulsar that belongs to a topic."""
    return LedgerOwner(
        PULSAR,
        component,
        topic.tenant,
        topic.namespace,
        topic.url,
        topic.partition,
        cursor,
        managed_ledger=topic.managed_ledger,
    )


def owner_of_schema(schema: str | None) -> LedgerOwner:
    """Return the owner of a ledger with a schema, by its id, ``TENANT/NAMESPACE/TOPIC``."""
    owner = LedgerOwner(PULSAR, SCHEMA, schema=schema)
    topic = parse_topic_path(schema or "")
    if topic is None:
        return owner
    return owner._replace(tenant=topic.tenant, namespace=topic.namespace)


def _topic_of_schema(owner: LedgerOwner) -> str | None:
    topic = parse_topic_path(owner.schema or "")
    return None if topic is None else topic.url


def decode_schema_id(schema_id: str) -> str:
    """Return a schema's id with its topic decoded, which brokers encode. The path of its locator
    below ``/schemas`` is such an id."""
    topic = parse_topic_path(schema_id)
    if topic is None:
        return schema_id
    return f"{topic.namespace}/{decode_if_encoded(topic.local_name)}"


def _as_text(value: bytes) -> str | None:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return None
