"""Names: a class name has one meaning, and empty words do not come back."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.paths import ROOT

SHARED = {
    "Client": "by bookies (`bkstore.cluster`) and by service URI (`bkstore.network`), as one works",
}
"""Public classes of one name, and why that is no riddle."""

LIMITS = {
    "asked": 3,
    "at": 4,
    "found": 4,
    "it": 0,
    "look": 1,
    "name": 585,
    "place": 7,
    "rest": 0,
    "said": 0,
    "says": 0,
    "tells": 0,
    "told": 0,
}
"""Empty words, and how many assignments, attributes and parameters may have them as their name:
fewer each time, never more. `name` can be a name."""


@cache
def _trees() -> dict[Path, ast.Module]:
    files = sorted(path for top in ("bkstore", "tools") for path in (ROOT / top).rglob("*.py"))
    return {path.relative_to(ROOT): ast.parse(path.read_text()) for path in files}


def _bound_names(tree: ast.Module) -> Iterator[str]:
    """Yield the names that are assigned or are parameters, without leading underscores."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id.strip("_")
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr.strip("_")
        elif isinstance(node, ast.arg):
            yield node.arg.strip("_")


def test_class_names_have_one_meaning() -> None:
    """Two public classes of one name are listed with a reason, and no others are."""
    homes = defaultdict(list)
    for path, tree in _trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path))

    assert set(SHARED) == {name for name, paths in homes.items() if len(paths) > 1}


@pytest.mark.parametrize("word", LIMITS)
def test_empty_words_do_not_come_back(word: str) -> None:
    """A value is named by what it is: `ledger_id`, `record_offset`, `missing_entries`."""
    counts = Counter(
        {
            str(path): sum(name == word for name in _bound_names(tree))
            for path, tree in _trees().items()
        }
    )

    assert counts.total() <= LIMITS[word], counts.most_common(5)
