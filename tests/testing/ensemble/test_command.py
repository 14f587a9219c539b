"""`bkstore ensemble`: up in the background and in front, status, down, and what they refuse."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import sample
from unittest.mock import MagicMock

import pytest

pytest.importorskip("kazoo", reason="kazoo is not installed")

from bkstore.cli.main import main
from bkstore.errors import MissingDependency
from bkstore.spark import java as java_module
from bkstore.testing.ensemble import Ensemble
from bkstore.testing.ensemble.bookie_process import is_free
from bkstore.testing.ensemble.state_file import EnsembleState, StateFile
from bkstore.testing.zookeeper_server import find_zookeeper_jars
from tests.testing.ensemble.processes import alive, all_end

Capsys = pytest.CaptureFixture[str]


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Return the directory of an ensemble of one bookie that never ran; skip without Java."""
    try:
        Ensemble(tmp_path / "trial", 1, "db").close()
    except MissingDependency as error:
        pytest.skip(str(error))
    return tmp_path / "trial"


def _says(capsys: Capsys, code: int, *words: object) -> str:
    """Return what a command prints to standard error; its exit code is `code`."""
    capsys.readouterr()
    assert code == main(["ensemble", *map(str, words)])
    return capsys.readouterr().err


def _bookies(capsys: Capsys, code: int, place: Path) -> list[dict[str, object]]:
    capsys.readouterr()
    assert code == main(["ensemble", "status", "--dir", str(place), "--format", "json"])
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return found


def _lasting_port() -> int:
    """Return a free port that the system gives to nobody who asks for any port."""
    return next(port for port in sample(range(20_000, 32_000), 100) if is_free(port))


def test_up_and_down(made: Path, capsys: Capsys) -> None:
    """In the background it runs when the command returns, and prints its URI first; status has a
    row for each bookie; killed, nothing outlives it, and no other process is taken for it. Up
    again, in front, its URI has the last port, and it ends in order when down says so; what is
    removed is what it made."""
    place = str(made)
    (made / "thesis.txt").write_text("mine")

    assert 0 == main(["ensemble", "up", "--dir", place, "--detach"])
    shown = capsys.readouterr()
    uri, header, _, *rows = shown.out.splitlines()

    assert uri.startswith("zk+hierarchical://127.0.0.1:")
    assert ["bookie", "address", "pid", "storage", "log"] == header.split()
    assert ["bookie-1"] == [row.split()[0] for row in rows]
    assert shown.err.startswith(f"bkstore: ZooKeeper: {find_zookeeper_jars().origin}\n")
    assert f"bkstore ensemble down --dir {place} stops it" in shown.err
    state = json.loads((made / "ensemble.json").read_text())
    pids = [state["zookeeper_pid"], *(one["pid"] for one in state["bookies"])]
    assert [True, True] == [alive(pid) for pid in pids]
    words = subprocess.run(["ps", "-ww", "-o", "args=", "-p", str(pids[0])], capture_output=True)
    assert b"forceSync=no" not in words.stdout  # ZooKeeper waits for the disk
    assert b"ZooKeeperServerMain" in words.stdout
    (bookie,) = _bookies(capsys, 0, made)
    assert (uri, "writable", "db") == (bookie["uri"], bookie["state"], bookie["storage"])
    assert (pids[1], str(made / "bookie-1")) == (bookie["pid"], bookie["directory"])
    for words in (["up"], ["up", "--detach"]):
        said = _says(capsys, 2, *words, "--dir", place)
        assert f"trial: its ensemble is running (see bkstore ensemble status --dir {place})" in said

    os.kill(state["pid"], signal.SIGKILL)

    old_port, port = str(state["port"]), _lasting_port()
    assert f":{old_port}/" in uri
    assert all_end([state["pid"], *pids])
    assert [(None, "ended")] == [(one["pid"], one["state"]) for one in _bookies(capsys, 1, made)]
    with subprocess.Popen(["sleep", "600"]) as other:  # has the number of the process that ended
        try:
            state["pid"], state["port"] = other.pid, port
            (made / "ensemble.json").write_text(json.dumps(state))
            assert "was not running" in _says(capsys, 0, "down", "--dir", place)
            assert other.poll() is None
        finally:
            other.kill()

    command = [sys.executable, "-m", "bkstore", "ensemble", "up", "--dir", place]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as front:
        assert front.stdout is not None
        try:
            assert uri.replace(old_port, str(port)) == front.stdout.readline().strip()
            state = json.loads((made / "ensemble.json").read_text())
            said = _says(capsys, 0, "down", "--dir", place, "--remove")
            told = front.communicate(timeout=60)[1]
        finally:
            front.kill()

    assert 0 == front.returncode
    assert "stopping" in told
    assert all_end([state["zookeeper_pid"], *(one["pid"] for one in state["bookies"])])
    assert "as it has other files: thesis.txt" in said
    assert ["thesis.txt"] == [path.name for path in made.iterdir()]


def test_only_what_it_made_is_removed(made: Path, tmp_path: Path, capsys: Capsys) -> None:
    """A link in a bookie's place is not followed, nor removed; an empty directory goes."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("mine")
    (made / "bookie-1").symlink_to(mine)
    (made / "zookeeper.log").write_text("said")

    assert "trial is kept, as it has other files: bookie-1\n" in _says(
        capsys, 0, "down", "--dir", made, "--remove"
    )
    assert ["thesis.txt"] == [path.name for path in mine.iterdir()]
    assert "not an ensemble's directory" in _says(capsys, 2, "down", "--dir", made, "--remove")
    Ensemble(tmp_path / "other").close()
    assert "was not running" in _says(capsys, 0, "down", "--dir", tmp_path / "other", "--remove")
    assert not (tmp_path / "other").exists()


def test_another_program_is_not_stopped(made: Path, capsys: Capsys) -> None:
    """An ensemble that a Python program has is not `down`'s to stop, nor to remove."""
    ensemble = Ensemble(made)
    try:
        assert f"is run by process {os.getpid()}; stop it" in _says(
            capsys, 2, "down", "--dir", made, "--remove"
        )
        assert "its ensemble is running" in _says(capsys, 2, "up", "--dir", made)
    finally:
        ensemble.close()


