"""Databases for the tests of damage, made once for each family."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bkstore.index.rocks import RocksIndex
from tests.corruption.rocks.databases import Answers, answers_of, fill, flush


@pytest.fixture(scope="module")
def flushed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Answers]:
    """Return a bookie whose rows are all in table files, and its answers."""
    top = tmp_path_factory.mktemp("flushed")
    with RocksIndex(top, writable=True) as index:
        fill(index)
        flush(index)
    with RocksIndex(top) as index:
        return top, answers_of(index)


@pytest.fixture(scope="module")
def unflushed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Answers]:
    """Return a bookie whose rows are all in write-ahead logs, and its answers."""
    made, top = tmp_path_factory.mktemp("made"), tmp_path_factory.mktemp("unflushed")
    with RocksIndex(made, writable=True) as index:
        fill(index)
        index.flush()
        shutil.copytree(made, top, dirs_exist_ok=True)  # as a crash would leave it
    with RocksIndex(top) as index:
        return top, answers_of(index)
