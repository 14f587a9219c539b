"""Golden worlds of Pulsar over BookKeeper: the owner of each ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bkstore.formats.metadata import serialized
from bkstore.formats.metadata.store_paths import parse_path
from bkstore.ledger_metadata import LedgerMetadata, read_owner
from tests.golden.data import load_json

_OWNER_FIELDS = ("tenant", "namespace", "topic", "managed_ledger", "component", "cursor", "schema")
_LEDGERS = "/ledgers"


@pytest.fixture(scope="module")
def worlds(golden: Path) -> list[dict[str, Any]]:
    """Return the golden worlds."""
    worlds: list[dict[str, Any]] = load_json(golden / "pulsar" / "worlds.json.gz")["worlds"]
    return worlds


def _read_ledgers(world: dict[str, Any]) -> list[LedgerMetadata]:
    """Return the metadata of the ledgers of a world's tree."""
    ledgers = []
    for path, value in world["tree"].items():
        if path.startswith(f"{_LEDGERS}/"):
            ledger_id = parse_path(path.removeprefix(_LEDGERS))
            assert ledger_id is not None, path
            ledgers.append(serialized.decode(bytes.fromhex(value), ledger_id))
    return ledgers


def test_owners(worlds: list[dict[str, Any]]) -> None:
    """The custom metadata of each ledger state its owner, as the world has it."""
    assert len(worlds) >= 40
    for world in worlds:
        for metadata in _read_ledgers(world):
            truth = world["ledgers"][str(metadata.ledger_id)]
            owner = read_owner(metadata.custom_metadata)
            if truth["class"] == "unknown-owner":
                assert owner.application != "pulsar", (world["seed"], metadata.ledger)
                assert owner.topic is None, (world["seed"], metadata.ledger)
            else:
                stated = {field: getattr(owner, field) for field in _OWNER_FIELDS}
                expected = {field: truth.get(field) for field in _OWNER_FIELDS}

                assert expected == stated, (world["seed"], metadata.ledger)
