"""Golden trees, rewritten: a real bookie starts on them, says the same, and goes on writing."""

from __future__ import annotations

from typing import Any

import pytest

from bkstore.offline.rewrite import convert, rebuild_index, salvage
from tests.golden.data import GoldenTree
from tests.interop.bookies import Cluster
from tests.interop.worlds import (
    Addition,
    World,
    alike,
    entries_asked,
    read_digests,
    stamped,
)

OTHER: dict[str, Any] = {"rocksdb": "idx", "idx": "rocksdb"}


@pytest.fixture(scope="module")
def world(
    tree: GoldenTree, real_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> World:
    """Return a copy of the tree with cookies."""
    top = tmp_path_factory.mktemp("golden")
    return stamped(real_cluster, tree.root, top / "b", tree.storage)


@pytest.fixture(scope="module")
def before(world: World) -> dict[int, dict[str, Any]]:
    """Return what a real bookie says that starts on the tree as it is."""
    return world.copy_answers()


@pytest.mark.parametrize("way", [convert, rebuild_index, salvage], ids=lambda way: way.__name__)
def test_real_bookie(
    tree: GoldenTree, world: World, before: dict[int, dict[str, Any]], way: Any
) -> None:
    """With its cookies checked, a real bookie has the same ledgers, records, LACs and states.

    Both layouts are made: by `convert` and `salvage` the other one, by `rebuild_index` its own.
    Its own check of index and logs finds nothing. It goes on writing, and bkstore reads what it
    wrote. Salvage of known ledgers only.
    """
    to = tree.layout if way is rebuild_index or not tree.fits_idx else OTHER[tree.layout]
    world.rewrite(way, to, **({"known_only": True} if way is salvage else {}))
    digests = read_digests(world.root)
    idx = "interleaved" if way is convert else "sorted"
    world.storage = tree.storage if to == tree.layout else "db" if to == "rocksdb" else idx
    more = tree.unindexed if way is not convert else set()  # only the logs know of these entries
    addition = Addition.to(world.root)
    with world.cluster.bookie(world.place, world.storage) as bookie:
        after = bookie.answers(entries_asked(world.root, bookie.ledgers()))
        wrong = bookie.inconsistencies()
        addition.give(bookie)
    addition.check(world.root)
    world.back()
    expected, found = alike(before, after, to == tree.layout)

    assert expected.keys() == found.keys()
    assert {k: v for k, v in expected.items() if k not in more} == {
        k: v for k, v in found.items() if k not in more
    }
    assert [] == wrong
    assert digests == {ledger: answer["records"] for ledger, answer in after.items()}
