"""Reading a report's page back without a browser: elements in their places, rows of tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from bkstore.report import write_report
from tests.report.samples import SAMPLES, Sample

if TYPE_CHECKING:
    import pyarrow as pa

VOID = {"meta", "wbr", "br", "hr", "input", "link", "img"}


@dataclass
class Element:
    """An element: name, attributes, children (elements and text)."""

    name: str
    attributes: dict[str, str | None]
    children: list[Element | str] = field(default_factory=list)

    def all(self, name: str) -> Iterator[Element]:
        """Yield the elements of a name below this one, in document order."""
        for child in self.children:
            if isinstance(child, Element):
                if child.name == name:
                    yield child
                yield from child.all(name)

    def everything(self) -> Iterator[Element]:
        """Yield this element and all below."""
        yield self
        for child in self.children:
            if isinstance(child, Element):
                yield from child.everything()

    @property
    def text(self) -> str:
        """The text of it and of all below."""
        return "".join(c if isinstance(c, str) else c.text for c in self.children)

    def by_id(self, wanted: str) -> Element:
        """Return the element of that id."""
        (found,) = (e for e in self.everything() if e.attributes.get("id") == wanted)
        return found

    def by_class(self, wanted: str) -> Element:
        """Return the first element of that class."""
        return next(
            e for e in self.everything() if wanted in (e.attributes.get("class") or "").split()
        )


class _Reader(HTMLParser):
    """Builds the tree, and refuses what a browser would have to repair."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("document", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(attrs) == len(dict(attrs)), f"attribute twice in {tag}: {attrs}"
        element = Element(tag, dict(attrs))
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert any(each.name == "svg" for each in self.open), f"<{tag}/> outside SVG"
        self.open[-1].children.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].name == tag, f"</{tag}> closes <{self.open[-1].name}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def read(text: str) -> Element:
    """Return the document; AssertionError where it is not well formed."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert [reader.root] == reader.open, [each.name for each in reader.open]
    return reader.root


def written(
    folder: Path, tables: Mapping[str, pa.Table], title: str = "A report", **source: Any
) -> Element:
    """Return the page about some tables, read back."""
    target = folder / "report.html"
    write_report(target, tables, title=title, source=source)
    return read(target.read_text(encoding="utf-8"))


def page_of(folder: Path, sample: Sample) -> Element:
    """Return the page about a sample, read back."""
    return written(folder, sample.tables, sample.title, **sample.source)


@cache
def sample_page(name: str) -> Element:
    """Return the page about one of `SAMPLES`, for who only reads it."""
    with TemporaryDirectory() as folder:
        return page_of(Path(folder), SAMPLES[name]())


def rows(page: Element, name: str) -> list[dict[str, str]]:
    """Return the rows of a table of the page, by heading."""
    (table,) = page.by_id(name).all("table")
    heads = [head.text for head in table.all("th")]
    (body,) = table.all("tbody")
    return [dict(zip(heads, (cell.text for cell in row.all("td")))) for row in body.all("tr")]


def verdict(page: Element) -> list[str]:
    """Return the headline: its word, then its sentences."""
    box = page.by_class("verdict")
    return [*(e.text for e in box.all("strong")), *(e.text for e in box.all("p"))]


def tile(page: Element, name: str) -> str:
    """Return the text of a tile."""
    (found,) = (
        e for e in page.everything() if e.attributes.get("aria-labelledby") == f"tile-{name}"
    )
    return found.text