def test_a_process_of_another_namespace(tmp_path: Path, capsys: Capsys) -> None:
    """The number that an ensemble's process has in another container, or on another machine that
    shares the directory, may be anybody's here: it is not signalled, and down says where to."""
    state = EnsembleState(command=True, namespace="another boot pid:[1]")
    file = StateFile(tmp_path)
    with subprocess.Popen(["sleep", "600"]) as other:
        try:
            file.write(replace(state, pid=other.pid))
            line = _says(capsys, 2, "down", "--dir", tmp_path)

            assert "runs in another container (PID namespace) or on another machine" in line
            assert f"as process {other.pid} there" in line
            assert other.poll() is None
        finally:
            file.close()
            other.kill()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("not json", "not JSON"),
        ('{"format": 2}', "not an ensemble's state in format 1"),
        ('{"format": 1, "bookies": 3}', "bookies is not a list"),
        ('{"format": 1, "bookies": [], "manager": "ms"}', "manager 'ms' is not one of"),
        ('{"format": 1, "bookies": [{"id": "../x"}], "manager": "flat"}', "is not a bookie id"),
        (
            '{"format": 1, "bookies": [], "manager": "flat", "pid": true}',
            "pid True is not a valid number",
        ),
        (
            '{"format": 1, "bookies": [], "manager": "flat", "namespace": 1}',
            "namespace 1 is not a string",
        ),
    ],
    ids=["text", "format", "bookies", "manager", "id", "pid", "namespace"],
)
def test_a_damaged_state_file(text: str, why: str, tmp_path: Path, capsys: Capsys) -> None:
    """A state file that says nonsense is told in one line by every command; nothing is done."""
    path = tmp_path / "ensemble.json"
    path.write_text(text)
    for words in (["up"], ["status"], ["down", "--remove"]):
        line = _says(capsys, 2, *words, "--dir", tmp_path)

        assert (f"bkstore: {path}: ", 1) == (line[: len(str(path)) + 11], line.count("\n"))
        assert why in line
    assert text == path.read_text()


def test_refusals(tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line each, and nothing is made: a directory of somebody else's, too few bookies, a port
    that is taken, no directory for the background; no Java, no pyspark, no kazoo."""
    mine, new = tmp_path / "mine", tmp_path / "new"
    mine.mkdir()
    (mine / "thesis.txt").write_text("mine")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        wrong = {
            "is not empty and not an ensemble's": ["up", "--dir", mine],
            "not an ensemble's directory (it has no ensemble.json)": ["status", "--dir", mine],
            "bookies must be a whole number, 1 to 100, not 0": ["up", "0"],
            f"port {port} is taken": ["up", "--port", port],
            "--detach needs --dir": ["up", "--detach"],
        }
        for why, words in wrong.items():
            assert why in _says(capsys, 2, *words)
    assert f"{new}: no such directory" in _says(capsys, 2, "down", "--dir", new)
    with pytest.raises(SystemExit, match="2"):
        main(["ensemble", "up", "--storage", "sorted,tape"])
    assert "unknown storage 'tape'" in capsys.readouterr().err
    assert ["thesis.txt"] == [path.name for path in mine.iterdir()]
    assert not new.exists()

    monkeypatch.setattr(java_module, "_installed_homes", list)
    monkeypatch.setattr(java_module, "_bundled_home", lambda: None)
    assert "ZooKeeper needs Java 17 or newer: set JAVA_HOME" in _says(capsys, 2, "up")
    monkeypatch.undo()
    code = "import sys; sys.modules[sys.argv.pop(1)] = sys.modules[sys.argv.pop(1)] = None\n"
    code += "from bkstore.cli.main import main\n"
    code += "sys.exit(main())"
    command = [sys.executable, "-c", code, "kazoo", "pyspark", "ensemble", "up"]
    done = subprocess.run(command, capture_output=True, text=True)

    assert (2, 1) == (done.returncode, done.stderr.count("\n")), done.stderr
    assert "ensemble up needs kazoo: pip install 'kazoo" in done.stderr


@pytest.mark.long
def test_a_start_that_fails(made: Path, capsys: Capsys) -> None:
    """What keeps a bookie from starting is told where the command was given, from the background
    too, with its last lines and its log; the directory is free again."""
    (made / "bookie-1").write_text("no directory")
    line = _says(capsys, 2, "up", "--dir", made, "--detach")

    assert "bookie bookie-1 ended (2): " in line
    assert f"({made / 'bookie-1.log'})\n" in line
    assert "was not running" in _says(capsys, 0, "down", "--dir", made)


def test_an_end_while_it_is_printed(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended as soon as its URI can be read, it stops in order, as later."""
    made = MagicMock()
    monkeypatch.setattr("bkstore.testing.ensemble.Ensemble", made)
    monkeypatch.setattr(
        "bkstore.cli.ensemble._print_ensemble", MagicMock(side_effect=SystemExit(143))
    )

    assert 0 == main(["ensemble", "up", "--dir", str(tmp_path / "trial")])
    assert "bkstore: stopping" in capsys.readouterr().err
    made.return_value.__exit__.assert_called_once_with(None, None, None)
