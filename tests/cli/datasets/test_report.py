"""`bkstore report`: the page on directories or a dump in one step, its exit codes, its refusals."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest

from bkstore.cli.main import main
from bkstore.cluster import MemoryStore
from bkstore.cluster.store.dump_store import snapshot
from bkstore.formats.metadata.json_file import encode_file
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.ledger_metadata import LedgerMetadata

for _package in ("duckdb", "matplotlib", "jinja2"):
    pytest.importorskip(_package)

Capsys = pytest.CaptureFixture[str]


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with bookies b1 and b2, which lacks entry 3 of ledger 7, and metadata."""
    for name, entries in {"b1": [0, 1, 2, 3, 4], "b2": [0, 1, 2, 4]}.items():
        with HierarchicalIndex(tmp_path / name, writable=True) as index:
            index.put_many(7, entries, [1028 + 100 * entry for entry in entries])
    _write_metadata(tmp_path / "metadata.json", last_entry=4)
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _write_metadata(path: Path, last_entry: int | None) -> None:
    """Write the metadata of ledger 7, closed at the given entry; of no ledger if that is None."""
    store = MemoryStore()
    if last_entry is not None:
        made = LedgerMetadata(
            7, 2, 2, 1, [(0, ["b1", "b2"])], state="CLOSED", last_entry_id=last_entry, length=9
        )
        store.create(made)
    path.write_bytes(encode_file(snapshot(store)))


def _page(top: Path) -> str:
    return (top / "r.html").read_text(encoding="utf-8")


def _visible(page: str) -> str:
    """Return the page's text, without marks."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))


def _is_clean(top: Path) -> bool:
    return not list((top / "scratch").iterdir())


def test_directories(top: Path, capsys: Capsys) -> None:
    """The page judges what the directories hold by the metadata; nothing else stays."""
    code = main(["report", "b1", "b2", "--metadata", "metadata.json", "-o", "r.html"])
    captured = capsys.readouterr()
    text = _visible(_page(top))

    assert (1, "") == (code, captured.out)
    assert "At risk: 1 ledger lacks some replicas." == captured.err.splitlines()[0]
    assert "report: r.html" == captured.err.splitlines()[-1]
    assert "Bookies b1 and b2" in text
    assert "Directories of 2 bookies; read at " in text
    assert "ledger metadata: metadata.json" in text
    assert "1 ledger lacks some replicas" in text
    assert _is_clean(top)


def test_a_dump_gives_the_same_page(top: Path) -> None:
    """The page of a dump is that of its directories, but for the title and the line of sources."""
    command = ["--metadata", "metadata.json", "-o", "r.html"]
    main(["report", "b1", "b2", *command])
    by_directories = _page(top)
    main(["dump", "b1", "b2", "made"])

    assert 1 == main(["report", "made", *command])

    by_dump = _page(top)
    changes = [
        ("Bookies in made", "Bookies b1 and b2"),
        ("Dump of 2 bookies; made at", "Directories of 2 bookies; read at"),
    ]
    for of_dump, of_directories in changes:
        assert of_dump in by_dump
        by_dump = by_dump.replace(of_dump, of_directories)
    pages = [re.sub(r"\d{4}-\d\d-\d\dT[\d:+]*", "", page) for page in (by_dump, by_directories)]
    assert pages[0] == pages[1]


def test_names_and_titles(top: Path) -> None:
    """NAME=DIR gives an id; one bookie is named in the title, of many only the number."""
    main(["report", "one=b1", "-o", "r.html"])

    assert "<title>Bookie one</title>" in _page(top)

    main(["report", "one=b1", "two=b2", "three=b1", "-o", "r.html"])

    assert "<title>Bookies one, two and three</title>" in _page(top)

    main(["report", "one=b1", "two=b2", "three=b1", "four=b2", "-o", "r.html"])

    assert "<title>4 bookies</title>" in _page(top)


def test_compared_with_a_later_dump(top: Path) -> None:
    """--other adds the comparison: bookie b2 has got its entry back in the later dump."""
    with HierarchicalIndex(top / "later" / "b2", writable=True) as index:
        index.put_many(7, range(5), range(1028, 1033))
    main(["dump", "later/b2", "made"])
    main(["report", "b2", "--other", "made", "-o", "r.html"])

    assert "compared with a dump of 1 bookie" in _visible(_page(top))


def test_one_directory_cannot_be_read(top: Path, capsys: Capsys) -> None:
    """The others are on the page, which names it; so does one line, and the exit code is 1."""
    code = main(["report", "b1", "nowhere", "-o", "r.html"])
    lines = capsys.readouterr().err.splitlines()

    assert 1 == code
    assert 1 == sum("nowhere" in line for line in lines)
    assert any(line.startswith("Not all read: 1 of 2 bookies could not be read") for line in lines)
    assert "nowhere: no such directory" in _visible(_page(top))
    assert _is_clean(top)


def test_damage_is_on_the_page(top: Path, capsys: Capsys) -> None:
    """What could not be read of a directory is a row of the page's findings."""
    (file,) = (top / "b2").rglob("7.idx")
    file.write_bytes(file.read_bytes()[:100])
    code = main(["report", "b1", "b2", "-o", "r.html"])
    text = _visible(_page(top))

    assert 1 == code
    assert "damage:" in capsys.readouterr().err
    assert "7.idx" in text
    assert "Nothing unusual was found" not in text


