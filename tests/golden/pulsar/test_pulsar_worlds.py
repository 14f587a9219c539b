"""Golden worlds of Pulsar over BookKeeper: the owner and the class of each ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bkstore.ledger_metadata import read_owner
from bkstore.pulsar import LeakSearch
from tests.golden.pulsar.worlds import (
    OWNER_FIELDS,
    load_worlds,
    read_ledgers,
    world_nodes,
    world_store,
)

pytestmark = pytest.mark.usefixtures("golden")


@pytest.fixture(scope="module")
def worlds(golden: Path) -> list[dict[str, Any]]:
    """Return the golden worlds."""
    return load_worlds()


def test_owners(worlds: list[dict[str, Any]]) -> None:
    """The custom metadata of each ledger state its owner, as the world has it."""
    assert len(worlds) >= 40
    for world in worlds:
        for metadata in read_ledgers(world):
            truth = world["ledgers"][str(metadata.ledger_id)]
            owner = read_owner(metadata.custom_metadata)
            if truth["class"] == "unknown-owner":
                assert owner.application != "pulsar", (world["seed"], metadata.ledger)
                assert owner.topic is None, (world["seed"], metadata.ledger)
            else:
                stated = {field: getattr(owner, field) for field in OWNER_FIELDS}
                expected = {field: truth.get(field) for field in OWNER_FIELDS}

                assert expected == stated, (world["seed"], metadata.ledger)


def test_classes(worlds: list[dict[str, Any]]) -> None:
    """Each ledger has the class and the owner of the world, and no other ledger is reported. Of a
    topic whose value is garbage nothing is a leak, and the garbage is a finding."""
    for world in worlds:
        search = LeakSearch(
            world_store(world), world_nodes(world), now=world["now_ms"], grace=world["grace_ms"]
        )
        report = search.run()
        reported = {str(each.ledger.ledger): each for each in report.ledgers}
        undecodable = (world["undecodable"] or "").removeprefix("/managed-ledgers/")
        for ledger_id, truth in world["ledgers"].items():
            context = (world["seed"], ledger_id, truth)
            in_doubt = bool(undecodable) and truth.get("managed_ledger") == undecodable
            each = reported.pop(ledger_id, None)
            if in_doubt and (each is None or each.ledger_class == "undetermined"):
                # A listed ledger that BookKeeper does not have is not known at all.
                assert each is not None or truth["class"] == "dangling", context
                continue
            assert each is not None, context
            assert truth["class"] == each.ledger_class, context
            if truth["class"] != "unknown-owner":
                stated = {field: getattr(each.owner, field) for field in OWNER_FIELDS}
                assert {field: truth.get(field) for field in OWNER_FIELDS} == stated, context

        assert {} == reported, world["seed"]
        assert [world["undecodable"]] * bool(undecodable) == [
            finding.file for finding in report.findings
        ]
