"""Dumps that are named by URIs: the same answers, and clear refusals.

Other file systems here: pyarrow's of this machine's files by the scheme ``local``, and fsspec's in
memory, which pyarrow does not know.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from bkstore import CorruptionError, InvalidArgument
from bkstore.cli.main import main
from bkstore.errors import MissingDependency
from bkstore.offline import analyses
from bkstore.offline.analyses import ANALYSES, Inputs, LocalEngine
from bkstore.offline.diff import DumpSide
from bkstore.offline.dump import dump
from bkstore.offline.load import load
from bkstore.offline.reading.dump_folder import DumpFolder
from tests.worlds.random_dumps import later_dump, random_dump, write_dump

pytest.importorskip("pyarrow")
pytest.importorskip("fsspec")

ENGINE = LocalEngine(threads=1)
NAMES = ("violations", "holes", "sequences", "comparison", "bytes_by_bookie")


@pytest.fixture(scope="module")
def dumped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Any]:
    """Return a dump, a later one and metadata."""
    top = tmp_path_factory.mktemp("remote")
    world = random_dump(6)
    later = later_dump(world, 6)
    return write_dump(world, top / "dump"), write_dump(later, top / "later"), world.store()


def uri(path: Path) -> str:
    """Return the path as a URI of pyarrow's."""
    return f"local://{path}"


def in_memory(path: Path) -> str:
    """Return the URI of a copy in fsspec's memory."""
    import fsspec

    memory = fsspec.filesystem("memory")
    if not memory.exists(str(path)):
        memory.put(str(path), str(path), recursive=True)
    return f"memory://{path}"


@pytest.mark.parametrize("named", [uri, in_memory, Path.as_uri], ids=["pyarrow", "fsspec", "file"])
def test_analyses_of_a_uri(named: Any, dumped: tuple[Path, Path, Any]) -> None:
    """Each analysis of a URI has the rows of the path's."""
    here, later, store = dumped
    expected = analyses.open_inputs(here, store, later)
    found = analyses.open_inputs(named(here), expected.metadata, named(later))

    assert uri(here) == analyses.open_dump(uri(here) + "/").path
    for each in map(analyses.find_analysis, NAMES):
        assert ENGINE.run(each, expected).equals(ENGINE.run(each, found)), each.name


def test_unsorted_files_of_a_uri(dumped: tuple[Path, Path, Any], tmp_path: Path) -> None:
    """So have files that do not say their order, which are sorted first."""
    loose = in_memory(write_dump(random_dump(6), tmp_path / "dump", 2, ordered=False))
    for name in ("sequences", "fragmentation"):
        expected = ENGINE.run(ANALYSES[name], Inputs(analyses.open_dump(dumped[0])))
        found = ENGINE.run(ANALYSES[name], Inputs(analyses.open_dump(loose)))

        assert expected.equals(found)


def test_a_load_and_a_comparison(tmp_path: Path) -> None:
    """A bookie is loaded from a URI, and compared with it; nothing is written to one."""
    from bkstore.index.hierarchical import HierarchicalIndex

    with HierarchicalIndex(tmp_path / "b", writable=True) as index:
        index.put_many(7, [0, 1, 3], [1028, 1100, 1200])
    dump([tmp_path / "b"], tmp_path / "dump")
    result = load(uri(tmp_path / "dump"), tmp_path / "out", "rocksdb")

    assert (3, True) == (result.rows, result.compared)
    assert [7] == [held.ledger.ledger for held in DumpSide(uri(tmp_path / "dump")).ledgers()]
    for place in ("s3://bucket/out", Path("s3://bucket/out")):
        with pytest.raises(
            InvalidArgument, match="is a URI; an index can be written to a local path"
        ):
            load(tmp_path / "dump", place)
        with pytest.raises(
            InvalidArgument, match="is a URI; a dump can be written to a local path"
        ):
            dump([tmp_path / "b"], place)
    (tmp_path / "dump" / "manifest.json").unlink()
    with pytest.raises(InvalidArgument, match=r"manifest\.json; without it only"):
        load(uri(tmp_path / "dump"), tmp_path / "out", "rocksdb")


