"""Pictures of README and lab page: those that are kept are those of the kept results."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.paths import ROOT
from tools import pictures

pytest.importorskip("matplotlib")
DOCS = ROOT / "docs"


@pytest.mark.parametrize("name", pictures.EXPERIMENTS)
def test_pictures_are_those_of_the_results(name: str) -> None:
    """Whoever changes the drawing or a result makes the pictures anew."""
    drawn = pictures.draw_experiment(name, DOCS / "figures")

    assert [f"{name}.svg", f"{name}-narrow.svg"] == list(drawn)
    for file_name, content in drawn.items():
        assert content == (DOCS / "images" / file_name).read_bytes(), file_name


def test_only_new_pictures_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names of the others are not printed."""
    (tmp_path / "images").mkdir()
    (tmp_path / "figures").mkdir()
    shutil.copy(pictures.result_path("layouts", DOCS / "figures"), tmp_path / "figures")
    shutil.copy(DOCS / "images" / "layouts.svg", tmp_path / "images")

    assert 0 == pictures.main(["layouts", "--docs", str(tmp_path)])
    assert "layouts-narrow.svg is new\n" == capsys.readouterr().err
    assert 0 == pictures.main(["layouts", "--docs", str(tmp_path)])
    assert "" == capsys.readouterr().err


def test_screens_of_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture has the pixels of its screen, also where Chromium's window is wider."""
    image = pytest.importorskip("PIL.Image")
    windows = {}

    def run(command: list[str], folder: str) -> None:
        options = dict(word[2:].split("=", 1) for word in command if word.startswith("--s"))
        if "screenshot" in options:
            width, height = map(int, _option(command, "window-size").split(","))
            factor = float(_option(command, "force-device-scale-factor"))
            windows[Path(options["screenshot"]).name] = width, height
            size = round(width * factor), round(height * factor)
            image.new("RGB", size, "white").save(options["screenshot"])

    monkeypatch.setattr(pictures, "_run", run)
    monkeypatch.setattr("shutil.which", lambda name: name)
    (tmp_path / "images").mkdir()
    assert 0 == pictures.main(["report", "--docs", str(tmp_path)])

    assert {"report.png": (1280, 920), "report-narrow.png": (500, 1062)} == windows
    sizes = {}
    for path in (tmp_path / "images").iterdir():
        with image.open(path) as picture:
            sizes[path.name] = picture.size
    assert {"report.png": (1920, 1380), "report-narrow.png": (840, 2124)} == sizes


def _option(command: list[str], name: str) -> str:
    (value,) = (word.partition("=")[2] for word in command if word.startswith(f"--{name}="))
    return value


def test_without_chromium(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named, before the demo runs."""
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(pictures, "_run", None)

    assert 2 == pictures.main(["report", "--docs", str(tmp_path)])
    assert "no chromium on PATH" in capsys.readouterr().err


def test_a_failure_has_its_last_line(tmp_path: Path) -> None:
    """The program and what it printed last are named."""
    with pytest.raises(Exception, match=r"^sh ended with 3: why$"):
        pictures._run(["sh", "-c", "echo first; echo why; exit 3"], str(tmp_path))


def test_an_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    """The known ones are named."""
    with pytest.raises(SystemExit, match="2"):
        pictures.main(["layout"])
    assert "layout: not of layouts, deletes, losses, report" in capsys.readouterr().err
