"""Lock files: who asks whether one is locked never keeps anybody from locking it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkstore.errors import DirectoryInUse
from bkstore.files import lock_files
from bkstore.files.lock_files import acquire_lock, is_locked, open_lock_file, release_lock
from tests.patched_modules import patch_module


@pytest.fixture
def probe(tmp_path: Path) -> Iterator[int]:
    """A descriptor of the lock file, which shares its lock as a probe does for a moment."""
    fd = open_lock_file(tmp_path / "lock")
    fcntl.flock(fd, fcntl.LOCK_SH)
    yield fd
    os.close(fd)


def test_probe_is_waited_for(tmp_path: Path, probe: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that a probe shares is taken as soon as the probe is over."""

    def pause(_: float) -> None:
        fcntl.flock(probe, fcntl.LOCK_UN)

    patch_module(monkeypatch, lock_files, "time", sleep=pause)

    release_lock(acquire_lock(tmp_path / "lock", "taken"))


def test_shared_lock_that_stays_is_refused(
    tmp_path: Path, probe: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A probe that was stopped in the middle does not hold up a writer for ever."""
    monkeypatch.setattr(lock_files, "_MAX_PROBE_SECONDS", 0.0)

    with pytest.raises(DirectoryInUse, match="taken"):
        acquire_lock(tmp_path / "lock", "taken")


def test_holder_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that is held is refused at once."""

    def pause(_: float) -> None:
        raise AssertionError("waited for a holder")

    patch_module(monkeypatch, lock_files, "time", sleep=pause)
    holder = acquire_lock(tmp_path / "lock", "first")
    try:
        with pytest.raises(DirectoryInUse, match="second"):
            acquire_lock(tmp_path / "lock", "second")
    finally:
        release_lock(holder)


def test_question_leaves_no_lock(tmp_path: Path) -> None:
    """`is_locked` answers for a free and for a held file, and holds nothing afterwards."""
    asker = open_lock_file(tmp_path / "lock")
    try:
        assert False is is_locked(asker)
        holder = acquire_lock(tmp_path / "lock", "taken")
        assert True is is_locked(asker)
        release_lock(holder)
        assert False is is_locked(asker)
    finally:
        os.close(asker)
