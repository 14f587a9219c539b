"""A local Spark session with the `bookie` source, and bookies for it to read."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bkstore import LedgerId
from bkstore.offline.dump import dump
from tests.worlds.dumps import WIDE, three_bookies, write_log


@pytest.fixture(scope="module")
def spark(request: pytest.FixtureRequest) -> Iterator[Any]:
    """One session for the family, in which a task has three attempts."""
    from pyspark import cloudpickle

    from bkstore.spark import register, start_session

    few = {"spark.sql.shuffle.partitions": "2"}
    session = start_session("bkstore source tests", "local[2,3]", config=few)
    register(session)
    cloudpickle.register_pickle_by_value(request.module)  # workers cannot import tests
    yield session
    cloudpickle.unregister_pickle_by_value(request.module)
    session.stop()
    with warnings.catch_warnings():  # py4j leaves sockets, and the JVM, to the interpreter's end
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module")
def bookies(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], Path]:
    """Return a bookie of each layout with entry logs, and their dump with lengths."""
    top = tmp_path_factory.mktemp("bookies")
    paths = three_bookies(top)
    for path in paths:
        for current in path.glob("*/current"):
            records = iter([(LedgerId.of(3), 1, 100), (WIDE[0], 0, 70)])
            write_log(current / "7.log", records, 2)
    dump(paths, top / "dump", length=True, piece_rows=2000)
    return paths, top / "dump"
