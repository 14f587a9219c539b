"""What is wrong with a built site: links that lead nowhere, requests to elsewhere, raw Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urljoin, urlsplit

_LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
_NOT_LOADED = {"canonical", "next", "prev", "alternate"}
_RAW = re.compile(r"```|\]\(|\{ #|^ ?[*-] \w", re.MULTILINE)
_HERE = "http://site.invalid/"


class Link(NamedTuple):
    """An address on a page, and whether a browser loads it to show the page."""

    address: str
    loaded: bool


class _Reader(HTMLParser):
    """Collects a page's anchors and links, and the text outside its code."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[Link] = []
        self.prose: list[str] = []
        self._code = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if "id" in found:
            self.anchors.add(found["id"])
        if tag in ("code", "pre", "script", "style"):
            self._code += 1
        attribute = "href" if tag == "a" else _LOADED.get(tag, "")
        if found.get(attribute):
            loaded = tag != "a" and found.get("rel", "") not in _NOT_LOADED
            self.links.append(Link(found[attribute], loaded))

    def handle_endtag(self, tag: str) -> None:
        if tag in ("code", "pre", "script", "style"):
            self._code -= 1

    def handle_data(self, data: str) -> None:
        if not self._code:
            self.prose.append(data)


def _read(page: Path) -> _Reader:
    reader = _Reader()
    reader.feed(page.read_text(encoding="utf-8"))
    reader.close()
    return reader


def anchors(page: Path) -> set[str]:
    """Return the ids of a built page."""
    return _read(page).anchors


def _target(site: Path, page: Path, address: str) -> tuple[Path, str] | None:
    """Return the file and the anchor that a link of a page means; None for one to elsewhere."""
    whole = urljoin(_HERE + page.relative_to(site).as_posix(), address)
    if not whole.startswith(_HERE):
        return None
    parts = urlsplit(whole)
    path = site / unquote(parts.path).lstrip("/")
    return (path / "index.html" if path.is_dir() else path), unquote(parts.fragment)


def problems(site: Path) -> Iterator[str]:
    """Yield what is wrong, a line each: a link without target, a request, Markdown that is left.

    404.html is left out: whoever serves it does so under any address, so its links begin at the
    root of a host.
    """
    read = {page: _read(page) for page in sorted(site.glob("**/*.html")) if page.name != "404.html"}
    for page, reader in read.items():
        name = page.relative_to(site)
        for link in reader.links:
            target = _target(site, page, link.address)
            if target is None:
                if link.loaded:
                    yield f"{name}: {link.address} is loaded from elsewhere"
            elif not target[0].is_file():
                yield f"{name}: {link.address} leads to no file"
            elif target[1] and target[0] in read and target[1] not in read[target[0]].anchors:
                yield f"{name}: {link.address} leads to no anchor"
        for left in _RAW.finditer("".join(reader.prose)):
            yield f"{name}: {left[0]!r} is left of the Markdown"
    for sheet in site.glob("**/*.css"):
        for address in re.findall(r"url\(\s*['\"]?(https?:[^)'\"]+)", sheet.read_text("utf-8")):
            yield f"{sheet.relative_to(site)}: {address} is loaded from elsewhere"
