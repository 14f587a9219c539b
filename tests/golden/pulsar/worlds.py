"""The golden worlds, as stores and nodes."""

from __future__ import annotations

from typing import Any

from bkstore.cluster.store.key_value_store import MemoryStore
from bkstore.formats.metadata import serialized
from bkstore.formats.metadata.store_paths import parse_path
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.pulsar import MemoryNodes, NodeValue
from tests.golden.data import GOLDEN, load_json

OWNER_FIELDS = ("tenant", "namespace", "topic", "managed_ledger", "component", "cursor", "schema")
"""What a world states of an owner, as `LedgerOwner` names it."""

_LEDGERS = "/ledgers"


def load_worlds() -> list[dict[str, Any]]:
    """Return the golden worlds."""
    worlds: list[dict[str, Any]] = load_json(GOLDEN / "pulsar" / "worlds.json.gz")["worlds"]
    return worlds


def read_ledgers(world: dict[str, Any]) -> list[LedgerMetadata]:
    """Return the metadata of the ledgers of a world's tree."""
    ledgers = []
    for path, value in world["tree"].items():
        if path.startswith(f"{_LEDGERS}/"):
            ledger_id = parse_path(path.removeprefix(_LEDGERS))
            assert ledger_id is not None, path
            ledgers.append(serialized.decode(bytes.fromhex(value), ledger_id))
    return ledgers


def world_store(world: dict[str, Any]) -> MemoryStore:
    """Return a store that has the ledgers of a world."""
    store = MemoryStore()
    for metadata in read_ledgers(world):
        store.create(metadata)
    return store


def world_nodes(world: dict[str, Any]) -> MemoryNodes:
    """Return Pulsar's nodes of a world."""
    values = {
        path: NodeValue(bytes.fromhex(value))
        for path, value in world["tree"].items()
        if not path.startswith(f"{_LEDGERS}/")
    }
    return MemoryNodes(values)
