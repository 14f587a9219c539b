"""The index of the site's search: guides rank above the reference, also from a folder.

The search compares two pages by the field that a word is in: a title weighs most, then the path of
the navigation, then the text. Titles of the reference are nearly all of the index, and a name such
as `report.html.bars` would rank above the guide "The report".
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

_INDEX, _SCRIPT = "search.json", "search.js"
_SCRIPT_PREFIX = "var __index = "
"""Pages opened as file:// may fetch nothing: they load the index as a script."""

_WORD_JOINER = "\u2060"
_WORD_START_PATTERN = re.compile(r"(?<![^\W_])(?=[^\W_])")
"""The start of each word that the search makes of a name."""


def rank_guides_first(site: Path) -> None:
    """Rewrite the index of a built site so that the names of the reference are found by their path,
    which weighs less than a title. Raises `LookupError` if the site's index is none of Zensical's.
    """
    index_path, script_path = site / _INDEX, site / _SCRIPT
    script = script_path.read_text(encoding="utf-8") if script_path.is_file() else ""
    if not (index_path.is_file() and script.startswith(_SCRIPT_PREFIX)):
        raise LookupError(f"{_INDEX} and {_SCRIPT} are not a search index with the offline plugin")
    index = json.loads(index_path.read_text(encoding="utf-8"))
    index["items"] = [_found_by_path(item) for item in index["items"]]
    text = json.dumps(index, ensure_ascii=False, separators=(",", ":"))
    index_path.write_text(text, encoding="utf-8")
    script_path.write_text(_SCRIPT_PREFIX + text, encoding="utf-8")


def _found_by_path(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item of the index; one of the reference with its title in the path instead."""
    title, path = item["title"], item["path"]
    if path[:1] != ["Reference"]:
        return item
    if not ".".join(path).endswith(title):  # a module's title is the path already
        path = [*path, title]
    # An invisible character before each word: the title is shown, and no query matches it.
    return {**item, "title": _WORD_START_PATTERN.sub(_WORD_JOINER, title), "path": path}
