"""The house rules that a machine can check: imports, sizes, what importing costs."""

from __future__ import annotations

import ast
import importlib
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from bkstore.former_names import FORMER
from tests.paths import ROOT
from tools.rooms import ROOMS, describe_room, find_cycles, import_graph, module_files, room_of

MODULES = sorted(ROOT.glob("bkstore/**/*.py"))
HEAVY = ("pyspark", "pyarrow", "pandas", "matplotlib", "jinja2", "rich", "rocksdict")
HEAVY += ("google.protobuf",)


NAMES = [name for name in module_files() if name]


@pytest.mark.parametrize("name", NAMES)
def test_imports_run_down_the_list(name: str) -> None:
    """A module imports only its own room and rooms above it in the list, lazy imports included."""
    mine = room_of(name)

    assert [] == [other for other in import_graph()[name] if not other or room_of(other) > mine]


def test_no_circles() -> None:
    """No two modules know each other, directly or through others, lazy imports included."""
    assert [] == find_cycles(import_graph())


def test_circles_are_seen() -> None:
    """The look for circles finds one of three modules, and none where there is none."""
    chain = {"a": frozenset("b"), "b": frozenset("c"), "c": frozenset[str](), "d": frozenset("a")}

    assert [] == find_cycles(chain)
    assert [["a", "b", "c"]] == find_cycles({**chain, "c": frozenset("a")})


def test_lazy_imports_are_seen() -> None:
    """The graph has imports inside functions and those for types only."""
    assert "storage.ledgers.write_paths.db" in import_graph()["storage.ledgers.opening"]
    assert "index.rocks.index" in import_graph()["index.rocks"]


def test_every_room_is_there() -> None:
    """Each entry of the list is a package or a module, and says what it is about."""
    assert [] == [room for room in ROOMS if room not in module_files() or not describe_room(room)]
    assert len(set(ROOMS)) == len(ROOMS)


def _rooms() -> dict[str, list[str]]:
    """Return the names of the modules in each package, faces left out."""
    found: dict[str, list[str]] = {}
    for name, path in module_files().items():
        if path.name != "__init__.py":
            found.setdefault(name.rpartition(".")[0], []).append(path.stem)
    return found


@pytest.mark.parametrize("room", _rooms())
def test_rooms_are_small(room: str) -> None:
    """At most twelve modules a room, and no three that share a prefix: that would be a room."""
    names = _rooms()[room]
    prefixes = Counter(name.split("_")[0] for name in names)

    assert len(names) <= 12
    assert [] == [prefix for prefix, count in prefixes.items() if count > 2]


@pytest.mark.parametrize("room", [room for room in _rooms() if room])
def test_faces_lead_inside(room: str) -> None:
    """The face of a room names each of its modules, and the rooms inside it."""
    face = module_files()[room]
    text = ast.get_docstring(ast.parse(face.read_text(encoding="utf-8"))) or ""
    inside = [path.name for path in face.parent.iterdir() if (path / "__init__.py").exists()]
    if room in ("cli.bookie", "cli.datasets"):
        pytest.skip("a module a command, named by its command")

    assert [] == [name for name in _rooms()[room] + inside if f"`{name}`" not in text]


def test_module_sizes() -> None:
    """Modules: median under 200 lines, none above 500."""
    lines = {path: path.read_text(encoding="utf-8").count("\n") for path in MODULES}

    assert [] == [f"{path}: {count}" for path, count in lines.items() if count > 500]
    assert statistics.median(lines.values()) < 200


