"""How the real BookKeeper is found; these run without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.class_path import class_path, missing

NAMES = ("BOOKKEEPER_CLASSPATH", "BOOKKEEPER_HOME", "JAVA_HOME")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def test_class_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """BOOKKEEPER_CLASSPATH is a class path or a file with one, and goes before BOOKKEEPER_HOME."""
    (tmp_path / "CLASSPATH").write_text("/a/classes:/b.jar\n")
    (tmp_path / "one.jar").write_bytes(b"PK")
    monkeypatch.setenv("BOOKKEEPER_HOME", str(tmp_path))
    given = {
        str(tmp_path / "CLASSPATH"): "/a/classes:/b.jar",
        str(tmp_path / "one.jar"): str(tmp_path / "one.jar"),
        "/a:/b.jar": "/a:/b.jar",
    }
    for text, expected in given.items():
        monkeypatch.setenv("BOOKKEEPER_CLASSPATH", text)

        assert expected == class_path.__wrapped__()


def test_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a distribution the jars in lib are taken; a folder without any is no distribution."""
    monkeypatch.setenv("BOOKKEEPER_HOME", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="no lib/"):
        class_path.__wrapped__()
    (tmp_path / "lib").mkdir()
    for name in ("b.jar", "a.jar", "notes.txt"):
        (tmp_path / "lib" / name).write_bytes(b"")

    assert f"{tmp_path}/lib/a.jar:{tmp_path}/lib/b.jar" == class_path.__wrapped__()


def test_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a BookKeeper or a JDK the reason names what to set."""
    assert "set BOOKKEEPER_CLASSPATH or BOOKKEEPER_HOME" in missing.__wrapped__()

    monkeypatch.setenv("BOOKKEEPER_HOME", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert "no JDK: set JAVA_HOME" in missing.__wrapped__()
