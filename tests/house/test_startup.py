"""What starting costs: a name, a command, the pytest plugin load what they need and no more."""

from __future__ import annotations

import ast
import importlib
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import bkstore
from bkstore import tables
from bkstore.cli.commands import COMMANDS
from tests.paths import ROOT

OPTIONAL = {
    "aiohttp",
    "duckdb",
    "jinja2",
    "matplotlib",
    "pandas",
    "prometheus_client",
    "pyarrow",
    "pyspark",
    "shtab",
}
CORE = {
    "cramjam",
    "crc32c",
    "google.protobuf",
    "google_crc32c",
    "lz4",
    "mmh3",
    "numpy",
    "rich",
    "rocksdict",
    "sortedcontainers",
    "xxhash",
}
BELOW = [("streams", "lookup"), ("streams", "compare")]
BELOW += [("metadata", word) for word in ("list", "show", "export", "delete")]
BELOW += [("ensemble", name) for name in ("up", "status", "fault", "heal", "down")]


def _loaded_after(code: str, cwd: Path = ROOT) -> set[str]:
    """Return the modules that a new process has after the code."""
    script = f"import sys\n{code}\nprint()\nprint(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=cwd
    )
    return set(done.stdout.splitlines()[-1].split())


def _run(*words: str) -> str:
    """Return code that runs a command line, whatever it ends with."""
    return (
        "from contextlib import suppress\n"
        "from bkstore.cli.main import main\n"
        f"with suppress(SystemExit):\n    main({list(words)!r})"
    )


def _served(tmp_path: Path, *words: str) -> set[str]:
    """Return the modules that `bkstore serve` has loaded once it serves."""
    code = (
        "from bkstore.cli import serve\n"
        "serve.checkpoint_until_stopped = lambda *_: None\n"
        "from bkstore.cli.main import main\n"
        f"assert 0 == main({['serve', str(tmp_path / 'b'), '--create', '--port', '0', *words]!r})"
    )
    return _loaded_after(code)


def test_a_server_loads_what_it_serves(tmp_path: Path) -> None:
    """A bookie on a port needs no client, no other storage than its own, and no metadata store;
    its HTTP admin adds two packages, and no client either."""
    heavy = CORE | OPTIONAL | {"kazoo", "bkstore.wire.client", "bkstore.cluster.client"}
    heavy |= {"bkstore.index.rocks", "bkstore.offline", "bkstore.cluster.store.zookeeper.store"}
    needed = {"crc32c", "google.protobuf", "google_crc32c", "numpy"}

    assert set() == (_served(tmp_path, "--storage", "sorted") & heavy) - needed
    with_admin = _served(tmp_path, "--storage", "sorted", "--http", "0") & heavy
    assert {"aiohttp", "prometheus_client"} == with_admin - needed


def test_import_loads_no_numpy() -> None:
    """`import bkstore` loads none of the packages that it needs, and four modules of its own."""
    loaded = _loaded_after("import bkstore")
    own = {"counts", "errors", "former_names", "lazy_exports", "version"}
    files = {path.relative_to(ROOT).with_suffix("") for path in ROOT.glob("bkstore/**/*.py")}
    there = {".".join(path.parts) for path in files}

    assert set() == loaded & (CORE | OPTIONAL)
    assert {f"bkstore.{name}" for name in own} == loaded & there


def test_every_name_comes_when_asked_for() -> None:
    """Each public name is listed before anything is loaded, and comes when it is asked for."""
    code = "import bkstore; listed = dir(bkstore); assert 'numpy' not in sys.modules\n"
    code += "assert set() == set(bkstore.__all__) - set(listed)\n"
    code += "for name in bkstore.__all__: getattr(bkstore, name)"

    assert "bkstore.storage.bookie" in _loaded_after(code)


def test_all_names_at_once() -> None:
    """`from bkstore import *` gives every public name; a name that is none is AttributeError."""
    names: dict[str, object] = {}
    exec("from bkstore import *", names)

    assert set() == set(bkstore.__all__) - set(names)
    with pytest.raises(AttributeError, match="no attribute 'open_indices'"):
        bkstore.open_indices  # noqa: B018


@pytest.mark.parametrize("package", [bkstore, tables], ids=["bkstore", "tables"])
def test_type_checkers_see_the_same(package: object) -> None:
    """What is looked up at run time is imported for type checkers too, from the same module."""
    path = Path(str(package.__file__))  # type: ignore[attr-defined]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    names = package.__all__  # type: ignore[attr-defined]
    looked_up = [name for name in names if name not in vars(package)]

    assert looked_up
    for name in looked_up:
        home = importlib.import_module(str(imported[name]))
        assert getattr(package, name) is getattr(home, name)


def test_rooms_are_attributes() -> None:
    """After `import bkstore` a room is there as its attribute, as it was when all was loaded."""
    code = "import bkstore; bkstore.index.api; bkstore.schedule.expected; bkstore.storage"

    assert "bkstore.schedule" in _loaded_after(code)