def _long_functions(source: str) -> list[str]:
    """Return the functions of more than 60 lines, from `def` to their last line."""
    return [
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > 60
    ]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_function_sizes(path: Path) -> None:
    """No function, async ones included, has more than 60 lines."""
    assert [] == _long_functions(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("head", ["def f():", "async def f():"])
def test_long_functions_are_seen(head: str) -> None:
    """A function may have 60 lines with its head, and not 61."""
    assert [] == _long_functions(head + "\n    pass" * 59)
    assert ["f"] == _long_functions(head + "\n    pass" * 60)


def _loaded_after(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_idx_needs_no_rocksdb(tmp_path: Path) -> None:
    """Opening index files does not load RocksDB; `open_index` loads what the layout needs."""
    (tmp_path / "current").mkdir()
    loaded = _loaded_after(f"import bkstore; bkstore.open_index({str(tmp_path)!r}).ledgers()")

    assert set() == {name for name in HEAVY if name in loaded}


def test_public_names_are_there() -> None:
    """Every room lists its public names in ``__all__``, and has them; other modules list none
    that they define."""
    for path in MODULES:
        if path.name == "__main__.py":
            continue
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        module = importlib.import_module(name)

        if path.name != "__init__.py" and not hasattr(module, "__all__"):
            continue
        assert isinstance(module.__all__, list), name
        missing = [public for public in module.__all__ if not hasattr(module, public)]
        inside = {p.stem for p in path.parent.glob("*.py")} | {
            p.name for p in path.parent.iterdir()
        }
        submodules = [name for name in missing if name in inside]
        assert missing == submodules, name


def test_no_place_names() -> None:
    """The repository names no machine's paths and no registry hosts."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    words = ("/wo" + "rk/", "/ro" + "ot/", "pypi" + ".org", "python" + "hosted", "npm" + "js.org")
    found = []
    for name in listed:
        try:
            text = (ROOT / name).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        found.extend(f"{name}: {word}" for word in words if word in text)

    assert [] == found


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("bkstore.storage.ledger_storage", "LedgerStorage"),
        ("bkstore.storage.journaling", "JournalWriter"),
        ("bkstore.storage.journaling", "scan_journal"),
        ("bkstore.storage.entry_logger", "EntryLogger"),
        ("bkstore.storage.log_scan", "read_log_metadata"),
        ("bkstore.storage.log_scan", "scan_log"),
        ("bkstore.storage.summaries", "ledger_tables"),
        ("bkstore.formats.metadatafile", "encode_file"),
        ("bkstore.testing.storage_machine", "storage_machine"),
        ("bkstore.index.rocks", "RocksIndex"),
        ("bkstore.index.hierarchical", "HierarchicalIndex"),
        ("bkstore.offline.dump", "dump"),
        ("bkstore.wire.detection", "RequestDecoder"),
        ("bkstore.wire.admin.guard", "Limits"),
    ],
)
def test_paths_that_pages_showed_stay(module: str, name: str) -> None:
    """Import paths that pages have shown keep working, in a process that loaded nothing else."""
    script = f"from {module} import {name}; import {module} as m; print(m.{name} is {name})"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

    assert ("True\n", "") == (done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("package", "former", "present"),
    [
        ("bkstore.cluster", "store_of", "make_memory_store"),
        ("bkstore.offline.analyses", "find", "find_analysis"),
        ("bkstore.offline.load", "Engine", "LoadEngine"),
        ("bkstore.offline.load", "LocalEngine", "LocalLoadEngine"),
        ("bkstore.offline.load", "To", "IndexLayout"),
        ("bkstore.offline.reading", "Read", "FileRead"),
        ("bkstore.offline.reading", "Task", "ReadTask"),
        ("bkstore.offline.rewrite", "Opening", "OpenOptions"),
        ("bkstore.tables", "ANSWERS", "LOOKUP_OBJECTS"),
        ("bkstore.tables", "Repeated", "ConstantColumn"),
    ],
)
def test_former_exports_stay(package: str, former: str, present: str) -> None:
    """A former name is the present object, and not in ``__all__``; others are AttributeError."""
    face = importlib.import_module(package)

    name = "bkstore.cluster.store.dump_store" if former == "store_of" else package
    home = importlib.import_module(name)
    assert getattr(face, former) is getattr(home, present)
    assert former not in face.__all__
    with pytest.raises(AttributeError, match="nothing_such"):
        face.nothing_such  # noqa: B018


def test_former_members_stay() -> None:
    """Former keywords and members of documented classes lead to the present ones."""
    from bkstore.cluster.audit import AuditOptions, AuditReport
    from bkstore.cluster.store.zookeeper.underreplication import Underreplication
    from bkstore.network import RegisteredBookie
    from bkstore.offline.rewrite import SalvageResult

    options = AuditOptions(looks=1, look_delay=3.5)  # type: ignore[call-arg]

    assert (1, 3.5, 1, 3.5) == (
        options.rechecks,
        options.recheck_delay,
        options.looks,  # type: ignore[attr-defined]
        options.look_delay,  # type: ignore[attr-defined]
    )
    assert options == AuditOptions(rechecks=1, recheck_delay=3.5)
    assert 4 == AuditReport(rechecks=4).looks  # type: ignore[attr-defined]
    for cls, former in ((Underreplication, "done"), (SalvageResult, "made")):
        assert isinstance(getattr(cls, former), property)
    with pytest.raises(TypeError, match="'looks' is the former name of 'rechecks'"):
        AuditOptions(looks=1, rechecks=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unheard_of"):
        AuditOptions(unheard_of=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="store"):
        RegisteredBookie(changed=print)  # type: ignore[call-arg]


def test_former_names_load_nothing() -> None:
    """A former name is importable without its module; what it never had is `AttributeError`."""
    loaded = _loaded_after("import bkstore.formats.metadatafile")

    assert "bkstore.formats.metadatafile" in loaded
    assert "bkstore.formats.metadata.json_file" not in loaded
    assert "bkstore.testing" not in loaded
    with pytest.raises(AttributeError, match="nothing_such"):
        importlib.import_module("bkstore.storage.log_scan").nothing_such  # noqa: B018


@pytest.mark.parametrize("former", FORMER)
def test_former_modules_are_attributes(former: str) -> None:
    """A module of a former name is an attribute of its package once it is imported."""
    module = importlib.import_module(former)
    package, _, name = former.rpartition(".")

    assert module is getattr(sys.modules[package], name)
