"""Reading a `bk_server.conf`: the files that it includes, its environment, what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bkstore import BookieDir, CorruptionError, InvalidArgument, UnsupportedLayout
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.storage.directories.conf_directories import configured_directories
from bkstore.storage.directories.server_conf import flatten_server_conf, read_server_conf


def _write(folder: Path, **texts: str) -> Path:
    """Write ``a`` to ``a.conf`` and so on, ``sub_a`` to ``sub/a.conf``; return the first."""
    paths = [folder / f"{name.replace('_', '/')}.conf" for name in texts]
    for path, text in zip(paths, texts.values()):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text.encode("iso-8859-1"))
    return paths[0]


def test_included_files(tmp_path: Path) -> None:
    """Included files stand where they are named; their own are beside themselves."""
    conf = _write(
        tmp_path,
        top="a=1\nInclude = sub/b.conf\nincludeOptional: none.conf\na=4\nincludeoptional=c.conf",
        sub_b="a=2\ninclude c.conf",
        sub_c="a=3\nb=${a}",
        c="a=5\\",
    )
    found = read_server_conf(conf)

    assert ["1", "2", "3", "4"] == found.strings("a")
    assert {"a", "b"} == set(found)


def test_names_of_included_files(tmp_path: Path) -> None:
    """A name may be absolute and have variables; a comma is part of it."""
    conf = _write(tmp_path, top="", sub_b="b=1")
    (tmp_path / "b, c.conf").write_text("c=2")
    conf.write_text(f"dir={tmp_path}/sub\ninclude=${{dir}}/b.conf\ninclude=b, c.conf")
    found = read_server_conf(conf)

    assert ("1", "2") == (found.string("b", None), found.string("c", None))


def test_a_file_that_is_included_twice(tmp_path: Path) -> None:
    """A file may be included twice; upstream refuses one that another includes again, behind a
    file that it was included by."""
    assert ["1", "1"] == read_server_conf(
        _write(tmp_path, top="include=b.conf\ninclude=b.conf", b="a=1")
    ).strings("a")
    again = _write(
        tmp_path, top="include=a.conf", a="include=b.conf\ninclude=d.conf", b="", d="include=b.conf"
    )
    with pytest.raises(
        UnsupportedLayout, match=r"d\.conf: includes .*b\.conf, which is already being"
    ):
        read_server_conf(again)


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ("journalDirectories=/a,/b\njournalDirectory=/c", ["/a", "/b"]),
        ("journalDirectory=/c,/d", ["/c"]),
        ("journalDirectories=\njournalDirectory=/c", ["/c"]),
        ("", []),
    ],
)
def test_names_of_journals(tmp_path: Path, names: str, found: list[str]) -> None:
    """The older key names one journal, and only where the newer one names none."""
    conf = _write(tmp_path, a=f"ledgerDirectories=/l\n{names}")

    assert [Path(name) for name in found] == configured_directories(conf)["journal"]


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        ({"a": "include=none.conf"}, r"a\.conf: includes .*none\.conf, which does not exist"),
        ({"a": "include="}, "which is already being read"),
        ({"a": "include=a.conf"}, "which is already being read"),
        ({"a": "include=b.conf", "b": "include=a.conf"}, "which is already being read"),
        ({"a": "includeOptional=b.conf", "b": "include=none.conf"}, r"b\.conf: includes"),
        ({"a": "include=https://example/b.conf"}, "which is not a file path"),
        ({"a": "x=${x}\ninclude=${x}.conf"}, "refers to itself"),
        ({"a": "include=a\\u0000"}, "which is not a file path"),
        ({"a": "x=\0"}, r"not a bk_server\.conf"),
    ],
)
def test_refused_files(tmp_path: Path, texts: dict[str, str], why: str) -> None:
    """What is not there, includes itself or is no file is refused by name."""
    with pytest.raises(UnsupportedLayout, match=why):
        read_server_conf(_write(tmp_path, **texts))


def test_a_chain_of_files(tmp_path: Path) -> None:
    """So many files do not include each other by intention."""
    _write(tmp_path, **{f"f{n}": f"include=f{n + 1}.conf" for n in range(102)})
    with pytest.raises(UnsupportedLayout, match="more than 100 files"):
        read_server_conf(tmp_path / "f0.conf")


def test_damage_names_the_file_that_has_it(tmp_path: Path) -> None:
    """An escape that is none is reported with the file that it is in, and its offset."""
    conf = _write(tmp_path, a="x=1\ninclude=b.conf", b="y=2\nz=\\u00g0")
    with pytest.raises(CorruptionError, match=r"b\.conf: offset 4: "):
        read_server_conf(conf)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    """A folder is not included."""
    with pytest.raises(CorruptionError, match="is a folder"):
        read_server_conf(_write(tmp_path, a="include=sub", sub_b=""))


def test_looked_up_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment is this process's; a JVM's own properties and look-ups are refused."""
    monkeypatch.setenv("BKSTORE_TEST_PLACE", "/here")
    conf = read_server_conf(
        _write(
            tmp_path,
            a="a=${env:BKSTORE_TEST_PLACE}/x\nb=${sys:user.dir}\nc=${sys:bookie.data}\nd=${date:y}",
        )
    )
    assert ("/here/x", os.getcwd()) == (conf.string("a", None), conf.string("b", None))
    for key in ("c", "d"):
        with pytest.raises(InvalidArgument, match=f"{key}: .*replace it by its value"):
            conf.string(key, None)


