"""Interop with the real Apache BookKeeper: skipped, with the reason, where none is named.

BOOKKEEPER_CLASSPATH is a class path, or a file that has it; BOOKKEEPER_HOME a distribution. The
page `docs/interop.md` says how to run these.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.bookies import Cluster
from tests.interop.class_path import compiled, missing
from tests.interop.driver import RealBookKeeper


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a real BookKeeper where there is none: one line a file in the summary."""
    reason = missing()
    for item in items:
        if reason is not None and "java_classes" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def java_classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of our compiled Java programs."""
    return compiled(tmp_path_factory.mktemp("java") / "classes")


@pytest.fixture(scope="session")
def real(java_classes: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBookKeeper]:
    """Yield the real BookKeeper in a JVM, one for all tests of this process."""
    with RealBookKeeper(java_classes, tmp_path_factory.mktemp("real")) as found:
        yield found


@pytest.fixture(scope="session")
def real_cluster(real: RealBookKeeper) -> Cluster:
    """Return a real ZooKeeper with a cluster in it."""
    return Cluster.started(real, real.folder / "zookeeper")
