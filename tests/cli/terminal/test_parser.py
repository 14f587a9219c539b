"""Mistyped words: the error names them, and what was probably meant."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bkstore.cli.main import main

Capsys = pytest.CaptureFixture[str]


def _said(capsys: Capsys, *words: str, code: int = 2) -> str:
    """Return the last line of standard error of a command line that the parser ends."""
    with pytest.raises(SystemExit) as stopped:
        main(list(words))

    assert code == stopped.value.code
    return capsys.readouterr().err.splitlines()[-1]


MISTYPED = {
    "inspect D --livee": "--livee (did you mean --live?)",
    "inspect --livee D": "--livee (did you mean --live?)",
    "inspect --livee": "--livee (did you mean --live?)",
    "readlog D --log 0": "--log",  # not --layout
    "ledger --livee D 7": "--livee (did you mean --live?)",
    "ledger --formt json D 7": "--formt (did you mean --format?)",
    "ledger D --ledgerid=7": "--ledgerid (did you mean --ledger-id?)",
    "readlog D -x 3 --dir-idx 3": "-x --dir-idx (did you mean --dir-index?)",
    "streams lookup --strem 1 I --start 0": "--strem (did you mean --stream?)",
    "audit M b=D --grace 5 --sprad 2": "--sprad (did you mean --spread?)",
    "inspect D --nothing-like-it": "--nothing-like-it",
    "--liev inspect D": "--liev",
    "dump D OUT --topics x": "--topics",
}


@pytest.mark.parametrize("line", MISTYPED)
def test_unknown_options(line: str, capsys: Capsys) -> None:
    """An unknown option is named alone, with the nearest of the command's own, wherever it stands.

    What argparse made of the words around it is not blamed: a DIR behind it, an argument that it
    lacks because the option's value was taken for another.
    """
    assert _said(capsys, *line.split()).endswith(f"error: unrecognized arguments: {MISTYPED[line]}")


@pytest.mark.parametrize("option", ["--topic", "--namespace", "--tenant", "--component"])
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("dump D OUT {}", "a dump has all ledgers of its bookies"),
        ("dump {} D OUT", "a dump has all ledgers of its bookies"),
        ("dump D OUT --livee {}", "a dump has all ledgers of its bookies"),
        ("report D {} -o R.html", "the page is about all ledgers"),
    ],
)
def test_refused_options(option: str, line: str, reason: str, capsys: Capsys) -> None:
    """A filter that a command cannot have is refused with the reason, and what to do instead."""
    for words in (f"{option} x", f"{option}=x"):
        message = _said(capsys, *line.format(words).split())

        assert f"error: argument {option}: not allowed: {reason}" in message
        assert "bkstore analyze DUMP --metadata METADATA --topic PATTERN" in message


@pytest.mark.parametrize(
    ("line", "ends"),
    [
        ("inspct D", "(did you mean inspect?)"),
        ("inspct --live D", "(did you mean inspect?)"),
        ("streams lokup I", "(did you mean lookup?)"),
        ("inspect D --format jsn", "(did you mean json?)"),
        ("completion bahs", "(did you mean bash?)"),
        ("readlog D --format log", ""),
        ("xyzzy D", ""),
    ],
)
def test_wrong_choices(line: str, ends: str, capsys: Capsys) -> None:
    """A command or a value that is no choice is named with the nearest one, behind all of them."""
    said = _said(capsys, *line.split())

    assert ("invalid choice: " in said) != ("no command " in said)
    assert ends == "".join(re.findall(r"\(did you mean .*", said))


def test_commands(capsys: Capsys) -> None:
    """What lists them is named, not all of them; a command must be given."""
    hint = "bkstore --help lists the commands"

    assert _said(capsys, "xyzzy").endswith(f"error: no command 'xyzzy'; {hint}")
    assert _said(capsys).endswith(f"error: a command is required; {hint}")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("inspect", "the following arguments are required: DIR"),
        ("inspect D E", "unrecognized arguments: E; bkstore inspect takes one DIR"),
        ("inspect -- --livee E", "unrecognized arguments: E; bkstore inspect takes one DIR"),
        ("inspect --livee D --format x", "argument --format: invalid choice"),
        ("ledgers D --ledger-scope-id", "argument --ledger-scope-id: expected one argument"),
        ("audit M b=D --pla", "ambiguous option: --pla could match --placement, --places"),
    ],
)
def test_other_errors_are_argparses(line: str, said: str, capsys: Capsys) -> None:
    """Errors of arguments and of known options are told as ever."""
    assert said in _said(capsys, *line.split())


def test_what_is_no_option(tmp_path: Path, capsys: Capsys) -> None:
    """Beginnings of options, numbers, values with =, and words behind -- are what they were."""
    missing = str(tmp_path / "none")
    for words in (
        ["inspect", missing, "--liv"],
        ["ledger", missing, "--ledger-id", "-1"],
        ["ledger", missing, "--ledger-id=--7"],
        ["readledger", missing, "7", "--password=--x"],
        ["inspect", "--", missing],
    ):
        assert 2 == main(words)
        assert "unrecognized" not in capsys.readouterr().err


def test_help_beside_a_mistake(capsys: Capsys) -> None:
    """--help is help, whatever else stands there, and exit code 0."""
    with pytest.raises(SystemExit) as stopped:
        main(["inspect", "--livee", "--help"])

    assert 0 == stopped.value.code
    assert capsys.readouterr().out.startswith("usage: bkstore inspect")
