"""What pages and messages say about installing: commands that work, for what is there."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from bkstore.errors import MissingDependency, pip_install_command
from bkstore.version import __version__
from tests.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
WHEEL = f"bkstore-{__version__}-py3-none-any.whl"
OTHERS = {"build", "kazoo", "pyiceberg", "pytest"}
"""Packages of an index that pages name by themselves."""

_COMMAND = re.compile(
    r"(?<![\w-])pip install ((?:'[^'\n]*'|[^\s'`,;()|]+)(?: (?:'[^'\n]*'|[\w./-]+))*)"
)


def _installed_by(text: str) -> list[str]:
    """Return what the `pip install` commands in a text install, options left out."""
    words: list[str] = []
    for command in _COMMAND.findall(text):
        given = shlex.split(command.partition("  ")[0].rstrip("."), comments=True)
        given = given or ["."]
        skip = False
        for word in given:
            if not skip and not word.startswith("-"):
                words.append(word)
            skip = word == "-c"
    return words


def _wrong(word: str) -> bool:
    place, _, extras = word.rstrip("]").partition("[")
    named = set(extras.split(",")) - {""}
    if place in (".", WHEEL):
        return not named <= set(EXTRAS)
    if named and place not in OTHERS:  # the extras of others are not known here
        return True
    return re.split(r"[<>=]", place)[0] not in OTHERS | _of_extras()


def _of_extras() -> set[str]:
    return {re.split(r"[<>=]", line)[0] for lines in EXTRAS.values() for line in lines}


def test_commands_are_found() -> None:
    """The look at commands sees each form of them, and what is wrong with one."""
    assert ["."] == _installed_by("`pip install .` in a clone")
    assert [".[a,b]", "x>=1"] == _installed_by("do: pip install -c c.txt '.[a,b]' 'x>=1'.")
    assert ["bkstore"] == _installed_by("`pip install bkstore pytest`")[:1]
    assert [True, True, True, False] == [
        _wrong(word) for word in ("bkstore", "bkstore[spark]", ".[sparc]", f"{WHEEL}[spark]")
    ]


@pytest.mark.parametrize("path", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_command_works(path: Path) -> None:
    """A page installs a clone, a wheel or known packages, with extras that exist."""
    words = _installed_by(path.read_text(encoding="utf-8"))

    assert [] == [word for word in words if _wrong(word)]


def test_no_message_promises_an_index() -> None:
    """No module tells to install bkstore by its name, as from an index that has it."""
    texts = {path: path.read_text(encoding="utf-8") for path in ROOT.glob("bkstore/**/*.py")}

    assert [] == [path for path, text in texts.items() if re.search(r"install '?bkstore", text)]


def test_one_table_has_every_extra() -> None:
    """The table of the page has a row for each extra and one without, and what each brings."""
    rows = re.findall(r"^\| [^|]* \| `pip install ([^|]*)` \| (.*) \|$", _page(), re.MULTILINE)
    brings = {re.sub(r"^'?\.\[?|\]?'$", "", what): text.lower() for what, text in rows}
    missing = [
        (extra, name)
        for extra in EXTRAS
        if extra not in ("dev", "docs")
        for name in (re.split(r"[<>=]", line)[0] for line in EXTRAS[extra])
        if name not in brings[extra]
    ]
    core = [re.split(r"[<>=]", line)[0] for line in PROJECT["dependencies"]]

    assert {"", " pytest", *EXTRAS} == set(brings)
    assert [] == missing
    assert [] == [name for name in core if name not in brings[""]]


def _page() -> str:
    return (ROOT / "docs" / "install.md").read_text(encoding="utf-8")


def test_no_addresses_that_lead_nowhere() -> None:
    """The project names no address of its own: it has none yet."""
    assert "urls" not in PROJECT


@pytest.mark.parametrize("extra", sorted(set(EXTRAS) - {"dev", "docs"}))
def test_the_message_has_a_command_that_works(extra: str) -> None:
    """What the message tells to type is taken by pip, and brings what the extra does."""
    names = [re.split(r"[<>=]", line)[0] for line in EXTRAS[extra]]
    if any(importlib.util.find_spec(name.replace("-", "_")) is None for name in names):
        pytest.skip(f"{extra} is not installed")
    message = str(MissingDependency.of("something", extra, "A test"))
    command = message.partition(": ")[2]
    words = shlex.split(command)
    dry = [sys.executable, "-m", *words, "--dry-run", "--no-index", "--quiet"]
    done = subprocess.run(dry, capture_output=True, text=True)

    assert message.startswith("A test needs something: pip install '")
    assert sorted(names) == sorted(re.split(r"[<>=]", word)[0] for word in words[2:])
    assert (0, "") == (done.returncode, done.stdout), done.stderr


def test_a_source_tree_has_no_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where bkstore is only on the path, the package itself is named."""

    def nothing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", nothing)

    assert "pip install 'pyarrow'" == pip_install_command([("pyarrow", "arrow")])


# -- what continuous integration runs


def _ci(tmp_path: Path, **programs: str) -> list[str]:
    """Run `.ci/run` where only these programs are on the path; return what was called."""
    real = ("bash", "env", "dirname", "timeout")
    scripts = {"make": "", "apt-get": "exit 100", "id": "echo 0", "grep": "", **programs}
    for name in real:
        (tmp_path / name).symlink_to(shutil.which(name) or "/")
    for name, body in scripts.items():
        text = f'#!{shutil.which("bash")}\necho "{name} $*" >> {tmp_path}/called\n{body}\n'
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        [ROOT / ".ci" / "run"], env={**os.environ, "PATH": str(tmp_path)}, capture_output=True
    )

    assert (0, b"", b"") == (done.returncode, done.stdout, done.stderr)
    return (tmp_path / "called").read_text().splitlines()


def test_ci_tries_to_get_a_browser(tmp_path: Path) -> None:
    """As root on Debian without a browser, it is asked for; that this fails changes nothing."""
    install = "apt-get install -y --no-install-recommends chromium"

    assert ["apt-get update", install, "make test"] == _ci(tmp_path)[-3:]


@pytest.mark.parametrize(
    "programs",
    [{"chromium": ""}, {"id": "echo 1000"}, {"grep": "exit 1"}],
    ids=["browser there", "not root", "not Debian"],
)
def test_ci_leaves_the_machine_alone(tmp_path: Path, programs: dict[str, str]) -> None:
    """Nothing is installed where a browser is there, without root's rights, or elsewhere."""
    called = _ci(tmp_path, **programs)

    assert "make test" == called[-1]
    assert [] == [line for line in called if line.startswith("apt-get")]