def test_commands_take_uris(
    dumped: tuple[Path, Path, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`bkstore analyze` prints of a URI what it prints of the path; what it writes is a path."""
    outputs = []
    for place in (str(dumped[0]), uri(dumped[0]), dumped[0].as_uri()):
        assert main(["analyze", place, "--only", "sequences", "--format", "csv"]) == 1
        outputs.append(capsys.readouterr().out)

    assert outputs[0] == outputs[1] == outputs[2] != ""
    for option in ("--out", "--report"):
        assert main(["analyze", uri(dumped[0]), option, "s3://bucket/there"]) == 2
        assert "is a URI" in capsys.readouterr().err
    assert main(["load", "s3:/bucket/dump", str(tmp_path / "out"), "--to", "idx"]) == 2
    assert "two slashes" in capsys.readouterr().err


def test_places_that_are_no_dumps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheme that nobody knows, a folder that is not there, one that is no dump, a file, and
    a package that is missing are told in one line.
    """
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    cases = (
        ("no-such://x/dump", InvalidArgument, "no-such://x/dump: Protocol not known"),
        ("local:/x/dump", InvalidArgument, "with two slashes"),
        (uri(tmp_path / "none"), InvalidArgument, "none: no such directory"),
        (
            uri(tmp_path / "folder"),
            InvalidArgument,
            r"folder: not a dump: it has no manifest\.json",
        ),
        (uri(tmp_path / "file"), InvalidArgument, "file: is not a directory, as a dump must be"),
        (f"memory://{tmp_path}/none", InvalidArgument, "none: no such directory"),
        ("oci://bucket/dump", MissingDependency, "files of oci: .*ocifs"),
    )
    for place, kind, reason in cases:
        with pytest.raises(kind, match=reason) as caught:
            analyses.open_dump(place)

        assert 1 == len(str(caught.value).splitlines())
    monkeypatch.setitem(__import__("sys").modules, "fsspec.core", None)
    with pytest.raises(MissingDependency, match=r"files of memory:.* need fsspec"):
        analyses.open_dump(f"memory://{tmp_path}")


def test_a_manifest_that_is_too_long_or_leaves(
    dumped: tuple[Path, Path, Any], tmp_path: Path
) -> None:
    """Of a URI, too, a text is not read beyond its bound, and no file outside of the dump."""
    made = shutil.copytree(dumped[0], tmp_path / "dump")
    folder = DumpFolder(uri(made))
    with pytest.raises(CorruptionError, match="longer than the limit of 10 bytes"):
        folder.read("manifest.json", 10)
    for said in ("../x", "/x", "a//b", 7):
        with pytest.raises(CorruptionError, match="is not a path in the dump"):
            folder.locate_file(said, "manifest.json")
    for name in ("dump?region=x", "dump"):
        place = DumpFolder.__new__(DumpFolder)
        place.is_remote, place.location = True, f"s3://bucket/{name}"

        assert f"s3://bucket/{name.replace('dump', 'dump/groups/x', 1)}" == place.locate("groups/x")


def test_files_are_looked_at_where_they_are_used(
    dumped: tuple[Path, Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening a dump reads its manifest and no other file; an analysis looks at the footers of
    its own tables, once.
    """
    from bkstore.offline.reading import open_dump

    made = shutil.copytree(dumped[0], tmp_path / "dump")
    shutil.rmtree(made / "entries")
    opened = analyses.open_dump(made)
    seen: list[str] = []
    real = open_dump.check_file
    monkeypatch.setattr(open_dump, "check_file", lambda file: seen.append(file.path) or real(file))
    for _ in range(2):
        ENGINE.run(ANALYSES["bytes_by_bookie"], Inputs(opened))
    tables = {Path(path).parent.name for path in seen}

    assert {"ledgers", "entry_logs", "log_ledgers", "findings"} == tables
    assert len(seen) == len(set(seen))
    with pytest.raises(CorruptionError, match=r"entries.*cannot be read: No such file"):
        ENGINE.run(ANALYSES["sequences"], Inputs(opened))
