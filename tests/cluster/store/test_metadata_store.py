"""The metadata store: one contract for both layouts, in memory and in a directory."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bkstore.cluster import (
    DirectoryStore,
    KeyValues,
    KeyValueStore,
    MemoryStore,
    MetadataStore,
    Value,
    open_metadata,
    uuid_ledger_id,
)
from bkstore.cluster.store.directory_values import DirectoryValues
from bkstore.cluster.store.dump_store import DumpValues
from bkstore.cluster.store.memory_values import MemoryValues
from bkstore.errors import (
    BadVersion,
    BkstoreError,
    CorruptionError,
    InvalidArgument,
    LedgerExists,
    NoSuchLedger,
    ReadOnlyError,
    UnsupportedLayout,
    WriteFailed,
)
from bkstore.files.disk_changes import Files
from bkstore.formats.metadata.serialized import Mark, encode
from bkstore.formats.metadata.store_paths import tree_path, uuid_path
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata, Segment
from bkstore.testing.crash import CrashFiles, PowerLoss
from bkstore.testing.faults import FaultPlan

IDS = [
    LedgerId.of(0),
    LedgerId.of(7),
    LedgerId.of(2**31),
    LedgerId.of(2**63 - 1),
    LedgerId(1, 0),
    LedgerId(1, 2**63),
    LedgerId(2**63, 5),
    LedgerId(2**64 - 1, 2**64 - 1),
]
MakeStore = Callable[[], KeyValueStore]


def _ledger(name: int | LedgerId, **change: Any) -> LedgerMetadata:
    made = LedgerMetadata(
        LedgerId.of(name),
        2,
        2,
        1,
        (Segment(0, ("b1", "b2")),),
        digest_type="CRC32C",
        password=b"pw",
    )
    return replace(made, **change)


@pytest.fixture(params=["memory-tree", "memory-keys", "directory-tree", "directory-keys"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """Return what makes the store of one kind and layout; in a directory, opens it again."""
    kind, _, layout = request.param.partition("-")
    if kind == "memory":
        store = MemoryStore(layout)
        return lambda: store
    return lambda: DirectoryStore(tmp_path / "store", layout, sync=False)


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
def test_create_read_write_delete(make: MakeStore, name: LedgerId) -> None:
    """A ledger has version 0 when it is made, one more with each change, and goes."""
    first, second = _ledger(name), _ledger(name, state="IN_RECOVERY")

    assert 0 == make().create(first)
    assert (first, 0) == make().read(name)
    assert 1 == make().write(second, 0)
    assert (second, 1) == make().read(name)
    make().delete(name, 1)
    with pytest.raises(NoSuchLedger):
        make().read(name)
    assert [] == make().ledgers()


def test_compare_and_set(store: KeyValueStore) -> None:
    """Who has read an older version changes nothing."""
    store.create(_ledger(7))
    store.write(_ledger(7, ack_quorum_size=2), 0)
    with pytest.raises(LedgerExists):
        store.create(_ledger(7))
    for version in (0, 2):
        with pytest.raises(BadVersion):
            store.write(_ledger(7), version)
        with pytest.raises(BadVersion):
            store.delete(7, version)

    assert (_ledger(7, ack_quorum_size=2), 1) == store.read(7)


def test_ledger_that_is_not_there(store: KeyValueStore) -> None:
    """A change of a ledger that is not there says so, whatever the version."""
    for call in (
        lambda: store.read(7),
        lambda: store.write(_ledger(7), 0),
        lambda: store.delete(7),
        lambda: store.delete(7, 3),
    ):
        with pytest.raises(NoSuchLedger, match="7"):
            call()


def test_delete_of_any_version(store: KeyValueStore) -> None:
    """Without a version the ledger goes; made again, it starts from version 0."""
    store.create(_ledger(7))
    store.write(_ledger(7), 0)
    store.delete(7)

    assert 0 == store.create(_ledger(7))


def test_listing(make: MakeStore) -> None:
    """Ledgers are listed by scope, in unsigned order; marks and bookies are none."""
    store = make()
    for name in random.Random(7).sample(IDS, len(IDS)):
        store.create(_ledger(name))
        store.mark_underreplicated(name, Mark(1.5))
    store.register_bookie("b1")
    store.next_id(3)
    store = make()

    assert IDS == store.ledgers()
    for scope in {name.scope for name in IDS} | {99}:
        assert [name for name in IDS if name.scope == scope] == store.ledgers(scope)


def test_layouts_on_disk(tmp_path: Path) -> None:
    """The file of a ledger lies where its layout says, and ends in what BookKeeper keeps."""
    for layout, path_of in (("tree", tree_path), ("keys", lambda n: f"/ledgers{uuid_path(n)}")):
        store = DirectoryStore(tmp_path / layout, layout)  # type: ignore[arg-type]
        for name in IDS:
            store.create(_ledger(name))
            content = Path(f"{tmp_path}/{layout}{path_of(name)}").read_bytes()

            assert encode(_ledger(name)) == content.partition(b"\n")[2]


def test_metadata_that_upstream_would_not_write(store: KeyValueStore) -> None:
    """A store keeps metadata without a password, and metadata that contradicts itself."""
    bare = _ledger(7, password=None)
    wrong = _ledger(8, digest_type=None, password=None, write_quorum_size=9)
    store.create(bare)
    store.create(wrong)

    assert (bare, 0) == store.read(7)
    assert (wrong, 0) == store.read(8)
    with pytest.raises(InvalidArgument):
        store.create(_ledger(9, ensemble_size=2**40))
    assert [7, 8] == [name.ledger for name in store.ledgers()]


def test_ids_by_counter(make: MakeStore) -> None:
    """Each scope counts from 0, leaves out ids that are taken, and gives none twice."""
    make().create(_ledger(1))
    make().create(_ledger(LedgerId(2**63, 0)))

    assert [0, 2, 3] == [make().next_id().ledger for _ in range(3)]
    assert LedgerId(2**63, 1) == make().next_id(2**63)
    assert LedgerId(5, 0) == make().next_id(5)


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
        store.create(_ledger(name))

    assert 64 == len(set(names))
    assert all(name.scope > 0 for name in names)
    assert all(name.ledger >= 2**63 for name in names)
    assert sorted(names) == store.ledgers()


def test_watch(store: KeyValueStore) -> None:
    """A watcher hears of each change that was made, of none that was refused, until it ends."""
    seen: list[int] = []
    end = store.watch(lambda name: seen.append(name.ledger))
    store.create(_ledger(1))
    store.write(_ledger(1), 0)
    with pytest.raises(BadVersion):
        store.write(_ledger(1), 0)
    store.mark_underreplicated(2, Mark())
    store.clear_mark(2)
    store.clear_mark(2)
    store.delete(1)
    end()
    end()
    store.create(_ledger(3))

    assert [1, 1, 2, 2, 1] == seen


def test_bookies(make: MakeStore) -> None:
    """Registered bookies and unavailable ones are two lists; any id is kept as it is."""
    names = {"b1", "10.0.0.1:3181", "a/b", "..", "x.tmp", "%41", "\u00e4", "end."}
    for name in names:
        make().register_bookie(name)
        make().set_unavailable(name)
    make().register_bookie("b1")
    make().unregister_bookie("b1")
    make().unregister_bookie("b1")
    make().set_unavailable("a/b", False)

    assert names - {"b1"} == make().registered_bookies()
    assert names - {"a/b"} == make().unavailable_bookies()
    for name in ("", "readonly", "\udc80"):
        with pytest.raises(InvalidArgument, match="no bookie id"):
            make().register_bookie(name)


def test_marks(make: MakeStore) -> None:
    """A mark has its time to the millisecond and its bookies; the last one counts."""
    for name in IDS:
        make().mark_underreplicated(name, Mark(5.0))
        make().mark_underreplicated(name, Mark(1_700_000_000.123, ("b1", "b2")))
    make().mark_underreplicated(IDS[0], Mark())
    make().clear_mark(IDS[1])
    expected = dict.fromkeys(IDS, Mark(1_700_000_000.123, ("b1", "b2"))) | {IDS[0]: Mark()}
    del expected[IDS[1]]

    assert expected == make().underreplicated()
    assert make().mark_of(IDS[1]) is None
    assert Mark() == make().mark_of(IDS[0])


def test_time_of_the_last_check(make: MakeStore) -> None:
    """The time is kept in milliseconds; before the first check there is none."""
    assert make().checked_at() is None
    make().set_checked_at(1_700_000_000.5)
    make().set_checked_at(1_700_000_001.25)

    assert 1_700_000_001.25 == make().checked_at()


def test_threads(make: MakeStore) -> None:
    """Of many who change one version only one does; counters give no id twice."""
    store = make()
    store.create(_ledger(7))
    won: list[int] = []
    ids: list[LedgerId] = []

    def work() -> None:
        mine = make()
        for _ in range(10):
            version = mine.read(7).version
            with contextlib.suppress(BadVersion):
                won.append(mine.write(_ledger(7), version))
            ids.append(mine.next_id(4))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert list(range(1, len(won) + 1)) == sorted(won)
    assert len(won) == make().read(7).version
    assert [LedgerId(4, n) for n in range(40)] == sorted(ids)


class StoreMachine(RuleBasedStateMachine):
    """A store in memory against a dict: what is there, in which version, in which order."""

    names = st.sampled_from(IDS)
    layouts = st.sampled_from(["tree", "keys"])
    quorums = st.integers(1, 9)

    @initialize(layout=layouts)
    def start(self, layout: Any) -> None:
        """Begin with nothing."""
        self.store = MemoryStore(layout)
        self.model: dict[LedgerId, tuple[int, int]] = {}

    @rule(name=names, quorum=quorums)
    def create(self, name: LedgerId, quorum: int) -> None:
        """Creating succeeds only where nothing is."""
        if name in self.model:
            with pytest.raises(LedgerExists):
                self.store.create(_ledger(name))
            return
        self.model[name] = (quorum, self.store.create(_ledger(name, ack_quorum_size=quorum)))

        assert 0 == self.model[name][1]

    @rule(name=names, quorum=quorums, behind=st.integers(0, 1))
    def write(self, name: LedgerId, quorum: int, behind: int) -> None:
        """Writing succeeds only with the version that is there."""
        if name not in self.model:
            with pytest.raises(NoSuchLedger):
                self.store.write(_ledger(name), 0)
            return
        version = self.model[name][1]
        if behind:
            with pytest.raises(BadVersion):
                self.store.write(_ledger(name), version + 1)
            return
        now = self.store.write(_ledger(name, ack_quorum_size=quorum), version)

        assert version + 1 == now
        self.model[name] = (quorum, now)

    @rule(name=names)
    def delete(self, name: LedgerId) -> None:
        """Deleting succeeds where something is."""
        if self.model.pop(name, None) is None:
            with pytest.raises(NoSuchLedger):
                self.store.delete(name)
        else:
            self.store.delete(name)

    @invariant()
    def same(self) -> None:
        """The store has what the model has."""
        if not hasattr(self, "store"):
            return
        found = {name: self.store.read(name) for name in self.store.ledgers()}

        assert sorted(self.model) == list(found)
        assert self.model == {
            name: (metadata.ack_quorum_size, version) for name, (metadata, version) in found.items()
        }


StoreMachine.TestCase.settings = settings(max_examples=12, stateful_step_count=25, deadline=None)
TestStoreMachine = StoreMachine.TestCase


# -- the directory


def _count(path: str, out: Any) -> None:
    store = DirectoryStore(path, sync=False)
    out.put([store.next_id().ledger for _ in range(15)])


def test_processes(tmp_path: Path) -> None:
    """Processes that share a directory give no id twice."""
    DirectoryStore(tmp_path / "s")
    context = get_context("spawn")
    out = context.Queue()
    workers = [context.Process(target=_count, args=(str(tmp_path / "s"), out)) for _ in range(2)]
    for worker in workers:
        worker.start()
    given = sorted(number for _ in workers for number in out.get(timeout=60))
    for worker in workers:
        worker.join()

    assert list(range(30)) == given


def test_directories_that_are_none(tmp_path: Path) -> None:
    """A store is made in an empty place only; the layout and version are those it was made with."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("x")
    DirectoryStore(tmp_path / "store", "keys")
    (tmp_path / "empty").mkdir()

    assert "keys" == DirectoryStore(tmp_path / "store")._layout
    assert "tree" == DirectoryStore(tmp_path / "empty")._layout
    for path, layout in (("other", "tree"), ("store", "tree")):
        with pytest.raises(UnsupportedLayout):
            DirectoryStore(tmp_path / path, layout)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedLayout):
        DirectoryStore(tmp_path / "new", read_only=True)
    with pytest.raises(InvalidArgument):
        DirectoryStore(tmp_path / "new", "flat")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        MemoryStore("flat")  # type: ignore[arg-type]
    assert not (tmp_path / "new").exists()
    (tmp_path / "store" / "BKSTORE-METADATA").write_text("BKSTORE-METADATA\n2\ntree\n")
    with pytest.raises(UnsupportedLayout):
        DirectoryStore(tmp_path / "store")
    (tmp_path / "store" / "BKSTORE-METADATA").write_text("hello")
    with pytest.raises(CorruptionError):
        DirectoryStore(tmp_path / "store")


