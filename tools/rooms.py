"""The rooms of the package in the order of allowed imports: `python -m tools.rooms`. `ROOMS` lists
them: a test checks all imports against it, and `docs/architecture.md` includes the table that
`--markdown` prints; `--write` updates it there. A room is a package or a module of `bkstore`; a
module belongs to the longest room name that encloses its name. The first paragraph of its docstring
describes a room."""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
_BEGIN, _END = "<!-- rooms: made by tools.rooms -->\n\n", "\n\n<!-- end of rooms -->"

ROOMS = (
    "version",
    "lazy_exports",
    "former_names",
    "counts",
    "errors",
    "arguments",
    "forks",
    "ids",
    "availability",
    "schedule",
    "ledger_metadata",
    "tables",
    "durability",
    "metrics",
    "formats.syntax",
    "formats.rocksdb",
    "formats.rocksdb.log",
    "formats.rocksdb.manifest",
    "formats.rocksdb.table",
    "formats.entry",
    "formats",
    "formats.metadata",
    "files",
    "index",
    "index.hierarchical",
    "index.rocks.files",
    "index.rocks.tables",
    "index.rocks",
    "index.rocks.inspection",
    "bloom",
    "storage.options",
    "storage.batch_limits",
    "storage.directories",
    "storage.entry_log",
    "storage.ledgers.write_paths",
    "storage.ledgers",
    "storage.ledger_storage",
    "storage.journal",
    "storage.bookie",
    "storage.read_only",
    "streams.image",
    "streams.lookup",
    "cluster.store",
    "cluster.store.zookeeper",
    "cluster.store.opening",
    "pulsar.entries",
    "pulsar.sources",
    "pulsar",
    "cluster.garbage",
    "cluster.placement",
    "cluster.client.bookie_client",
    "cluster.client.bookie_answers",
    "cluster.client.workers",
    "cluster.client.options",
    "cluster.client.ledger_access",
    "cluster.client.appends",
    "cluster.client",
    "cluster.in_process",
    "cluster.audit",
    "wire",
    "wire.sasl",
    "wire.server",
    "wire.client",
    "wire.admin",
    "network",
    "network.settings",
    "repair.planning",
    "repair",
    "offline.staging_directory",
    "offline.worker_pool",
    "offline.reading",
    "offline.dump",
    "offline.spilled_rows",
    "offline.index_building",
    "offline.load",
    "offline.analyses.kernels",
    "offline.analyses",
    "offline.check",
    "offline.usage",
    "offline.diff",
    "offline.rewrite",
    "rescue.disks",
    "rescue",
    "rescue.outputs",
    "spark.source",
    "spark",
    "report.html",
    "report.findings",
    "report.tiles",
    "report",
    "testing.zookeeper_server",
    "testing.faults",
    "testing.ensemble",
    "testing",
    "testing.suites.index",
    "testing.suites.storage",
    "cli.screen",
    "cli.terminal",
    "cli.owners",
    "lab.progress",
    "lab.experiment",
    "lab.number_format",
    "lab.measuring",
    "lab.simulation",
    "lab.workloads",
    "lab.stores",
    "lab.load_generator",
    "lab.documents",
    "lab.presentation",
    "lab.experiments",
    "lab",
    "cli.fleet",
    "cli.pulsar",
    "cli.bookie",
    "cli.datasets",
    "cli.maintenance",
    "cli.rescue",
    "cli.server_conf",
    "cli",
    "__main__",
)
"""A room imports only itself and rooms above it in this list, lazy imports included."""


@cache
def module_files() -> Mapping[str, Path]:
    """Return the file of each module of the package, by its name without ``bkstore.``. The
    ``__init__`` of the package has the empty name, that of a room the name of the room."""
    path_of_module = {}
    for path in sorted((ROOT / "bkstore").rglob("*.py")):
        parts = path.relative_to(ROOT / "bkstore").with_suffix("").parts
        path_of_module[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return path_of_module


def _is_face(module: str) -> bool:
    return module_files()[module].name == "__init__.py"


def room_of(module: str) -> int:
    """Return the index of a module's room in `ROOMS`; raise `LookupError` if it is in none. The
    ``__init__`` of a room with rooms inside has the index of the last of these."""
    rooms_inside = [index for index, room in enumerate(ROOMS) if _is_in(room, module)]
    if _is_face(module) and rooms_inside:
        return max(rooms_inside)
    enclosing_rooms = [index for index, room in enumerate(ROOMS) if _is_in(module, room)]
    if not enclosing_rooms:
        raise LookupError(f"module {module} is in no room of the list")
    return max(enclosing_rooms, key=lambda index: len(ROOMS[index]))


def _is_in(module: str, room: str) -> bool:
    return module == room or module.startswith(f"{room}.") or not room


def _imported_modules(tree: ast.AST) -> Iterator[str]:
    """Yield the modules that a syntax tree imports anywhere, lazily or for type checking too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                is_module = submodule.removeprefix("bkstore.") in module_files()
                yield submodule if is_module else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@cache
def import_graph() -> Mapping[str, frozenset[str]]:
    """Return the modules that each module imports, including lazily and for type checking."""
    imports = {}
    for name, path in module_files().items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        own = (module for module in _imported_modules(tree) if module.split(".")[0] == "bkstore")
        own_names = {module.removeprefix("bkstore").lstrip(".") for module in own}
        imports[name] = frozenset(own_names - {name})
    return imports


def find_cycles(edges: Mapping[str, frozenset[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other, directly or through others."""
    reachable = {name: _find_reachable(name, edges) for name in edges}
    cycles = []
    for name in sorted(edges):
        group = sorted(other for other in reachable[name] if name in reachable.get(other, ()))
        if name in group and group[0] == name:  # each group once, by its first module
            cycles.append(group)
    return cycles


def _find_reachable(start: str, edges: Mapping[str, frozenset[str]]) -> set[str]:
    visited: set[str] = set()
    unvisited = [start]
    while unvisited:
        new = edges.get(unvisited.pop(), frozenset()) - visited
        visited |= new
        unvisited += new
    return visited


def describe_room(room: str) -> str:
    """Return the description of a room: the first paragraph of its docstring, on one line."""
    text = ast.get_docstring(ast.parse(module_files()[room].read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split())


def _markdown_table() -> str:
    descriptions = {room: describe_room(room).replace("|", r"\|") for room in ROOMS}
    rows = [f"| `{room}` | {description} |" for room, description in descriptions.items()]
    return "\n".join(["| room | is about |", "|---|---|", *rows])


def replace_table(text: str) -> str:
    """Return a page with the current table between its marks; raise `LookupError` without marks."""
    before, begin, remainder = text.partition(_BEGIN)
    _, end, after = ("\n\n" + remainder).partition(_END)  # there may be no table yet
    if not (begin and end):
        raise LookupError(f"no lines {_BEGIN.strip()!r} and {_END.strip()!r}")
    return f"{before}{begin}{_markdown_table()}{end}{after}"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the rooms in their order, one per line, or write the table to the page."""
    parser = argparse.ArgumentParser(prog="python -m tools.rooms", description=__doc__)
    parser.add_argument("--markdown", action="store_true", help="the table of the page")
    parser.add_argument("--write", action="store_true", help="put the table on the page")
    arguments = parser.parse_args(argv)
    if arguments.write:
        PAGE.write_text(replace_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return 0
    if arguments.markdown:
        print(_markdown_table())
        return 0
    width = max(map(len, ROOMS))
    for room in ROOMS:
        print(f"{room:{width}}  {describe_room(room)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
