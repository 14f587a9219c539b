"""Where ZooKeeper's jars are found: in which order, and what a place without them is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bkstore.errors import InvalidArgument, MissingDependency
from bkstore.testing import zookeeper_server
from bkstore.testing.zookeeper_server import find_zookeeper_jars

DEBIAN = ("zookeeper", "zookeeper-jute", "slf4j-api", "snappy-java", "metrics-core", "slf4j-nop")
DISTRIBUTION = (
    *("zookeeper-3.9.3", "zookeeper-jute-3.9.3", "slf4j-api-1.7.36", "snappy-java-1.1.10.5"),
    *("metrics-core-4.1.12.1", "logback-classic-1.3.14", "logback-core-1.3.14", "netty-x"),
)


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the jars that this machine may have."""
    monkeypatch.delenv("ZOOKEEPER_HOME", raising=False)
    monkeypatch.setattr(zookeeper_server, "_DEBIAN_FOLDER", tmp_path / "none")
    monkeypatch.setattr(zookeeper_server, "_pyspark_folder", lambda: None)


def _make_jars(folder: Path, names: tuple[str, ...]) -> None:
    folder.mkdir(parents=True)
    for name in names:
        (folder / f"{name}.jar").touch()


def _names(class_path: str) -> list[str]:
    return [Path(jar).stem for jar in class_path.split(os.pathsep)]


def test_a_distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its jars are in lib, with versions; given, or named by the environment."""
    _make_jars(tmp_path / "zk" / "lib", DISTRIBUTION)
    given = find_zookeeper_jars(tmp_path / "zk")

    assert [*DISTRIBUTION[:7]] == _names(given.class_path)
    assert str(tmp_path / "zk") == given.origin

    monkeypatch.setenv("ZOOKEEPER_HOME", str(tmp_path / "zk"))

    assert (given.class_path, f"ZOOKEEPER_HOME, {tmp_path}/zk") == find_zookeeper_jars()


def test_places_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A given home, then the environment's, then Debian's package, then pyspark."""
    spark = (*DEBIAN[:5], "log4j-api-2.24", "log4j-core-2.24", "log4j-slf4j2-impl-2.24")
    _make_jars(tmp_path / "pyspark", spark)
    monkeypatch.setattr(zookeeper_server, "_pyspark_folder", lambda: tmp_path / "pyspark")

    assert "pyspark" == find_zookeeper_jars().origin
    assert [*spark] == _names(find_zookeeper_jars().class_path)

    _make_jars(tmp_path / "java", DEBIAN)
    monkeypatch.setattr(zookeeper_server, "_DEBIAN_FOLDER", tmp_path / "java")

    assert "libzookeeper-java" == find_zookeeper_jars().origin
    assert [*DEBIAN] == _names(find_zookeeper_jars().class_path)

    _make_jars(tmp_path / "home", DEBIAN)
    monkeypatch.setenv("ZOOKEEPER_HOME", str(tmp_path / "home"))

    assert find_zookeeper_jars().origin.startswith("ZOOKEEPER_HOME")
    assert str(tmp_path / "java") == find_zookeeper_jars(tmp_path / "java").origin


@pytest.mark.parametrize("missing", DEBIAN[:5])
def test_a_place_without_one_of_them(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused if it was named, and passed over otherwise: the process would never serve."""
    _make_jars(tmp_path / "jars", tuple(name for name in DEBIAN if name != missing))
    monkeypatch.setattr(zookeeper_server, "_DEBIAN_FOLDER", tmp_path / "jars")

    with pytest.raises(InvalidArgument, match=r"jars: no jars of ZooKeeper, here or in lib"):
        find_zookeeper_jars(tmp_path / "jars")
    with pytest.raises(MissingDependency, match="libzookeeper-java, or pip install pyspark"):
        find_zookeeper_jars()


def test_a_logger_is_not_needed(tmp_path: Path) -> None:
    """Without one the process prints that once, and serves."""
    _make_jars(tmp_path / "jars", DEBIAN[:5])

    assert [*DEBIAN[:5]] == _names(find_zookeeper_jars(tmp_path / "jars").class_path)
