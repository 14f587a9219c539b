"""`serve CONF --create`: a new bookie lies where its `bk_server.conf` says."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkstore.cli.main import main
from bkstore.formats import cookie
from bkstore.storage.bookie import Bookie
from bkstore.storage.directories import conf_directories
from bkstore.storage.directories.directory_cookies import OwnedDirectories
from bkstore.wire import v2
from bkstore.wire.status_codes import Status
from tests.storage.directories.served_confs import served
from tests.wire.server.peer import Peer, add

TREE = "ledgerDirectories : {0}/l1, \\\n  {0}/l2\njournalDirectories {0}/j\n"


def _conf(folder: Path, text: str = TREE) -> Path:
    (folder / "conf").mkdir()
    path = folder / "conf" / "bk_server.conf"
    path.write_text(text.format(folder / "disks"))
    return path


def _currents(folder: Path) -> list[str]:
    return sorted(str(path.parent.relative_to(folder)) for path in folder.glob("**/current"))


def test_create(tmp_path: Path) -> None:
    """Its directories are made where the conf says, and it is served from there again."""
    conf = _conf(tmp_path)
    with served(conf, "--create", "--port", "0") as bookie, Peer(bookie.address) as peer:
        assert peer.ask(add(7, 0))[0].status is Status.EOK
    assert ["disks/j", "disks/l1", "disks/l2"] == _currents(tmp_path)
    written = cookie.decode((tmp_path / "disks/j/current/VERSION").read_bytes())

    assert tuple(str(tmp_path / "disks" / name) for name in ("l1", "l2")) == written.ledger_dirs
    for words in ((), ("--create",)):
        with served(conf, *words, "--port", "0") as bookie, Peer(bookie.address) as peer:
            assert peer.ask(v2.ReadRequest(7, 0))[0].status is Status.EOK


def test_nothing_is_made_unasked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without --create a conf without directories is refused, and none is made."""
    conf = _conf(tmp_path)

    assert main(["serve", str(conf), "--port", "0"]) == 2
    said = capsys.readouterr().err
    assert f"none of its directories exists, such as {tmp_path / 'disks' / 'l1'}; --create" in said
    assert [] == _currents(tmp_path)


def test_a_disk_that_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One directory that is missing among others is not made, with --create neither."""
    conf = _conf(tmp_path)
    Bookie.open(conf).close()
    (tmp_path / "disks" / "l2").rename(tmp_path / "elsewhere")

    assert main(["serve", str(conf), "--create", "--port", "0"]) == 2
    assert f"names {tmp_path / 'disks' / 'l2'}, which has no current/ here" in (
        capsys.readouterr().err
    )


def test_copies_are_not_written_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Directories of the same names beside the conf are another bookie's, or a copy to be read."""
    conf = _conf(tmp_path)
    Bookie.open(conf).close()
    (tmp_path / "disks").rename(tmp_path / "conf" / "copied")

    assert main(["serve", str(conf), "--port", "0"]) == 2
    assert "none of its directories exists" in capsys.readouterr().err
    Bookie.open(conf).close()
    assert ["disks/j", "disks/l1", "disks/l2"] == _currents(tmp_path)[-3:]


def test_a_first_start_that_was_interrupted(tmp_path: Path) -> None:
    """A bookie that has stored nothing may lack directories: they are made by the next start."""
    conf = _conf(tmp_path)
    (tmp_path / "disks" / "l1" / "current").mkdir(parents=True)
    with Bookie.open(conf) as bookie:
        assert ("disks", 3) == (bookie.bookie_id, len(_currents(tmp_path)))


def test_the_journal_of_a_conf_that_names_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is where BookKeeper has it by default, then where the cookie says."""
    monkeypatch.setattr(conf_directories, "_DEFAULT_JOURNAL", str(tmp_path / "default"))
    conf = _conf(tmp_path, "ledgerDirectories={0}/l1\n")
    Bookie.open(conf).close()

    assert ["default", "disks/l1"] == _currents(tmp_path)
    monkeypatch.setattr(conf_directories, "_DEFAULT_JOURNAL", str(tmp_path / "other"))
    assert [tmp_path / "default" / "current"] == OwnedDirectories.of_path(conf).journal
