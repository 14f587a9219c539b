"""A metadata store in a directory: processes beside each other, damage, power losses."""

from __future__ import annotations

import contextlib
import random
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from bkstore.cluster import (
    DirectoryStore,
    MemoryStore,
    open_metadata,
)
from bkstore.cluster.store.directory_values import DirectoryValues
from bkstore.errors import (
    BkstoreError,
    CorruptionError,
    InvalidArgument,
    ReadOnlyError,
    UnsupportedLayout,
    WriteFailed,
)
from bkstore.files.disk_changes import Files
from bkstore.ids import LedgerId
from bkstore.testing.crash import CrashFiles, PowerLoss
from bkstore.testing.faults import FaultPlan
from tests.cluster.store.samples import metadata_of

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
    DirectoryStore(tmp_path / "s").create(metadata_of(7))
    (tmp_path / "s" / "lock").unlink()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    store = open_metadata(tmp_path / "s")

    assert isinstance(store, DirectoryStore)
    assert (metadata_of(7), 0) == store.read(7)
    for change in (
        lambda: store.create(metadata_of(8)),
        lambda: store.write(metadata_of(7), 0),
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
    store.create(metadata_of(7))
    for fail in (plan.fail_write, plan.fail_sync):
        fail(1)
        with pytest.raises(WriteFailed):
            store.write(metadata_of(7, ack_quorum_size=2), 0)

        assert (metadata_of(7), 0) == store.read(7)
        assert [LedgerId.of(7)] == store.ledgers()
    assert 2 == len(plan.done)
    assert 1 == store.write(metadata_of(7, ack_quorum_size=2), 0)


def _life(path: Path, files: Files, done: list[str]) -> None:
    store = DirectoryStore(path, files=files)
    done.append("made")
    store.create(metadata_of(7))
    done.append("create")
    store.write(metadata_of(7, ack_quorum_size=2), 0)
    done.append("write")
    store.create(metadata_of(LedgerId(1, 2)))
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
