"""Ledger metadata as a table: the owners of ledgers, unreadable metadata, tables without owners."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bkstore.cluster import DirectoryStore, MemoryStore
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.offline.analyses import Metadata, open_inputs, read_metadata
from tests.worlds.random_dumps import random_dump, write_dump

pytest.importorskip("pyarrow")

OWNERS = ["application", "component", "tenant", "namespace", "topic", "partition", "cursor"]
TOPIC = "persistent://shop/orders/paid today-partition-3"


def _create(store: Any, ledger: int, closed: bool = False, **custom: str) -> None:
    end: dict[str, Any] = {"state": "CLOSED", "last_entry_id": 9, "length": 70} if closed else {}
    texts = {key.replace("__", "/").replace("_", "-"): text for key, text in custom.items()}
    owner = {key: text.encode() for key, text in texts.items()}
    ledger_id = LedgerId(0, ledger)
    store.create(LedgerMetadata(ledger_id, 1, 1, 1, [(0, ["b1"])], custom_metadata=owner, **end))


def test_owners_and_ends() -> None:
    """A row has the owner that the custom metadata state, and the end of a closed ledger."""
    store = MemoryStore()
    pulsar = {"application": "pulsar", "component": "managed-ledger"}
    name = "shop/orders/persistent/paid+today-partition-3"
    _create(store, 1, closed=True, **pulsar, pulsar__managed_ledger=name, pulsar__cursor="billing")
    _create(store, 2, application="distributedlog")
    _create(store, 3)
    _create(store, 4, application="pulsar", component="schema", pulsar__schemaId="shop/orders/paid")
    table = read_metadata(store).table

    assert [
        ("pulsar", "managed-ledger", "shop", "shop/orders", TOPIC, 3, "billing"),
        ("distributedlog", *[None] * 6),
        (None,) * 7,
        ("pulsar", "schema", "shop", "shop/orders", None, None, None),
    ] == [tuple(row.values()) for row in table.select(OWNERS).to_pylist()]
    assert [None, None, None, "shop/orders/paid"] == table.column("schema").to_pylist()
    assert ["CLOSED", "OPEN", "OPEN", "OPEN"] == table.column("state").to_pylist()
    assert [9, None, None, None] == table.column("last_entry_id").to_pylist()
    assert [70, None, None, None] == table.column("length").to_pylist()


def test_metadata_that_cannot_be_read(tmp_path: Path) -> None:
    """Its row has the reason, and nothing that the metadata might have stated."""
    store = DirectoryStore(tmp_path / "store")
    for ledger in (1, 2):
        _create(store, ledger, application="distributedlog")
    (value,) = (path for path in tmp_path.rglob("*") if path.name.endswith("0002"))
    value.write_bytes(b"no metadata")
    with pytest.raises(CorruptionError):
        store.read(2)
    rows = read_metadata(store).table.to_pylist()

    assert ["distributedlog", None] == [row["application"] for row in rows]
    assert ["OPEN", None] == [row["state"] for row in rows]
    assert "cannot be read" in rows[1]["facts_json"]


def test_tables_of_earlier_versions(tmp_path: Path) -> None:
    """A table without the columns of owners is read, with nulls; one without ledger ids is not."""
    world = random_dump(2)
    whole = read_metadata(world.store())
    earlier = whole.table.select(["scope_id", "ledger_id", "facts_json"])
    inputs = open_inputs(write_dump(world, tmp_path / "dump"), Metadata(earlier, "kept"))
    assert inputs.metadata is not None
    table = inputs.metadata.table

    assert whole.table.schema == table.schema
    assert whole.table.column("facts_json") == table.column("facts_json")
    assert {None} == set(table.column("topic").to_pylist() + table.column("state").to_pylist())
    assert "kept" == inputs.metadata.path
    with pytest.raises(InvalidArgument, match="no column 'ledger_id'"):
        Metadata(earlier.drop_columns("ledger_id"))
