"""The examples on the format pages, as bytes and as text."""

from __future__ import annotations

import re

from tests.paths import ROOT

FORMATS = ROOT / "docs" / "formats"

_EXAMPLE = re.compile(r"<!-- example: (\S+) -->\s*^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def shown_text(page: str, name: str) -> str:
    """Return the text of one example of a page."""
    found: dict[str, str] = dict(_EXAMPLE.findall((FORMATS / page).read_text(encoding="utf-8")))
    return found[name]


def hex_bytes(text: str) -> bytes:
    """Return the bytes of words such as `0aff` and `00*20`."""
    words = (word.partition("*") for word in text.split())
    return b"".join(bytes.fromhex(digits) * int(times or 1) for digits, _, times in words)


def shown_bytes(page: str, name: str) -> bytes:
    """Return the bytes of a hex example; the offset before each line is checked on the way."""
    data = b""
    for line in shown_text(page, name).splitlines():
        offset, _, rest = line.partition(":")

        assert int(offset) == len(data), f"{page}, {name}: {line}"

        data += hex_bytes(rest.partition(";")[0])
    return data
