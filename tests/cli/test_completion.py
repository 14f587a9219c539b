"""`bkstore completion`: the scripts, in the shells that they are for; usage of each command."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from bkstore.cli.commands import COMMANDS
from bkstore.cli.main import main

pytest.importorskip("shtab")


def _script(shell: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert 0 == main(["completion", shell])
    path = folder / f"script.{shell}"
    path.write_text(capsys.readouterr().out)
    return path


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a folder with a folder, a file and a name with a blank."""
    (tmp_path / "here" / "bookie-1").mkdir(parents=True)
    (tmp_path / "here" / "bk_server.conf").touch()
    return tmp_path / "here"


WORDS = [
    ("led", {"ledger", "ledgers"}),
    ("streams ", {"lookup", "compare"}),
    ("ensemble ", {"up", "status", "fault", "heal", "down"}),
    ("completion ", {"bash", "zsh", "fish", "tcsh"}),
    ("ledgers d --form", {"--format"}),
    ("ledgers d --format j", {"json", "jsonl"}),
    ("inspect --layout ", {"idx", "rocksdb"}),
    ("streams lookup i --growth d", {"doubling"}),
    ("analyze --engine l", {"local"}),
    ("inspect b", {"bookie-1", "bk_server.conf"}),
    ("ledgers bookie-1 -o bk", {"bk_server.conf"}),
    ("audit bk_server.conf boo", {"bookie-1"}),
    ("nosuch", set[str]()),
]


@pytest.mark.parametrize(("line", "expected"), WORDS, ids=[line for line, _ in WORDS])
def test_bash(
    line: str, expected: set[str], tmp_path: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bash that reads the script completes commands, options, choices and paths."""
    bash = shutil.which("bash") or pytest.skip("no bash here")
    code = (
        f"source {_script('bash', tmp_path, capsys)}\n"
        "complete -p bkstore >&2\n"
        f"read -ra COMP_WORDS <<< 'bkstore {line}'\n"
        f"case '{line}' in *' ') COMP_WORDS+=('');; esac\n"
        "COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))\n"
        'function=$(complete -p bkstore | sed "s/.*-F \\([^ ]*\\) .*/\\1/")\n'
        '"$function" bkstore\n'
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run([bash, "-c", code], cwd=place, capture_output=True, text=True)

    assert expected == {word.strip().rstrip("/") for word in done.stdout.splitlines()} - {""}
    assert done.stderr.startswith("complete ")
    assert 1 == len(done.stderr.splitlines())


@pytest.mark.parametrize(("line", "expected"), WORDS[:-1], ids=[line for line, _ in WORDS[:-1]])
def test_fish(
    line: str, expected: set[str], tmp_path: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fish that reads the script completes the same."""
    fish = shutil.which("fish") or pytest.skip("no fish here")
    code = f"source {_script('fish', tmp_path, capsys)}; complete -C 'bkstore {line}'"
    done = subprocess.run([fish, "-N", "-c", code], cwd=place, capture_output=True, text=True)
    found = {text.partition("\t")[0].rstrip("/") for text in done.stdout.splitlines()}

    assert expected <= found
    assert "" == done.stderr


def test_zsh_and_tcsh(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """zsh takes its script; both scripts name every command."""
    zsh = _script("zsh", tmp_path, capsys)
    text = zsh.read_text()
    tcsh = _script("tcsh", tmp_path, capsys).read_text()

    assert text.startswith("#compdef bkstore\n")
    assert [] == [name for name in COMMANDS if f"{name}:" not in text or name not in tcsh]
    if shutil.which("zsh"):
        assert b"" == subprocess.run(["zsh", "-n", zsh], check=True, capture_output=True).stderr


@pytest.mark.parametrize(
    ("words", "usage", "error"),
    [
        (["ledger", "d"], "bkstore ledger", "one of the arguments LEDGER"),
        (["ledger", "d", "--ledger-id=7", "--bogus"], "bkstore ledger", "arguments: --bogus"),
        (["where", "d", "7", "1:2", "x"], "bkstore where", "arguments: x"),
        (["streams", "lookup", "i"], "bkstore streams lookup", "required: --stream, --start"),
        (["streams", "compare", "i", "x\x1b"], "bkstore streams compare", "arguments: x\\x1b"),
        (["inspect", "d", "--format=x"], "bkstore inspect", "argument --format: invalid choice"),
        (["nosuch"], "bkstore", "no command 'nosuch'; bkstore --help"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_usage_is_the_commands_own(
    words: list[str], usage: str, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong usage shows the usage of the command that was meant, and what is wrong."""
    with pytest.raises(SystemExit) as stopped:
        main(words)
    told = capsys.readouterr().err

    assert 2 == stopped.value.code
    assert told.startswith(f"usage: {usage} [-h]")
    assert f"\n{usage}: error: " in told
    assert error in told.splitlines()[-1]