def test_classes_pickle() -> None:
    """What comes by a lazy name pickles by the name of its module."""
    ledger = bkstore.LedgerId(1, 2)
    here = bkstore.Availability.from_entries([1, 2, 5])

    assert ledger == pickle.loads(pickle.dumps(ledger))
    assert here == pickle.loads(pickle.dumps(here))
    assert bkstore.BookieDir is pickle.loads(pickle.dumps(bkstore.BookieDir))


def _commands_among(loaded: set[str]) -> set[str]:
    return {name for name, command in COMMANDS.items() if f"bkstore.cli.{command.module}" in loaded}


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("nosuch",)], ids=" ".join)
def test_help_loads_no_command(words: tuple[str, ...]) -> None:
    """`bkstore --help` loads no command and no package."""
    loaded = _loaded_after(_run(*words))

    assert set() == _commands_among(loaded)
    assert set() == loaded & (CORE | OPTIONAL)


EACH_COMMAND = [*((name,) for name in COMMANDS), *BELOW]
FORKS = """
import json, os, sys
import numpy  # which every command may load
loaded = []
for words in json.loads(sys.argv[1]):
    read, write = os.pipe()
    if os.fork() == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        try:
            from bkstore.cli.main import main
            main([*words, "--help"])
        except SystemExit:
            os.write(write, json.dumps(list(sys.modules)).encode())
        os._exit(0)
    os.close(write)
    with open(read) as end:
        loaded.append(json.loads(end.read() or "[]"))
    os.wait()
print(json.dumps(loaded))
"""


@pytest.fixture(scope="module")
def loaded_by_help() -> dict[tuple[str, ...], set[str]]:
    """Return the modules after the help of each command, each in a fork that had only numpy."""
    done = subprocess.run(
        [sys.executable, "-c", FORKS, json.dumps(EACH_COMMAND)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return dict(zip(EACH_COMMAND, map(set, json.loads(done.stdout))))


@pytest.mark.parametrize("words", EACH_COMMAND, ids=" ".join)
def test_a_command_loads_only_itself(
    words: tuple[str, ...], loaded_by_help: dict[tuple[str, ...], set[str]]
) -> None:
    """`--help` of a command loads its module and no other command's, and of packages numpy."""
    loaded = loaded_by_help[words]

    assert {words[0]} == _commands_among(loaded)
    assert {"numpy"} >= loaded & (CORE | OPTIONAL)


def test_completion_loads_no_numpy() -> None:
    """The help of `completion`, which reads nothing, needs no package at all."""
    assert set() == _loaded_after(_run("completion", "--help")) & (CORE | OPTIONAL)


@pytest.mark.parametrize(
    "words", [("--version",), ("inspect", "nowhere"), ("inspct",)], ids=" ".join
)
def test_python_m_is_the_command(words: tuple[str, ...]) -> None:
    """`python -m bkstore` prints what `bkstore` prints, under its name, and exits as it does."""
    command = "import sys; from bkstore.cli.main import main; sys.exit(main())"
    by_name, by_module = (
        subprocess.run(
            [sys.executable, *start, *words], capture_output=True, text=True, check=False, cwd=ROOT
        )
        for start in (["-c", command], ["-m", "bkstore"])
    )

    assert by_name.returncode == by_module.returncode
    assert by_name.stdout + by_name.stderr == by_module.stdout + by_module.stderr != ""


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_the_docstring(name: str) -> None:
    """The line of the help is the first line of the module's docstring."""
    path = ROOT / "bkstore" / "cli" / (COMMANDS[name].module.replace(".", "/") + ".py")
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""

    assert f"bkstore {name}: {COMMANDS[name].summary}." == text.splitlines()[0]


def test_inspect_loads_what_the_layout_needs(tmp_path: Path) -> None:
    """Inspecting index files as JSON loads numpy and nothing else that is heavy."""
    (tmp_path / "current").mkdir()
    loaded = _loaded_after(_run("inspect", str(tmp_path), "--format", "json"))

    assert {"numpy"} == loaded & (CORE | OPTIONAL)
    assert {"inspect"} == _commands_among(loaded)


def test_the_plugin_loads_nothing(tmp_path: Path) -> None:
    """A test run that asks for no fixture has neither numpy nor a module of bkstore's rooms."""
    (tmp_path / "test_stranger.py").write_text(
        "import json, sys\n"
        "def test_it(tmp_path_factory, request):\n"
        "    assert request.config.pluginmanager.has_plugin('bkstore.testing.plugin')\n"
        "    with open('loaded.json', 'w') as file:\n"
        "        json.dump(sorted(sys.modules), file)\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    options = ["-p", "bkstore.testing.plugin", "-c", "/dev/null", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [*command, *options, str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)},
    )

    assert 0 == done.returncode, done.stdout + done.stderr
    loaded = set(json.loads((tmp_path / "loaded.json").read_text()))
    there = {name for name in loaded if name.startswith("bkstore.")}
    light = (
        "counts",
        "errors",
        "former_names",
        "lazy_exports",
        "version",
        "testing",
        "testing.plugin",
    )

    assert set() == loaded & (CORE | OPTIONAL)
    assert {f"bkstore.{name}" for name in light} == there
