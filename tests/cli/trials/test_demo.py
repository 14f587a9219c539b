"""`bkstore demo`: the whole road, and that its own check can fail."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from bkstore.cli.main import main
from bkstore.cli.screen.text_width import width
from bkstore.cli.trials import demo
from bkstore.cli.trials.demo_data import make_cluster
from bkstore.cluster.store.opening import open_metadata
from bkstore.errors import MissingDependency
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.storage.read_only.bookie_dir import BookieDir

Capsys = pytest.CaptureFixture[str]

SHORT = "c0ffee00\N{HORIZONTAL ELLIPSIS}456789ab"
ESCAPES = re.compile(r"\x1b\[[?\d;]*[A-Za-z]|\r")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        """Return True."""
        return True


def _widest(out: str) -> int:
    """Return the cells of the widest line of what was printed, but for the report's path."""
    lines = [line for line in out.splitlines() if not line.startswith("6. Report: ")]
    return max(width(ESCAPES.sub("", line)) for line in lines)


def test_the_cluster_is_what_it_says(tmp_path: Path) -> None:
    """Each bookie has its storage, and lacks exactly what the demo says was lost."""
    made = make_cluster(tmp_path)
    store = open_metadata(made.metadata)
    layouts = []
    for name, path in made.bookies.items():
        with BookieDir(path) as bookie:
            layouts.append(bookie.layout)
            for ledger in store.ledgers():
                metadata = store.read(ledger).metadata
                size, quorum = metadata.ensemble_size, metadata.write_quorum_size
                index = metadata.segments[0].ensemble.index(name)
                due = {e for e in range(3000) if (index - e) % size < quorum}
                held = set(bookie.index.entries(ledger).tolist())

                assert made.lost.get((ledger, name), set()) == due - held
                assert held <= due
            assert made.orphan in bookie.index.ledgers()

    assert ["idx", "idx", "rocksdb"] == layouts
    assert made.orphan not in store.ledgers()
    assert 7 == len(store.ledgers())


