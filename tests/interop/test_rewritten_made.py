"""Directories of bkstore and of the real one: rewritten, started on, written by both in turn."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from bkstore import Bookie, LedgerId
from bkstore.cluster.store.zookeeper.store import ZooKeeperStore
from bkstore.formats.entry import Entry, encode_explicit_lac
from bkstore.ledger_metadata import LedgerMetadata, Segment
from bkstore.offline.rewrite import convert, rebuild_index, salvage
from tests.interop.bookies import Cluster, Place, RealBookie
from tests.interop.driver import RealError
from tests.interop.worlds import (
    CODER,
    Addition,
    World,
    alike,
    entries_asked,
    read_digests,
    stamped_in_place,
)
from tests.worlds.bookies import JOURNAL, make_bookie
from tests.worlds.damages import damage
from tests.worlds.salvages import entries_of, logs_of, undamaged

WAYS = [convert, rebuild_index, salvage]
LAYOUTS = {"sorted": "idx", "interleaved": "idx", "db": "rocksdb"}
OTHER = {"sorted": "db", "interleaved": "db", "db": "sorted"}


def _name(way: Any) -> str:
    return str(way.__name__)


def _started(world: World) -> dict[int, dict[str, Any]]:
    with world.cluster.bookie(world.place, world.storage) as bookie:
        return bookie.answers(entries_asked(world.root, bookie.ledgers()))


@pytest.mark.parametrize("way", WAYS, ids=_name)
@pytest.mark.parametrize("storage", ["sorted", "interleaved", "db"])
def test_written_by_bkstore(storage: Any, way: Any, real_cluster: Cluster, tmp_path: Path) -> None:
    """A real bookie starts on what bkstore wrote and then rewrote, and replays its journals.

    Two ledger directories, two journals. It says what it says of the source. Then each of both
    goes on where the other stopped.
    """
    made = make_bookie(
        tmp_path / "b", storage, directories=2, journals=2, scopes=False, checkpoint=False
    )
    world = stamped_in_place(real_cluster, made.root, storage)
    before = world.copy_answers()
    world.storage = OTHER[storage] if way is not rebuild_index else storage
    to = LAYOUTS[world.storage]
    world.rewrite(way, to, **({"known_only": True} if way is salvage else {}))
    after = _started(world)
    expected, found = alike(before, after, to == LAYOUTS[storage])

    assert expected == found
    assert {name.ledger for name in made.ledgers} <= after.keys()
    addition = Addition.to(world.root)
    mine, others = addition.halves()
    with Bookie.open(world.root, world.storage, journal=JOURNAL) as bookie:
        for (ledger, entry), record in mine.records.items():
            assert entry == bookie.add_entry(record, mine.keys[ledger])
    digests = read_digests(world.root)
    with real_cluster.bookie(world.place, world.storage) as real:
        said = real.answers(entries_asked(world.root, []))
        others.give(real)
    addition.check(world.root)

    assert digests == {ledger: answer["records"] for ledger, answer in said.items()}


def _filled(cluster: Cluster, place: Place, storage: str) -> None:
    """Have a real bookie write ledgers of all kinds: flushed, fenced, with gaps, journaled only."""
    with cluster.bookie(place, storage) as bookie:
        for ledger in range(6):
            for begin in (0, 40, 41):
                _add(bookie, ledger, range(begin, begin + 30 + ledger))
                if begin < 41:
                    bookie.flush()
        lac = encode_explicit_lac(2, 7, "CRC32C", "pw")

        assert bookie.fence(1, bytes([1]) * 20)
        assert 0 == bookie.explicit_lac(lac, bytes([2]) * 20)


def _add(bookie: RealBookie, ledger: int, entries: Iterable[int]) -> None:
    records = [
        CODER.encode(Entry(ledger, entry, entry - 1, 9, b"%d" % entry * 40)) for entry in entries
    ]
    bookie.add(records, bytes([ledger]) * 20)


@pytest.mark.parametrize("way", WAYS, ids=_name)
@pytest.mark.parametrize("storage", ["sorted", "interleaved", "db"])
def test_written_by_the_real_one(
    storage: Any, way: Any, real_cluster: Cluster, tmp_path: Path
) -> None:
    """A real bookie's own directories, with separate index directories: it takes them rewritten.

    The cookie is the one that it made. Every entry, LAC and state is the same in the other layout.
    """
    root = tmp_path / "b"
    folders = {
        kind: [root / f"{kind}{number}" for number in range(2)]
        for kind in ("ledgers", "journal", "index")
    }
    place = Place(real_cluster.new_id(), *folders.values())
    _filled(real_cluster, place, storage)
    world = World(real_cluster, root, place, storage)
    before = world.copy_answers()
    world.storage = OTHER[storage]
    world.rewrite(way, LAYOUTS[world.storage])
    after = _started(world)
    expected, found = alike(before, after, same_layout=False)

    assert expected == found
    assert list(range(6)) == sorted(after)
    assert [True, False] == [after[1]["fenced"], after[0]["fenced"]]
    assert {71 + ledger + 30 for ledger in range(6)} == {
        answer["last_entry"] + 31 for answer in after.values()
    }


@pytest.mark.parametrize("storage", ["sorted", "db"])
def test_salvaged(storage: Any, real_cluster: Cluster, tmp_path: Path) -> None:
    """After damage to its logs, a real bookie starts on what was salvaged and serves all of it.

    Each entry whose frame is whole is there; its own check of index and logs finds nothing wrong.
    """
    for seed in range(4):
        root = tmp_path / str(seed) / "b"
        make_bookie(root, storage, seed, scopes=False)
        world = stamped_in_place(real_cluster, root, storage)
        kept = entries_of(root)
        shown = damage(logs_of(root), seed)
        sound = undamaged(kept, root)
        world.rewrite(salvage, LAYOUTS[storage])
        digests = read_digests(root)
        with real_cluster.bookie(world.place, storage) as bookie:
            asked = entries_asked(root, bookie.ledgers())
            said = bookie.answers(asked)
            wrong = bookie.inconsistencies()

        assert digests == {ledger: answer["records"] for ledger, answer in said.items()}, shown
        assert [] == wrong, shown
        for one in sound:
            runs = asked[one.ledger.ledger][:-1]
            assert any(first <= one.entry <= last for first, last in runs), (shown, one)


COMPACTION = {
    "majorCompactionThreshold": "0.99",
    "majorCompactionInterval": "180000",
    "minorCompactionInterval": "90000",
}


@pytest.mark.parametrize("storage", ["sorted", "db"])
def test_garbage_is_collected(storage: Any, real_cluster: Cluster, tmp_path: Path) -> None:
    """A real bookie collects garbage and compacts in rewritten directories, and loses no entry.

    Two ledger directories: what has second names in one way, and new ids in the other.
    """
    cluster = Cluster.made(real_cluster.real, real_cluster.port, f"/garbage-{storage}")
    made = make_bookie(  # copies of an entry are alike: a real compaction may bring back old ones
        tmp_path / "b", storage, directories=2, scopes=False, checkpoint=False
    )
    Bookie.open(made.root, storage, journal=JOURNAL).close()
    world = stamped_in_place(cluster, made.root, storage)
    _, *kept = (name.ledger for name in made.ledgers)
    with ZooKeeperStore(cluster.uri) as store:
        for ledger in kept:
            segment = Segment(0, (world.place.bookie_id,))
            store.create(LedgerMetadata(LedgerId(0, ledger), 1, 1, 1, (segment,)))
    world.storage = OTHER[storage]
    world.rewrite(convert, LAYOUTS[world.storage])
    expected = read_digests(made.root)
    before = sum(path.stat().st_size for path in logs_of(made.root))
    with cluster.bookie(world.place, world.storage, COMPACTION) as bookie:
        bookie.collect_garbage()
        active = bookie.ledgers()
        asked = entries_asked(made.root, active)
        said = bookie.answers({ledger: asked[ledger] for ledger in kept})
        wrong = bookie.inconsistencies()
    found = read_digests(made.root)  # db storage may drop a deleted ledger's rows later

    assert ([], kept) == (wrong, active)
    assert {ledger: expected[ledger] for ledger in kept} == {
        ledger: answer["records"] for ledger, answer in said.items()
    }
    assert {ledger: expected[ledger] for ledger in kept} == {
        ledger: digest for ledger, digest in found.items() if ledger in kept
    }
    assert sum(path.stat().st_size for path in logs_of(made.root)) < before


def test_moved_index(real_cluster: Cluster, tmp_path: Path) -> None:
    """Where db storage cannot have the index directories, cookie and settings change, as is told.

    A real bookie refuses the new directories with the old settings, and with the new ones too
    until its metadata store has the new cookie.
    """
    root = tmp_path / "b"
    make_bookie(root, "sorted", directories=2, indexes=1, scopes=False)
    world = stamped_in_place(real_cluster, root, "sorted")
    before = world.copy_answers()
    result = world.rewrite(convert, "rocksdb")
    world.storage = "db"

    assert any(
        "the cookie and the conf name no index directories" in f.detail for f in result.findings
    )
    with pytest.raises(RealError, match="InvalidCookie"):
        _started(world)
    place = world.place
    world.place = Place(place.bookie_id, place.ledger, place.journal)
    with pytest.raises(RealError, match="InvalidCookie"):
        _started(world)
    shutil.rmtree(root / "index")  # made empty by the first of them
    text = (root / "ledgers0" / "current" / "VERSION").read_text()
    real_cluster.register_cookie(place.bookie_id, text)
    expected, found = alike(before, _started(world), same_layout=False)

    assert expected == found