def test_read_only(tmp_path: Path) -> None:
    """A store that is opened for reading changes nothing, its lock included."""
    DirectoryStore(tmp_path / "s").create(_ledger(7))
    (tmp_path / "s" / "lock").unlink()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    store = open_metadata(tmp_path / "s")

    assert isinstance(store, DirectoryStore)
    assert (_ledger(7), 0) == store.read(7)
    for change in (
        lambda: store.create(_ledger(8)),
        lambda: store.write(_ledger(7), 0),
        lambda: store.delete(7),
        lambda: store.register_bookie("b"),
        lambda: store.next_id(),
        lambda: store.set_checked_at(1.0),
    ):
        with pytest.raises(ReadOnlyError):
            change()
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}


@pytest.mark.parametrize("key", ["", "a", "/", "/a/../b", "/./a", "/a.tmp", "/a//b", "/\u00e4"])
def test_what_is_no_key(tmp_path: Path, key: str) -> None:
    """A key that would be another file than its own, or lie elsewhere, is refused."""
    values = DirectoryValues(tmp_path / "v")
    for call in (
        lambda: values.get(key),
        lambda: values.put(key, b"", None),
        lambda: values.delete(key, None),
    ):
        with pytest.raises(InvalidArgument, match="not a key"):
            call()


def test_write_that_fails(tmp_path: Path) -> None:
    """After a refused write the ledger is as it was, and the next write succeeds."""
    plan = FaultPlan()
    store = DirectoryStore(tmp_path / "s", files=plan)
    store.create(_ledger(7))
    for fail in (plan.fail_write, plan.fail_sync):
        fail(1)
        with pytest.raises(WriteFailed):
            store.write(_ledger(7, ack_quorum_size=2), 0)

        assert (_ledger(7), 0) == store.read(7)
        assert [LedgerId.of(7)] == store.ledgers()
    assert 2 == len(plan.done)
    assert 1 == store.write(_ledger(7, ack_quorum_size=2), 0)