@pytest.mark.spark
@pytest.mark.timeout(900)  # Spark starts slowly where others work: minutes on a third of a core
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_whole_road(tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit and Spark find what was lost, and the report's path comes last. That Spark takes
    a while is said before it starts, and a bar moves while it does."""
    pytest.importorskip("pyspark")
    monkeypatch.chdir(tmp_path)
    bar = Terminal()
    monkeypatch.setattr(sys, "stderr", bar)
    code = main(["demo"])
    out = capsys.readouterr().out
    page = (tmp_path / "bkstore-demo.html").read_text(encoding="utf-8")

    assert 0 == code
    assert "The audit found all 3307 lost replicas of 6 places, and no others." in out
    assert "Spark found all 3307 lost replicas of 6 places, and no others." in out
    assert f"6. Report: {tmp_path / 'bkstore-demo.html'}" == out.splitlines()[-1]
    assert "5. Asking Spark, which takes about a minute" in out
    assert "Spark starts" in bar.getvalue()
    assert "Data lost" in page
    assert "(persistent://shop/orders/paid lost 77 entries)" in page
    assert "c0ffee00feed4bad9e550123456789ab" in page


def _small(folder: Path) -> None:
    with HierarchicalIndex(folder, writable=True) as index:
        index.put_many(7, [0, 1, 3], [1028, 1100, 1200])


def test_a_directory_of_ones_own(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--bookie goes the road on a given directory, without audit; nothing is judged. What is asked
    does not hang on the engine, so it is the one that starts at once."""
    pytest.importorskip("duckdb")
    monkeypatch.chdir(tmp_path)
    _small(tmp_path / "b")
    code = main(["demo", "--engine", "local", "--bookie", "b", "--report", "page.html"])
    out, err = capsys.readouterr()

    assert (0, "") == (code, err), out
    page = (tmp_path / "page.html").read_text(encoding="utf-8")

    assert "b (idx): 1 ledger\n" in out
    assert "Auditing" not in out
    steps = [line[:2] for line in out.splitlines() if line[1:2] == "."]
    assert ["1.", "2.", "3.", "4."] == steps
    assert "Not judged" in page


def test_without_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where Spark is not there, the demo says so and goes the whole road with DuckDB."""
    pytest.importorskip("duckdb")
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.chdir(tmp_path)
    code = main(["demo"])
    out = capsys.readouterr().out

    assert 0 == code
    assert "5. Asking DuckDB, without Spark: pyspark is not installed" in out
    assert "DuckDB found all 3307 lost replicas of 6 places, and no others." in out
    assert f"6. Report: {tmp_path / 'bkstore-demo.html'}" == out.splitlines()[-1]
    assert _widest(out) <= 100


@pytest.mark.parametrize("columns", [80, 120])
def test_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """No line is wider than the terminal, no hint names an option that demo has not, and the page
    names no folder that is gone."""
    pytest.importorskip("duckdb")
    out, err = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm-256color")
    code = main(["demo", "--engine", "local", "--report", str(tmp_path / "page.html")])
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    said = out.getvalue() + err.getvalue()

    assert 0 == code
    assert 70 < _widest(out.getvalue()) <= columns
    assert SHORT in said
    assert not re.search(r"--(wide|columns|format)", said)
    assert "\x1b[2K" in err.getvalue()  # bars, which show what a quick analysis leaves time for
    assert "cluster/bookie-1 of the demo, removed at its end" in page
    assert "bkstore-demo-" not in page


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("bookie-1/current", "bookie-1"),
        ("rack 2/10.0.0.7:3181", "10.0.0.7-3181"),
        ("\u66f8", "bookie"),
    ],
)
def test_a_report_for_each_bookie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, name: str
) -> None:
    """A given directory's report has the bookie's name, in its file name as in its title, and
    leaves that of the demo's own data alone."""
    pytest.importorskip("duckdb")
    monkeypatch.chdir(tmp_path)
    top = tmp_path / folder
    _small(top.parent if top.name == "current" else top)
    Path("bkstore-demo.html").write_text("before")
    code = main(["demo", "--engine", "local", "--bookie", folder])
    page = Path(f"bkstore-demo-{name}.html").read_text(encoding="utf-8")
    title = Path(folder.removesuffix("/current")).name

    assert 0 == code
    assert "before" == Path("bkstore-demo.html").read_text()
    assert f"<h1>Bookie {title}</h1>" in page


def test_without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark without Java is Spark that is not there: DuckDB is chosen, and the reason said."""
    pytest.importorskip("pyspark")

    def nowhere() -> None:
        raise MissingDependency("Spark needs Java 17 or newer")

    monkeypatch.setattr(demo, "require_java", nowhere)
    chosen = demo._choose_engine("auto")

    assert ("DuckDB", "DuckDB, without Spark: Spark needs Java 17 or newer") == chosen
    assert ("DuckDB", "DuckDB") == demo._choose_engine("local")
    with pytest.raises(MissingDependency, match="needs Java"):
        demo._choose_engine("spark")


def test_what_is_missing_is_said_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All packages that are missing are named in one line, before anything is made."""
    for name in ("pyspark", "duckdb", "matplotlib"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.chdir(tmp_path)
    code = main(["demo"])
    out, err = capsys.readouterr()

    assert (2, "") == (code, out)
    assert [] == list(tmp_path.iterdir())
    assert (
        "bkstore: demo without Spark needs duckdb and matplotlib: "
        "pip install 'duckdb>=1.4' 'pyarrow>=18' 'jinja2>=3.1' 'matplotlib>=3.9'\n"
    ) == err


def test_the_check_can_fail(capsys: Capsys) -> None:
    """What was not found, or found and not lost, is told, and counts."""
    lost: Any = {("ledger", "b1"): {1, 2}}

    assert demo._compare_with_lost("Spark", {("ledger", "b1"): {1, 2}}, lost)  # type: ignore[dict-item]
    assert not demo._compare_with_lost("Spark", {}, lost)
    assert not demo._compare_with_lost("Spark", {("ledger", "b1"): {1}}, lost)  # type: ignore[dict-item]
    assert "Spark found {}" in capsys.readouterr().out
