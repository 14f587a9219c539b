"""Directories of new bookies: every entry on its whole write set, as an audit and a reader see."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bkstore import BookieDir
from bkstore.cli.main import main
from bkstore.cluster import DirectoryStore, MemoryStore
from bkstore.cluster.audit import Auditor, DirectoryBookie
from bkstore.errors import IllegalOperation
from bkstore.formats.cookie import decode as decode_cookie
from bkstore.formats.metadata.json_file import ClusterMetadata, decode_file, encode_file
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.offline.check import Check
from bkstore.rescue.outputs.registration import register
from tests.rescue.rescue_worlds import RescueWorld


def command(world: RescueWorld, tmp_path: Path, *options: str) -> int:
    """Rescue a world into the directories of bookies; return the exit code."""
    metadata = tmp_path / "metadata.json"
    ledgers = tuple(ledger.metadata for ledger in world.ledgers.values())
    metadata.write_bytes(encode_file(ClusterMetadata(ledgers), passwords=True))
    bookies = [f"{bookie}={world.path(bookie)}" for bookie in world.bookies]
    words = ["rescue", str(metadata), *bookies, str(tmp_path / "out"), "--as", "bookies"]
    return main([*words, *options])


def write_set_of(metadata: LedgerMetadata, entry: int) -> list[str]:
    """Return the bookies of an entry, by the rule of round robin."""
    ensemble, size = metadata.ensemble_at(entry), metadata.ensemble_size
    return [ensemble[(entry + w) % size] for w in range(metadata.write_quorum_size)]


def read_back(world: RescueWorld, out: Path) -> dict[str, BookieDir]:
    """Check and return the new bookies: nothing is inconsistent, and each record is in place."""
    saved = decode_file((out / "metadata.json").read_bytes()).ledgers
    opened = {}
    for folder in sorted(path for path in out.iterdir() if path.is_dir()):
        bookie = BookieDir(folder)
        opened[bookie.bookie_id] = bookie
        assert list(Check(bookie)) == []
        cookie = decode_cookie((folder / "ledgers" / "current" / "VERSION").read_bytes())
        assert cookie.ledger_dirs == (str(folder / "ledgers"),)
        assert cookie.journal_dirs == (str(folder / "journal"),)
        assert (folder / "journal" / "current" / "VERSION").read_bytes() == (
            folder / "ledgers" / "current" / "VERSION"
        ).read_bytes()
    for metadata in saved:
        for entry, record in world.ledgers[metadata.ledger].records.items():
            for owner in write_set_of(metadata, entry):
                assert opened[owner].read_entry(metadata.ledger, entry) == record
        for bookie_id, bookie in opened.items():
            due = [
                entry
                for entry in world.ledgers[metadata.ledger].records
                if bookie_id in write_set_of(metadata, entry)
            ]
            assert bookie.index.entries(metadata.ledger).tolist() == due
    store = MemoryStore()
    for metadata in saved:
        store.create(metadata)
    report = Auditor(store, {each: DirectoryBookie(opened[each]) for each in opened}).run()
    assert report.violations == []
    return opened


@pytest.mark.parametrize("seed", [1, 3])
def test_as_they_were(tmp_path: Path, seed: int) -> None:
    """Each ledger is on its old bookies again, with its metadata, from one damaged copy each."""
    world = RescueWorld(tmp_path / "world", seed)
    for (ledger_id, entry), bookies in world.copies().items():
        for bookie in sorted(bookies)[1:]:
            world.flip(bookie, world.ledgers[ledger_id].records[entry])

    assert command(world, tmp_path) == 0

    opened = read_back(world, tmp_path / "out")
    cookies = [bookie.folders.cookie for bookie in opened.values()]
    assert {cookie.instance_id for cookie in cookies if cookie is not None} == {"world"}
    saved = decode_file((tmp_path / "out" / "metadata.json").read_bytes()).ledgers
    assert {each.ledger: each for each in saved} == {
        ledger_id: ledger.metadata for ledger_id, ledger in world.ledgers.items()
    }


def test_on_fewer_bookies(tmp_path: Path) -> None:
    """Ensembles and quorums shrink to the bookies that there are; the store learns of both."""
    world = RescueWorld(tmp_path / "world", seed=3)
    world.random.seed(1)
    store = tmp_path / "store"

    new = ["--bookies", "new-a:3181,new-b:3181", "--storage", "db", "--store", str(store)]
    assert command(world, tmp_path, *new) == 0

    opened = read_back(world, tmp_path / "out")
    assert sorted(opened) == ["new-a:3181", "new-b:3181"]
    assert {bookie.layout for bookie in opened.values()} == {"rocksdb"}
    stored = DirectoryStore(store, read_only=True)
    saved = decode_file((tmp_path / "out" / "metadata.json").read_bytes()).ledgers
    for metadata in saved:
        old = world.ledgers[metadata.ledger].metadata
        assert (metadata.ensemble_size, metadata.write_quorum_size) == (
            min(old.ensemble_size, 2),
            min(old.write_quorum_size, 2),
        )
        assert metadata.custom_metadata == old.custom_metadata
        assert metadata.length == old.length
        assert stored.read(metadata.ledger).metadata == metadata
    # A second run into the same store is refused before anything is read.
    (tmp_path / "out").rename(tmp_path / "first")
    assert command(world, tmp_path, *new) == 2
    assert not (tmp_path / "out").exists()


def test_a_store_with_another_ledger_is_left_as_it_is() -> None:
    """What differs is found before anything is written; what is the same is kept."""
    ledgers = [
        LedgerMetadata(number, 1, 1, 1, [(0, ["b1"])], "CLOSED", last_entry_id=number)
        for number in range(3)
    ]
    store = MemoryStore()
    store.create(ledgers[0])
    other = replace(ledgers[2], last_entry_id=7)
    store.create(other)
    wanted = {each.ledger: each for each in ledgers}
    with pytest.raises(IllegalOperation, match="another ledger 2"):
        register(store, wanted, {})
    assert [store.read(each).metadata for each in store.ledgers()] == [ledgers[0], other]

    store.write(ledgers[2], store.read(other.ledger).version)
    register(store, wanted, {})
    assert [store.read(each).metadata for each in sorted(store.ledgers())] == ledgers


def test_an_open_ledger_is_closed_and_fenced(tmp_path: Path) -> None:
    """Its metadata say where recovery ended it, and no writer can go on."""
    world = RescueWorld(tmp_path / "world", seed=3)
    for ledger in world.ledgers.values():
        fields = {"state": "OPEN", "last_entry_id": -1, "length": 0}
        ledger.metadata = replace(ledger.metadata, **fields)  # type: ignore[arg-type]

    assert command(world, tmp_path) == 0

    opened = read_back(world, tmp_path / "out")
    for metadata in decode_file((tmp_path / "out" / "metadata.json").read_bytes()).ledgers:
        ledger = world.ledgers[metadata.ledger]
        assert (metadata.state, metadata.last_entry_id) == ("CLOSED", len(ledger.records) - 1)
        assert metadata.length == sum(map(len, ledger.payloads.values()))
        for bookie in metadata.bookies:
            assert opened[bookie].index.state(metadata.ledger).fenced
