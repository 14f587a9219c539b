"""Faults of a built site: broken links, requests to other hosts, raw Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urljoin, urlsplit

_LOADED_ATTRIBUTES = {"link": "href", "source": "srcset"}
_LOADED_ATTRIBUTES |= dict.fromkeys(("script", "img", "iframe"), "src")
_REFERRING_RELATIONS = {"canonical", "next", "prev", "alternate"}
_RAW_MARKDOWN_PATTERN = re.compile(r"```|\]\(|\{ #|^ ?[*-] \w", re.MULTILINE)
_SITE_URL = "http://site.invalid/"


class PageLink(NamedTuple):
    """An address on a page, and whether a browser loads it when it shows the page."""

    address: str
    is_loaded: bool


class _PageReader(HTMLParser):
    """Collects a page's anchors and links, and the text outside its code."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[PageLink] = []
        self.prose: list[str] = []
        self._code_depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if "id" in attributes:
            self.anchors.add(attributes["id"])
        if tag in ("code", "pre", "script", "style"):
            self._code_depth += 1
        # A browser loads the addresses of all tags but <a>, and <link> that only refers to a page.
        address = attributes.get("href" if tag == "a" else _LOADED_ATTRIBUTES.get(tag, ""))
        if address:
            is_loaded = tag != "a" and attributes.get("rel", "") not in _REFERRING_RELATIONS
            self.links.append(PageLink(address, is_loaded))

    def handle_endtag(self, tag: str) -> None:
        if tag in ("code", "pre", "script", "style"):
            self._code_depth -= 1

    def handle_data(self, data: str) -> None:
        if not self._code_depth:
            self.prose.append(data)


def _read_page(page: Path) -> _PageReader:
    reader = _PageReader()
    reader.feed(page.read_text(encoding="utf-8"))
    reader.close()
    return reader


def read_anchors(page: Path) -> set[str]:
    """Return the ids of a built page."""
    return _read_page(page).anchors


def _resolve_link(site: Path, page: Path, address: str) -> tuple[Path, str] | None:
    """Return the file and the anchor that a link leads to, or None if it leaves the site."""
    url = urljoin(_SITE_URL + page.relative_to(site).as_posix(), address)
    if not url.startswith(_SITE_URL):
        return None
    parts = urlsplit(url)
    path = site / unquote(parts.path).lstrip("/")
    return (path / "index.html" if path.is_dir() else path), unquote(parts.fragment)


def find_problems(site: Path) -> Iterator[str]:
    """Yield a line for each broken link, each request to another host, and each raw Markdown.
    404.html is not checked: it is served under any address, so its links are absolute."""
    pages = (page for page in sorted(site.glob("**/*.html")) if page.name != "404.html")
    readers = {page: _read_page(page) for page in pages}
    for page, reader in readers.items():
        page_name = page.relative_to(site)
        for link in reader.links:
            target = _resolve_link(site, page, link.address)
            if target is None:
                if link.is_loaded:
                    yield f"{page_name}: {link.address} is loaded from elsewhere"
                continue
            file, anchor = target
            if not file.is_file():
                yield f"{page_name}: {link.address} leads to no file"
            elif anchor and file in readers and anchor not in readers[file].anchors:
                yield f"{page_name}: {link.address} leads to no anchor"
        for raw_markdown in _RAW_MARKDOWN_PATTERN.finditer("".join(reader.prose)):
            yield f"{page_name}: {raw_markdown[0]!r} is left of the Markdown"
    for sheet in site.glob("**/*.css"):
        for address in re.findall(r"url\(\s*['\"]?(https?:[^)'\"]+)", sheet.read_text("utf-8")):
            yield f"{sheet.relative_to(site)}: {address} is loaded from elsewhere"
