"""The page `docs/server-conf.md` has the keys that are declared, with their types and defaults."""

from __future__ import annotations

import re

from bkstore.network.settings.keys import HONORED_KEYS, IGNORED_KEYS, REFUSED_KEYS, ConfKey
from tests.paths import ROOT

_CELL = re.compile(r"^\| `([^`]+)` \|(.*)\|$", re.MULTILINE)


def _tables() -> dict[str, list[tuple[str, ...]]]:
    """Return the rows of the page's tables of keys, by the heading that they stand under."""
    page = (ROOT / "docs" / "server-conf.md").read_text()
    sections = re.split(r"^## (.*)$", page, flags=re.MULTILINE)
    return {
        heading: [
            (name, *(cell.strip() for cell in rest.split(" | ")))
            for name, rest in _CELL.findall(text)
        ]
        for heading, text in zip(sections[1::2], sections[2::2])
    }


def _shown(default: object) -> str:
    if default in (None, ""):
        return "none"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    text = ",".join(default) if isinstance(default, list) else str(default)
    return f"`{text.rpartition('.')[2] if text.startswith('org.') else text}`"


def _set_by(key: ConfKey) -> str:
    if key.option.startswith("--"):
        return f"`{key.option}`"
    place, space, more = key.option.partition(" ")
    return f"`{place}`{space}{more}" if "." in place else key.option


def test_honored_keys() -> None:
    """Each key that is honored, in the order of the declaration."""
    expected = [
        (key.name, key.value_type, _shown(key.default), _set_by(key))
        for key in HONORED_KEYS.values()
    ]
    assert expected == _tables()["Keys that `bkstore serve` honors"]


def test_refused_keys() -> None:
    """Each key of security, and what of it is refused."""
    assert [*REFUSED_KEYS.items()] == _tables()["Keys of security"]


def test_keys_that_are_not_honored() -> None:
    """Each key that is named at the start, with the default for which it is not."""
    expected = [(name, _shown(default)) for name, default in IGNORED_KEYS.items()]

    assert expected == _tables()["Keys that are not honored"]