def _life(path: Path, files: Files, done: list[str]) -> None:
    store = DirectoryStore(path, files=files)
    done.append("made")
    store.create(_ledger(7))
    done.append("create")
    store.write(_ledger(7, ack_quorum_size=2), 0)
    done.append("write")
    store.create(_ledger(LedgerId(1, 2)))
    done.append("other")
    store.delete(7)
    done.append("delete")


def _after(path: Path, done: list[str]) -> None:
    """Assert that what was done is there, and what was not is there whole or not at all."""
    if not done and not (path / "BKSTORE-METADATA").exists():
        return
    store = DirectoryStore(path, read_only=True)
    listed = store.ledgers()
    versions = {name.ledger: store.read(name).version for name in listed}
    if "delete" in done:
        assert {2: 0} == versions
        return
    assert ("other" in done) <= (2 in versions)
    if "other" not in done:
        assert ("create" in done) <= (7 in versions)
        assert ("write" in done) <= (versions.get(7) == 1)


def test_power_loss(tmp_path: Path) -> None:
    """Whenever the power goes, what was acknowledged is there and nothing is half there."""
    calls = CrashFiles()
    _life(tmp_path / "whole", calls, [])
    for stop in range(1, calls.calls + 1):
        for seed in (None, 1, 2):
            top = tmp_path / f"{stop}-{seed}"
            top.mkdir()
            files, done = CrashFiles(), list[str]()
            files.stop_after(stop)
            with pytest.raises(PowerLoss):
                _life(top / "s", files, done)
            keep = None if seed is None else random.Random(seed)
            left = files.crash(top, tmp_path / f"left-{stop}-{seed}", keep)
            _after(left / "s", done)


def test_each_sync_counts(tmp_path: Path) -> None:
    """With any one sync left out, some power loss takes what was acknowledged."""
    probe = CrashFiles()
    _life(tmp_path / "whole", probe, [])
    sites = sorted(probe.sync_sites)

    assert len(sites) >= 5
    assert [] == [site for site in sites if not _loses(site, probe.calls, tmp_path)]


def _loses(site: str, calls: int, top: Path) -> bool:
    """Return whether some power loss takes something when a site's syncs do nothing."""
    for stop in range(calls + 1, 0, -1):
        place = top / f"{site}-{stop}"
        place.mkdir()
        files, done = CrashFiles(), list[str]()
        files.ignore_site(site)
        files.stop_after(stop)
        with contextlib.suppress(PowerLoss):
            _life(place / "s", files, done)
        left = files.crash(place, top / f"left-{site}-{stop}")
        try:
            _after(left / "s", done)
        except (AssertionError, BkstoreError):
            return True
    return False


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
    store.create(_ledger(LedgerId(1, 2)))
    store.read(LedgerId(1, 2))

    assert ["/ledgers/00000000-0000-0001-0000-000000000002"] == values.read