FORMS = {
    "colon": "ledgerDirectories : {0},{1}",
    "space": "ledgerDirectories {0}, {1}",
    "continued": "ledgerDirectories={0},\\\n   # not this\n  {1}",
    "twice": "ledgerDirectories={0}\nledgerDirectories={1}",
    "variables": "base={0}\nledgerDirectories=${{base}},{1}",
    "escapes": "ledger\\u0044irectories={0}\\\n,{1}",
    "included": "include=inc.conf",
}


@pytest.mark.parametrize("form", FORMS)
def test_directories_in_every_syntax(tmp_path: Path, form: str) -> None:
    """Reading commands find the directories of a conf in whatever form it names them."""
    places = [tmp_path / "one", tmp_path / "two"]
    for ledger, place in enumerate(places):
        with HierarchicalIndex(place, writable=True) as index:
            index.put_many(ledger, [0], [1028])
    conf = _write(
        tmp_path,
        conf=FORMS[form].format(*places),
        inc=FORMS["space"].format(*places),
    )
    with BookieDir(conf) as bookie:
        assert [place / "current" for place in places] == bookie.folders.ledger
        assert [0, 1] == [ledger.ledger for ledger in bookie.index.ledgers()]


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ("/a,", "a directory with an empty name"),  # would be where the bookie was started
        ("/a\\u0000b", "which is not a directory path"),
        ("${ledgerDirectories}", "ledgerDirectories: a variable refers to itself"),
        ("${sys:data}", "replace it by its value"),
    ],
)
def test_names_that_are_no_directories(tmp_path: Path, names: str, why: str) -> None:
    """What names no directory is refused with the conf's own name."""
    with pytest.raises(UnsupportedLayout, match=rf"a\.conf: .*{why}"):
        BookieDir(_write(tmp_path, a=f"ledgerDirectories={names}"))


@pytest.mark.parametrize("last", ["", "\n"])
@pytest.mark.parametrize("included", ["a=2\nd=lost\\", "a=2"])
def test_flat(tmp_path: Path, last: str, included: str) -> None:
    """A flat conf is the same with the included files in it, but for a key that is left out."""
    conf = _write(
        tmp_path,
        a=f"# first\na=1\nindexDirectories : /x,\\\n # of it\n /y\ninclude=b.conf\nc=4{last}",
        b=included,
    )
    flat = tmp_path / "flat.conf"
    flat.write_bytes(flatten_server_conf(conf, "indexDirectories"))
    found = read_server_conf(flat)

    assert {"a": ["1", "2"], "c": ["4"]} == {key: found.strings(key) for key in found}
    assert b"# first\na=1\n" == flat.read_bytes()[:12]
