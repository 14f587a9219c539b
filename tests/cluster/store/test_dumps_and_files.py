"""Metadata from elsewhere: files, dumped folders, stores in memory made of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bkstore.cluster import DumpStore, make_memory_store, open_metadata, snapshot
from bkstore.errors import (
    BkstoreError,
    CorruptionError,
    InvalidArgument,
    NoSuchLedger,
    ReadOnlyError,
    UnsupportedLayout,
)
from bkstore.formats.metadata.json_file import ClusterMetadata, encode_file
from bkstore.formats.metadata.serialized import encode
from bkstore.formats.metadata.store_paths import flat_path, long_path, tree_path, uuid_path
from bkstore.formats.metadata.underreplication import UnderreplicatedMark, mark_path
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata, Segment


def _ledger(name: int | LedgerId) -> LedgerMetadata:
    return LedgerMetadata(
        LedgerId.of(name),
        2,
        2,
        1,
        (Segment(0, ("b1", "b2")),),
        digest_type="CRC32C",
        password=b"pw",
    )


TOLD = ClusterMetadata(
    (_ledger(7), _ledger(LedgerId(1, 2**63))),
    frozenset({"b1"}),
    frozenset(),
    {LedgerId.of(7): UnderreplicatedMark(9.0, ("b2",))},
)


@pytest.mark.parametrize(
    "content",
    [
        TOLD,
        replace(TOLD, registered_bookies=None),
        replace(TOLD, unavailable_bookies=None, underreplicated=None),
        ClusterMetadata(),
    ],
    ids=["all", "no-registered", "registered-only", "nothing"],
)
def test_file_to_store_and_back(tmp_path: Path, content: ClusterMetadata) -> None:
    """A metadata file opens as a store that tells what it told, and None for the rest."""
    path = tmp_path / "metadata.json"
    path.write_bytes(encode_file(content, passwords=True))
    store = open_metadata(path)

    assert content == snapshot(store)
    assert content == snapshot(make_memory_store(content))
    if content.underreplicated is None:
        assert store.mark_of(7) is None


def test_store_begins_to_tell() -> None:
    """A list that was not told is told from the first change on."""
    store = make_memory_store(ClusterMetadata())
    store.register_bookie("b1")
    store.set_unavailable("b1", False)
    store.clear_mark(7)

    assert ClusterMetadata((), frozenset({"b1"}), frozenset(), {}) == snapshot(store)


def _dump(top: Path, values: dict[str, bytes]) -> Path:
    for key, data in values.items():
        path = Path(f"{top}{key}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return top


def test_dump(tmp_path: Path) -> None:
    """A dumped tree tells ledgers of all scopes and forms, bookies and marks; nothing changes."""
    names = [LedgerId.of(3), LedgerId.of(2**40), LedgerId(1, 2**63)]
    paths = [flat_path(names[0]), long_path(names[1]), tree_path(names[2])]
    _dump(
        tmp_path,
        {f"/ledgers{path}": encode(_ledger(name)) for name, path in zip(names, paths)}
        | {
            "/ledgers/available/10.0.0.1:3181": b"",
            "/ledgers/available/readonly/b2": b"",
            f"/ledgers{mark_path(3)}": b'replica: "b9"\nctime: 5000\n',
            "/ledgers/cookies/b2": b"5\n",
            "/ledgers/underreplication/locks/urL0000000003": b"",
        },
    )
    store = open_metadata(tmp_path)

    assert isinstance(store, DumpStore)
    assert names == store.ledgers()
    assert names[2:] == store.ledgers(1)
    for name in names:
        assert (_ledger(name), 0) == store.read(name)
    assert frozenset({"10.0.0.1:3181", "b2"}) == store.registered_bookies()
    assert frozenset({"10.0.0.1:3181"}) == store.writable_bookies()
    assert {names[0]: UnderreplicatedMark(5.0, ("b9",))} == store.underreplicated()
    assert store.unavailable_bookies() is None
    assert "ledgers/cookies/b2" in store.other_files
    with pytest.raises(NoSuchLedger):
        store.read(4)
    for change in (
        lambda: store.create(_ledger(4)),
        lambda: store.write(_ledger(3), 0),
        lambda: store.delete(3),
        lambda: store.next_id(),
        lambda: store.mark_underreplicated(3, UnderreplicatedMark()),
    ):
        with pytest.raises(ReadOnlyError):
            change()


def test_dump_of_uuid_keys(tmp_path: Path) -> None:
    """Keys of the etcd form are read too, with bookies beside their folder."""
    names = [LedgerId.of(3), LedgerId(1, 2**63)]
    values = {f"/etcd/ledgers{uuid_path(name)}": encode(_ledger(name)) for name in names}
    store = open_metadata(_dump(tmp_path, values | {"/etcd/available/b1": b""}))

    assert names == store.ledgers()
    assert (_ledger(names[1]), 0) == store.read(names[1])
    assert frozenset({"b1"}) == store.registered_bookies()


def test_dumps_that_are_refused(tmp_path: Path) -> None:
    """No ledger at all, one under two paths, two trees: each is said, none passes as fine."""
    (tmp_path / "empty").mkdir()
    data = encode(_ledger(3))
    twice = _dump(tmp_path / "twice", {flat_path(3): data, long_path(3): data})
    trees = _dump(tmp_path / "trees", {f"/a{flat_path(3)}": data, f"/b{flat_path(4)}": data})
    with pytest.raises(UnsupportedLayout, match="contains no ledger's path"):
        open_metadata(tmp_path / "empty")
    with pytest.raises(CorruptionError, match="ledger 3 appears twice"):
        open_metadata(twice)
    with pytest.raises(InvalidArgument, match="several trees of ledgers: /a, /b"):
        open_metadata(trees)
    with pytest.raises(BkstoreError, match="cannot be read"):
        open_metadata(tmp_path / "missing")
    with pytest.raises(InvalidArgument, match="not a directory"):
        DumpStore(tmp_path / "missing")
