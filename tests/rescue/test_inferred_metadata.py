"""Metadata made from disks: ensembles that fit, and ledgers that come back without a store."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from bkstore import Bookie
from bkstore.availability import Availability
from bkstore.cli.main import main
from bkstore.formats.entry import Coder, master_key
from bkstore.rescue import RescueJob, infer_metadata, open_source
from bkstore.rescue.inferred_metadata import infer_shape
from bkstore.storage.options import StorageKind
from tests.rescue.rescue_runs import read_folder
from tests.rescue.rescue_worlds import RescueWorld


def stripe(count: int, index: int, size: int, write: int) -> set[int]:
    """Return the entries of a bookie by the rule of round robin."""
    return {e for e in range(count) if index in {(e + w) % size for w in range(write)}}


@pytest.mark.parametrize("seed", range(16))
def test_the_shape_of_a_stripe_is_inferred(seed: int) -> None:
    """Some entries are missing on some bookies; the order is that of the ensemble if W < E."""
    choose = random.Random(seed)
    size = choose.randint(1, 6)
    write = choose.randint(1, size)
    bookies = choose.sample("abcdefgh", size)
    held = {bookies[index]: stripe(60, index, size, write) for index in range(size)}
    for entries in held.values():
        entries -= set(choose.sample(range(60), choose.randint(0, 2)))

    shape = infer_shape({each: Availability.from_entries(sorted(held[each])) for each in held})

    assert shape is not None
    assert shape.write_quorum_size == write
    if write < size:
        assert shape.ensemble == tuple(bookies)
    assert sorted(shape.ensemble) == sorted(bookies)


def test_a_missing_bookie_has_its_place() -> None:
    """A disk that is not there is an unknown bookie of the ensemble."""
    held = {name: stripe(60, index, 4, 2) for index, name in enumerate("abcd") if name != "b"}

    shape = infer_shape({each: Availability.from_entries(sorted(held[each])) for each in held})

    assert shape is not None
    assert (shape.ensemble, shape.write_quorum_size) == (("a", "unknown-1", "c", "d"), 2)


def test_no_shape_fits() -> None:
    """After a change of ensembles no stripe explains what the bookies have."""
    held = {"a": [0, 1, 2, 5], "b": [0, 1, 7], "c": [2, 3], "d": [3, 4, 5, 6], "e": [4, 6, 7]}

    assert infer_shape({each: Availability.from_entries(held[each]) for each in held}) is None


@pytest.mark.parametrize("seed", [1, 3])
def test_a_world_without_metadata(
    tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """One bookie has lost its index; every ledger comes back, whatever is inferred."""
    world = RescueWorld(tmp_path / "world", seed, digests=("CRC32", "CRC32C"))
    world.lose_index(world.bookies[0])
    words = [f"{bookie}={world.path(bookie)}" for bookie in world.bookies]

    assert main(["rescue", "--without-metadata", *words, str(tmp_path / "out")]) == 0

    assert "inferred; ack quorum of" in capsys.readouterr().err
    for ledger_id, ledger in world.ledgers.items():
        assert read_folder(tmp_path / "out", ledger_id) == ledger.payloads
    sources = [open_source(world.path(bookie), bookie) for bookie in world.bookies]
    inferred = infer_metadata(sources)
    job = RescueJob(sources, inferred.wanted)
    job.run_without_output()
    for ledger_id, plan in job.plans.items():
        assert plan.last_entry == len(world.ledgers[ledger_id].records) - 1
    for source in sources:
        source.close()


@pytest.mark.parametrize("storage", ["db", "sorted"])
def test_entries_that_the_index_cannot_list(tmp_path: Path, storage: StorageKind) -> None:
    """The index still has the ledger, but not where its entries are: its logs have them."""
    with Bookie.open(tmp_path / "b1", storage, bookie_id="b1") as bookie:
        for record in Coder("CRC32C", b"pw").encode_many(7, range(5), [b"payload"] * 5):
            bookie.add_entry(record, master_key(b"pw"))
    for path in tmp_path.rglob("*.txn"):
        path.write_bytes(b"")
    for path in tmp_path.rglob("*.idx"):
        path.write_bytes(b"\xff" * 2000)
    for path in tmp_path.rglob("current/locations"):
        shutil.rmtree(path)

    with open_source(tmp_path / "b1") as source:
        job = RescueJob([source], infer_metadata([source]).wanted, jobs=1)
        job.run_without_output()

    assert [list(plan.rescued) for plan in job.plans.values()] == [[0, 1, 2, 3, 4]]
    assert source.findings


def test_owners_need_metadata(tmp_path: Path) -> None:
    """Topics are in the metadata alone."""
    with pytest.raises(SystemExit):
        main(["rescue", "--without-metadata", "b=b", str(tmp_path / "out"), "--topic", "x"])