def test_outputs_are_refused_before_directories_are_read(
    top: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    """Reading may take an hour: a folder that is missing is named at once."""
    monkeypatch.setattr("bkstore.offline.dump.dump", None)

    assert 2 == main(["report", "b1", "-o", "gone/r.html"])
    assert "gone" in capsys.readouterr().err


@pytest.mark.parametrize("last_entry", [2, None])
def test_sound_or_nothing_checked(top: Path, last_entry: int | None, capsys: Capsys) -> None:
    """Exit code 0 if all that is due is there, 3 if the metadata have no ledger to judge."""
    _write_metadata(top / "metadata.json", last_entry)
    code = main(["report", "b1", "b2", "--metadata", "metadata.json", "-o", "r.html"])
    lines = capsys.readouterr().err.splitlines()

    assert (3 if last_entry is None else 0) == code
    assert lines[0].startswith("Not judged: " if last_entry is None else "Sound: ")
    assert (last_entry is None) == any(line.startswith("nothing was checked") for line in lines)


REFUSALS = {
    "no directory": (["nowhere"], "nowhere: no such directory"),
    "a dump among directories": (["made", "b1"], "made: is a dump; give it alone"),
    "two dumps": (["made", "made"], "made: is a dump; give it alone"),
    "live": (["made", "--live"], "made is a dump, but --live is for directories"),
    "jobs": (["made", "--jobs", "2"], "made is a dump, but --jobs is for directories"),
    "no metadata": (["b1", "--metadata", "gone.json"], "gone.json"),
    "no other": (["b1", "--other", "gone"], "gone: no such directory"),
    "same names": (["b1", "b1"], "not distinct"),
    "no jobs": (["b1", "--jobs", "0"], "jobs"),
}


@pytest.mark.parametrize("case", REFUSALS.values(), ids=REFUSALS)
def test_refused(top: Path, case: tuple[list[str], str], capsys: Capsys) -> None:
    """One line and exit code 2; an earlier page is kept, and nothing is left behind."""
    main(["dump", "b1", "made"])
    (top / "r.html").write_text("earlier")
    words, reason = case
    capsys.readouterr()

    assert 2 == main(["report", *words, "-o", "r.html"])
    assert reason in capsys.readouterr().err
    assert "earlier" == _page(top)
    assert _is_clean(top)


@pytest.mark.parametrize("output", ["b1/r.html", "copy/b1/r.html", "made/r.html", "gone/r.html"])
def test_refused_outputs(top: Path, output: str, capsys: Capsys) -> None:
    """No page in a directory that is read, also one that a conf names; nor in a missing folder."""
    main(["dump", "b1", "made"])
    (top / "copy").mkdir()
    (top / "b1").rename(top / "copy" / "b1")
    (top / "copy" / "bk_server.conf").write_text("ledgerDirectories=/b1\njournalDirectory=/b1\n")
    (top / "b1").symlink_to("copy/b1")
    inputs = ["made"] if output.startswith("made") else ["copy/bk_server.conf"]
    inputs = ["b1"] if output.startswith("b1") else inputs
    before = sorted(top.rglob("*"))
    capsys.readouterr()

    assert 2 == main(["report", *inputs, "-o", output])
    assert output in capsys.readouterr().err
    assert before == sorted(top.rglob("*"))
