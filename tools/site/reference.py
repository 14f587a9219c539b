"""The reference: a page for each public module, with all its public names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

import griffe

from tools.site import signatures
from tools.site.docstrings import Find, markdown
from tools.site.public import Library, Name, first_sentence


class Page(NamedTuple):
    """A page of the reference: its module, its path among the site's sources, its Markdown."""

    module: str
    path: str
    text: str


def page_path(library: Library, module: str) -> str:
    """Return the path of a module's page: ``reference/ids.md``, ``reference/index/api.md``.

    A room's is the ``index.md`` of its folder, so a module of the name `index` has another.
    """
    below = module.split(".")[1:]
    if library.path_of(module).name == "__init__.py":
        return "/".join(["reference", *below, "index.md"])
    return "/".join(["reference", *below]) + ("_.md" if below[-1] == "index" else ".md")


def pages(library: Library) -> list[Page]:
    """Return the pages of all public modules; the package itself first, rooms before theirs."""
    writer = _Writer(library)
    return [
        Page(module, page_path(library, module), writer.page(module)) for module in library.modules
    ]


class _Writer:
    """Writes pages; knows which name means what, and where."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.shown = {m: {n.name: n.anchor for n in library.names(m)} for m in library.modules}
        self.places: dict[str, str] = {}
        self.items: dict[str, griffe.Object] = {}
        self.classes: dict[str, set[str]] = {}
        for module, names in library.documented.items():
            for name in names:
                self.places[name.anchor] = module
                for item in [name.item, *self._members(name.item)]:
                    if item is not None:
                        self.places[item.path] = module
                        self.items[item.path] = item
                if isinstance(name.item, griffe.Class):
                    self.classes.setdefault(name.name, set()).add(name.anchor)

    # -- addresses

    def address(self, module: str, anchor: str) -> str:
        """Return the link from a module's page to what has the anchor."""
        here = page_path(self.library, module)
        home = self.places.get(anchor, anchor)
        path = os.path.relpath(page_path(self.library, home), os.path.dirname(here))
        return path if home == anchor else f"{path}#{anchor}"

    def find(self, module: str, scope: str, besides: frozenset[str] = frozenset()) -> Find:
        """Return what finds a name as the docstring of `scope`, on this module's page, means it.

        A class and a module mean their members, then classes and modules wherever they are; a
        function does not mean the methods beside it, as its text is about values of such names.
        """
        function = isinstance(self.items.get(scope), griffe.Function | griffe.Attribute)

        def found(text: str) -> str | None:
            text = text.removesuffix("()")
            if text.endswith(".md") and re.fullmatch(r"docs/[\w/.-]+", text):
                here = os.path.dirname(page_path(self.library, module))
                return os.path.relpath(text.removeprefix("docs/"), here)
            if not re.fullmatch(r"[A-Za-z]\w*(\.\w+)*", text) or text in besides:
                return None
            room, _, name = text.rpartition(".")
            shown = self.shown.get(room or module, {}).get(name, "")
            tries = [f"{module}.{text}", shown, text]
            if not function:
                tries.insert(0, f"{scope}.{text}")
            first, _, rest = text.partition(".")
            anywhere = self.classes.get(first, set())
            if len(anywhere) == 1:
                tries.append(next(iter(anywhere)) + ("." + rest if rest else ""))
            modules = {} if function and "." not in text else self.library.modules
            for anchor in tries:
                if anchor != scope and (anchor in self.places or anchor in modules):
                    return self.address(module, anchor)
            return None

        return found

    # -- pages

    def page(self, module: str) -> str:
        """Return the page of a module."""
        source = self.library.modules[module]
        title = module if module.count(".") == 0 else module.partition(".")[2]
        text = source.docstring.value if source.docstring else ""
        parts = [f"# {title} {{ #{module} }}", markdown(text, self.find(module, module))]
        where = self.library.path_of(module).as_posix()
        parts.append(f"`{module}`, in [`{where}`](repository:{where})\n{{ .module }}")
        here = self.library.documented[module]
        elsewhere = [n for n in self.library.names(module) if n.home not in (module, n.anchor)]
        parts.extend(self._below(module))
        parts.extend(self._shown(module, elsewhere))
        for name in here:
            parts.extend(self._name(module, name))
        return "\n\n".join(parts) + "\n"

    def _below(self, module: str) -> Iterator[str]:
        """Yield the table of the modules right below."""
        below = [m for m in self.library.modules if m.rpartition(".")[0] == module]
        if below:
            rows = [self._row(module, m, m, self.library.modules[m]) for m in below]
            yield "\n".join(["| module | about |", "|---|---|", *rows])

    def _shown(self, module: str, names: list[Name]) -> Iterator[str]:
        """Yield the table of the names that this module shows and another documents."""
        if names:
            rows = [self._row(module, n.name, n.anchor, n.item) for n in names]
            ids = [f'<span id="{module}.{n.name}"></span>' for n in names]
            yield "## Names shown here\n\n" + "".join(ids)
            yield "\n".join(["| name | is |", "|---|---|", *rows])

    def _row(self, module: str, text: str, anchor: str, item: griffe.Object | None) -> str:
        doc = item.docstring.value if item is not None and item.docstring else ""
        about = markdown(first_sentence(doc), self.find(module, anchor))
        if isinstance(item, griffe.Attribute) and not doc:
            about = f"`{' '.join(signatures.of(item).split())}`"
        link = f"[`{text.rpartition('.')[2]}`]({self.address(module, anchor)})"
        return f"| {link} | {about.replace('|', chr(92) + '|')} |"

    def _name(self, module: str, name: Name) -> Iterator[str]:
        item = name.item
        kind = item.kind.value if item is not None else "attribute"
        yield _heading(2, name.name, name.anchor, kind)
        if item is None:
            yield _code(name.source)
            return
        yield from self._body(module, item)
        if isinstance(item, griffe.Class):
            for member in self._members(item):
                yield _heading(3, member.name, member.path, _kind(member))
                yield from self._body(module, member)
            yield from self._inherited(module, item)

    def _body(self, module: str, item: griffe.Object) -> Iterator[str]:
        yield _code(signatures.of(item))
        if item.docstring:
            besides = frozenset(_parameter_names(item))
            yield markdown(item.docstring.value, self.find(module, item.path, besides))

    def _members(self, item: griffe.Object | None) -> list[griffe.Object]:
        """Return the documented methods, properties and attributes of a class; none else."""
        if not isinstance(item, griffe.Class):
            return []
        return [
            member
            for member in item.members.values()
            if isinstance(member, griffe.Object)
            and member.docstring
            and not isinstance(member, griffe.Class)
            and (not member.name.startswith("_") or member.is_special)
            and member.name != "__init__"
        ]

    def _inherited(self, module: str, item: griffe.Class) -> Iterator[str]:
        """Yield, for each public class above, which of its methods this one has too."""
        above: dict[str, list[str]] = {}
        for member in item.inherited_members.values():
            target = member.final_target
            if target.path in self.places and target.parent is not None:
                text = f"[`{target.name}`]({self.address(module, target.path)})"
                above.setdefault(target.parent.path, []).append(text)
        for owner, links in above.items():
            if owner in self.places:
                link = f"[`{owner.rpartition('.')[2]}`]({self.address(module, owner)})"
                yield f"From {link}: {', '.join(links)}."


def _heading(level: int, text: str, anchor: str, kind: str) -> str:
    line = f"{'#' * level} {text} {{ #{anchor} .{kind} }}"
    return line.replace("_", r"\_")  # two of them would begin what is bold


def _kind(member: griffe.Object) -> str:
    return "property" if "property" in member.labels else member.kind.value


def _parameter_names(item: griffe.Object) -> list[str]:
    if isinstance(item, griffe.Function):
        return [parameter.name for parameter in item.parameters]
    return []


def _code(source: str) -> str:
    return f"```python\n{source}\n```"
