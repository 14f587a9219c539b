"""The metadata store: one contract for both layouts, in memory and in a directory."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bkstore.cluster import (
    DirectoryStore,
    KeyValues,
    KeyValueStore,
    MemoryStore,
    MetadataStore,
    Value,
    Versioned,
    ZooKeeperStore,
    uuid_ledger_id,
)
from bkstore.cluster.store.directory_values import DirectoryValues
from bkstore.cluster.store.dump_store import DumpValues
from bkstore.cluster.store.memory_values import MemoryValues
from bkstore.errors import (
    BadVersion,
    CorruptionError,
    InvalidArgument,
    LedgerExists,
    NoSuchLedger,
)
from bkstore.formats.metadata.serialized import encode
from bkstore.formats.metadata.store_paths import tree_path, uuid_path
from bkstore.formats.metadata.underreplication import UnderreplicatedMark, mark_path
from bkstore.ids import LedgerId
from tests.cluster.store.samples import IDS, fitting, metadata_of, new_uri, said

MakeStore = Callable[[], KeyValueStore]


KEYED = ["memory-tree", "memory-keys", "directory-tree", "directory-keys"]
ZOOKEEPER = ["zookeeper-hierarchical", "zookeeper-longhierarchical", "zookeeper-flat"]
KINDS = [*KEYED, *ZOOKEEPER]


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeStore]:
    """Yield what makes the store of one kind and layout; in a directory, opens it again."""
    kind, _, layout = request.param.partition("-")
    if kind == "memory":
        store = MemoryStore(layout)
        yield lambda: store
    elif kind == "directory":
        yield lambda: DirectoryStore(tmp_path / "store", layout, sync=False)
    else:
        server = request.getfixturevalue("zookeeper")
        with ZooKeeperStore.format(new_uri(server, layout)) as opened:
            yield lambda: opened


@pytest.fixture
def names(request: pytest.FixtureRequest) -> list[LedgerId]:
    """Return the ids that the store has a place for."""
    return fitting(request.node.callspec.params["make"].partition("-")[2])


@pytest.fixture
def store(make: MakeStore) -> KeyValueStore:
    """Return an empty store."""
    return make()


# -- the contract


def test_protocols(store: KeyValueStore, tmp_path: Path) -> None:
    """Stores and values have the shape that others are to have."""
    assert isinstance(store, MetadataStore)
    for values in (MemoryValues(), DirectoryValues(tmp_path / "v"), DumpValues(tmp_path)):
        assert isinstance(values, KeyValues)


@pytest.mark.parametrize("name", IDS, ids=str)
def test_create_read_write_delete(make: MakeStore, names: list[LedgerId], name: LedgerId) -> None:
    """A ledger has version 0 when it is made, one more with each change, and goes."""
    if name not in names:
        with pytest.raises(InvalidArgument, match="more digits than a flat path"):
            make().create(metadata_of(name))
        return
    first, second = metadata_of(name), metadata_of(name, state="IN_RECOVERY")

    assert 0 == make().create(first)
    assert (first, 0) == said(make().read(name))
    assert 1 == make().write(second, 0)
    assert (second, 1) == said(make().read(name))
    make().delete(name, 1)
    with pytest.raises(NoSuchLedger):
        make().read(name)
    assert [] == make().ledgers()


def test_compare_and_set(store: KeyValueStore) -> None:
    """Who has read an older version changes nothing."""
    store.create(metadata_of(7))
    store.write(metadata_of(7, ack_quorum_size=2), 0)
    with pytest.raises(LedgerExists):
        store.create(metadata_of(7))
    for version in (0, 2):
        with pytest.raises(BadVersion):
            store.write(metadata_of(7), version)
        with pytest.raises(BadVersion):
            store.delete(7, version)

    assert (metadata_of(7, ack_quorum_size=2), 1) == said(store.read(7))


def test_ledger_that_is_not_there(store: KeyValueStore) -> None:
    """A change of a ledger that is not there says so, whatever the version."""
    for call in (
        lambda: store.read(7),
        lambda: store.write(metadata_of(7), 0),
        lambda: store.delete(7),
        lambda: store.delete(7, 3),
    ):
        with pytest.raises(NoSuchLedger, match="7"):
            call()


def test_delete_of_any_version(store: KeyValueStore) -> None:
    """Without a version the ledger goes; made again, it starts from version 0."""
    store.create(metadata_of(7))
    store.write(metadata_of(7), 0)
    store.delete(7)

    assert 0 == store.create(metadata_of(7))


def test_listing(make: MakeStore, names: list[LedgerId]) -> None:
    """Ledgers are listed by scope, in unsigned order; marks and bookies are none."""
    store = make()
    for name in random.Random(7).sample(names, len(names)):
        store.create(metadata_of(name))
        store.mark_underreplicated(name, UnderreplicatedMark(1.5))
    store.register_bookie("b1")
    store.next_id(3)
    store = make()

    assert names == store.ledgers()
    for scope in {name.scope for name in names} | {99}:
        assert [name for name in names if name.scope == scope] == store.ledgers(scope)


def test_layouts_on_disk(tmp_path: Path) -> None:
    """The file of a ledger lies where its layout says, and ends in what BookKeeper keeps."""
    for layout, path_of in (("tree", tree_path), ("keys", lambda n: f"/ledgers{uuid_path(n)}")):
        store = DirectoryStore(tmp_path / layout, layout)  # type: ignore[arg-type]
        for name in IDS:
            store.create(metadata_of(name))
            content = Path(f"{tmp_path}/{layout}{path_of(name)}").read_bytes()

            assert encode(metadata_of(name)) == content.partition(b"\n")[2]


def test_metadata_that_upstream_would_not_write(store: KeyValueStore) -> None:
    """A store keeps metadata without a password, and metadata that contradicts itself."""
    bare = metadata_of(7, password=None)
    wrong = metadata_of(8, digest_type=None, password=None, write_quorum_size=9)
    store.create(bare)
    store.create(wrong)

    assert (bare, 0) == said(store.read(7))
    assert (wrong, 0) == said(store.read(8))
    with pytest.raises(InvalidArgument):
        store.create(metadata_of(9, ensemble_size=2**40))
    assert [7, 8] == [name.ledger for name in store.ledgers()]


def test_ids_by_counter(make: MakeStore) -> None:
    """Each scope counts from 0, leaves out ids that are taken, and gives none twice.

    Flat ones are numbers of all nodes beside the ledgers: they only grow.
    """
    store = make()
    flat = isinstance(store, ZooKeeperStore) and store.manager == "flat"
    taken = store.next_id().ledger + 2 if flat else 1
    store.create(metadata_of(taken))
    make().create(metadata_of(LedgerId(2**63, 0)))
    given = [make().next_id().ledger for _ in range(3)]

    assert taken not in given
    assert given == sorted(set(given)) if flat else given == [0, 2, 3]
    assert LedgerId(2**63, 1) == make().next_id(2**63)
    assert LedgerId(5, 0) == make().next_id(5)


@pytest.mark.parametrize("make", KEYED, indirect=True)
def test_scope_that_is_used_up(store: KeyValueStore) -> None:
    """Scope 0 ends at 2^63-1: there is no next id, rather than one that no bookie takes."""
    store._values.put(f"/idgen/{0:016x}", b"%d\n" % (2**63 - 1), None)

    assert LedgerId.of(2**63 - 1) == store.next_id()
    with pytest.raises(InvalidArgument, match=str(2**63 - 1)):
        store.next_id()


def test_ids_by_uuid(store: KeyValueStore) -> None:
    """UUIDs give ids whose scope is never 0, with ledgers whose top bit is set (RFC 9562)."""
    names = [uuid_ledger_id() for _ in range(64)]
    for name in names:
        store.create(metadata_of(name))

    assert 64 == len(set(names))
    assert all(name.scope > 0 for name in names)
    assert all(name.ledger >= 2**63 for name in names)
    assert sorted(names) == store.ledgers()


def test_watch(store: KeyValueStore) -> None:
    """A watcher hears of each change that was made, of none that was refused, until it ends."""
    seen: list[int] = []
    end = store.watch(lambda name: seen.append(name.ledger))
    store.create(metadata_of(1))
    store.write(metadata_of(1), 0)
    with pytest.raises(BadVersion):
        store.write(metadata_of(1), 0)
    store.mark_underreplicated(2, UnderreplicatedMark())
    store.clear_mark(2)
    store.clear_mark(2)
    store.delete(1)
    end()
    end()
    store.create(metadata_of(3))

    assert [1, 1, 2, 2, 1] == seen


def test_bookies(make: MakeStore) -> None:
    """Registered bookies and unavailable ones are two lists; ids are kept as they are."""
    names = {"b1", "10.0.0.1:3181", "a@b", "...", "x.tmp", "=41", "a_b", "end."}
    for name in names:
        make().register_bookie(name)
        make().set_unavailable(name)
    make().register_bookie("b1")
    make().unregister_bookie("b1")
    make().unregister_bookie("b1")
    make().set_unavailable("a@b", False)

    assert names - {"b1"} == make().registered_bookies() == make().writable_bookies()
    assert names - {"a@b"} == make().unavailable_bookies()
    for name in ("", "readonly", "\udc80"):
        with pytest.raises(InvalidArgument, match="not a bookie id"):
            make().register_bookie(name)


@pytest.mark.parametrize("make", KEYED, indirect=True)
def test_bookies_of_any_name(make: MakeStore) -> None:
    """Where no real client looks any id is kept as it is."""
    names = {"a/b", "..", "%41", "\u00e4"}
    for name in names:
        make().register_bookie(name)
        make().set_unavailable(name)

    assert names == make().registered_bookies()
    assert names == make().unavailable_bookies()


def test_many_at_once(make: MakeStore, names: list[LedgerId]) -> None:
    """Many ledgers are read in the order asked for, and those that are not there left out."""
    for name in names:
        make().create(metadata_of(name))
    asked = [names[3], LedgerId.of(99), *names]
    found = list(make().read_many(asked))

    assert [names[3], *names] == [name for name, _ in found]
    assert [metadata_of(name) for name in [names[3], *names]] == [
        said(each).metadata for _, each in found if isinstance(each, Versioned)
    ]


def test_marks(make: MakeStore) -> None:
    """A mark has its time to the millisecond and its bookies; the last one counts."""
    for name in IDS:
        make().mark_underreplicated(name, UnderreplicatedMark(5.0))
        make().mark_underreplicated(name, UnderreplicatedMark(1_700_000_000.123, ("b1", "b2")))
    make().mark_underreplicated(IDS[0], UnderreplicatedMark())
    make().clear_mark(IDS[1])
    expected = dict.fromkeys(IDS, UnderreplicatedMark(1_700_000_000.123, ("b1", "b2"))) | {
        IDS[0]: UnderreplicatedMark()
    }
    del expected[IDS[1]]

    assert expected == make().underreplicated()
    assert make().mark_of(IDS[1]) is None
    assert UnderreplicatedMark() == make().mark_of(IDS[0])
    assert expected.keys() == make().marked()
    asked = [IDS[3], LedgerId.of(99), *IDS]
    assert [(name, expected[name]) for name in asked if name in expected] == list(
        make().marks_of(asked)
    )


def test_a_damaged_mark_among_many(make: MakeStore) -> None:
    """A mark that cannot be read is its error, with its place; the others are read."""
    for name in IDS[:3]:
        make().mark_underreplicated(name, UnderreplicatedMark(5.0))
    key = mark_path(IDS[1])
    make()._values.put(key, b"replica: x", 0)
    (first, _), (name, damage), (last, mark) = make().marks_of(IDS[:3])

    assert (IDS[0], IDS[1], IDS[2], UnderreplicatedMark(5.0)) == (first, name, last, mark)
    assert isinstance(damage, CorruptionError)
    assert make()._values.location_of(key) == damage.file
    assert set(IDS[:3]) == make().marked()


def test_time_of_the_last_check(make: MakeStore) -> None:
    """The time is kept in milliseconds; before the first check there is none."""
    assert make().checked_at() is None
    make().set_checked_at(1_700_000_000.5)
    make().set_checked_at(1_700_000_001.25)

    assert 1_700_000_001.25 == make().checked_at()


def test_threads(make: MakeStore) -> None:
    """Of many who change one version only one does; counters give no id twice."""
    store = make()
    store.create(metadata_of(7))
    won: list[int] = []
    ids: list[LedgerId] = []

    def work() -> None:
        mine = make()
        for _ in range(10):
            version = mine.read(7).version
            with contextlib.suppress(BadVersion):
                won.append(mine.write(metadata_of(7), version))
            ids.append(mine.next_id(4))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert list(range(1, len(won) + 1)) == sorted(won)
    assert len(won) == make().read(7).version
    assert [LedgerId(4, n) for n in range(40)] == sorted(ids)


def test_store_over_other_values() -> None:
    """Whoever has versioned values has a store: five calls are all that it needs."""

    class Logged(MemoryValues):
        def __init__(self) -> None:
            super().__init__()
            self.read: list[str] = []

        def get(self, key: str) -> Value | None:
            self.read.append(key)
            return super().get(key)

    values = Logged()
    store = KeyValueStore(values, "keys")
    store.create(metadata_of(LedgerId(1, 2)))
    store.read(LedgerId(1, 2))

    assert ["/ledgers/00000000-0000-0001-0000-000000000002"] == values.read
