"""The rooms of the house in the order in which they may know each other: `python -m tools.rooms`.

`ROOMS` is the one list of them: the house test holds the imports against it, and
`docs/architecture.md` shows what `--markdown` prints; `--write` puts it there. A room is a package
or a module of `bkstore`; a module belongs to the most precise room that its name lies in. What a
room is about stands in the first line of its docstring.
"""

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
    "lazy_faces",
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
    "formats.entry",
    "formats",
    "formats.metadata",
    "files",
    "index",
    "index.hierarchical",
    "index.rocks",
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
    "cluster.garbage",
    "cluster.placement",
    "cluster.client.bookie_client",
    "cluster.client.bookie_answers",
    "cluster.client.workers",
    "cluster.client.open_ledger",
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
    "spark.source",
    "spark",
    "report.html",
    "report.findings",
    "report.tiles",
    "report",
    "testing.zookeeper_server",
    "testing.ensemble",
    "testing",
    "testing.suites.index",
    "testing.suites.storage",
    "cli.screen",
    "cli.terminal",
    "cli.bookie",
    "cli.datasets",
    "cli.care",
    "cli.server_conf",
    "cli",
    "__main__",
)
"""A room imports only itself and rooms above it here, lazy imports included."""


@cache
def modules() -> Mapping[str, Path]:
    """Return the file of each module of the package, by its name without ``bkstore.``.

    The package's own face is the empty name, a room's face has the name of the room.
    """
    found = {}
    for path in sorted((ROOT / "bkstore").rglob("*.py")):
        parts = path.relative_to(ROOT / "bkstore").with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def _is_face(module: str) -> bool:
    """Return whether this is a package's ``__init__``."""
    return modules()[module].name == "__init__.py"


def room_of(module: str) -> int:
    """Return the place of a module's room in `ROOMS`; `LookupError` if it lies in none.

    The face of a room that has others inside stands behind them all: it shows what they have.
    """
    inside = [at for at, room in enumerate(ROOMS) if _lies_in(room, module)]
    if _is_face(module) and inside:
        return max(inside)
    homes = [at for at, room in enumerate(ROOMS) if _lies_in(module, room)]
    if not homes:
        raise LookupError(f"module {module} is in no room of the list")
    return max(homes, key=lambda at: len(ROOMS[at]))


def _lies_in(module: str, room: str) -> bool:
    return module == room or module.startswith(f"{room}.") or not room


def _imported(tree: ast.AST) -> Iterator[str]:
    """Yield the names of modules that are imported anywhere in a tree, lazily or for types."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole.removeprefix("bkstore.") in modules() else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@cache
def graph() -> Mapping[str, frozenset[str]]:
    """Return which modules each module imports, lazy imports and those for types included."""
    found = {}
    for name, path in modules().items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        ours = {each for each in _imported(tree) if each.split(".")[0] == "bkstore"}
        found[name] = frozenset(each.removeprefix("bkstore").lstrip(".") for each in ours) - {name}
    return found


def circles(edges: Mapping[str, frozenset[str]]) -> list[list[str]]:
    """Return the groups of modules that know each other, directly or through others."""
    reach = {name: _reachable(name, edges) for name in edges}
    found = []
    for name in sorted(edges):
        group = sorted(other for other in reach[name] if name in reach.get(other, ()))
        if name in group and group[0] == name:
            found.append(group)
    return found


def _reachable(start: str, edges: Mapping[str, frozenset[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        new = edges.get(waiting.pop(), frozenset()) - seen
        seen |= new
        waiting += new
    return seen


def about(room: str) -> str:
    """Return what a room is about: the first paragraph of its docstring's first sentence."""
    text = ast.get_docstring(ast.parse(modules()[room].read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split())


def _markdown() -> str:
    rows = [f"| `{room}` | {about(room).replace('|', chr(92) + '|')} |" for room in ROOMS]
    return "\n".join(["| room | is about |", "|---|---|", *rows])


def with_table(text: str) -> str:
    """Return a page with the table of now between its two marks; `LookupError` without them."""
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = ("\n\n" + rest).partition(_END)
    if not (begin and end):
        raise LookupError(f"no lines {_BEGIN.strip()!r} and {_END.strip()!r}")
    return f"{before}{begin}{_markdown()}{end}{after}"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the rooms in their order, a line each; or write the table to the page."""
    parser = argparse.ArgumentParser(prog="python -m tools.rooms", description=__doc__)
    parser.add_argument("--markdown", action="store_true", help="the table of the page")
    parser.add_argument("--write", action="store_true", help="put the table on the page")
    arguments = parser.parse_args(argv)
    if arguments.write:
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return 0
    if arguments.markdown:
        print(_markdown())
        return 0
    width = max(map(len, ROOMS))
    for room in ROOMS:
        print(f"{room:{width}}  {about(room)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
