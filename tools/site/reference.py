"""The API reference: a page for each public module, with all its public names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

import griffe

from tools.site import signatures
from tools.site.docstrings import FindAddress, to_markdown
from tools.site.public_names import Library, PublicName, first_sentence


class Page(NamedTuple):
    """A page of the reference: its module, its path in the site's sources, its Markdown."""

    module: str
    path: str
    text: str


def page_path(library: Library, module: str) -> str:
    """Return the path of a module's page: ``reference/ids.md``, ``reference/index/api.md``. A
    package's page is the ``index.md`` of its folder, so a module `index` gets ``index_.md``."""
    submodules = module.split(".")[1:]
    if library.path_of(module).name == "__init__.py":
        return "/".join(["reference", *submodules, "index.md"])
    return "/".join(["reference", *submodules]) + ("_.md" if submodules[-1] == "index" else ".md")


def build_pages(library: Library) -> list[Page]:
    """Return the pages of all public modules, packages before their modules."""
    writer = _PageWriter(library)
    return [
        Page(module, page_path(library, module), writer.page(module)) for module in library.modules
    ]


class _PageWriter:
    """Writes pages. `places`: anchor -> module; `shown`: module -> exported name -> anchor."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.shown = {m: {n.name: n.anchor for n in library.names(m)} for m in library.modules}
        self.places: dict[str, str] = {}
        self.items: dict[str, griffe.Object] = {}
        self.classes: dict[str, set[str]] = {}
        for module, names in library.names_by_page.items():
            for name in names:
                self.places[name.anchor] = module
                for item in [name.item, *self._members(name.item)]:
                    if item is not None:
                        self.places[item.path] = module
                        self.items[item.path] = item
                if isinstance(name.item, griffe.Class):
                    self.classes.setdefault(name.name, set()).add(name.anchor)

    def address(self, module: str, anchor: str) -> str:
        page = page_path(self.library, module)
        home = self.places.get(anchor, anchor)
        path = os.path.relpath(page_path(self.library, home), os.path.dirname(page))
        return path if home == anchor else f"{path}#{anchor}"

    def find(self, module: str, scope: str, besides: frozenset[str] = frozenset()) -> FindAddress:
        """Return the function that resolves names in the docstring of `scope` on a module's page.

        In classes and modules, members come first, then classes and modules of the whole package.
        In functions, methods of the same class are skipped, as such a word is usually a value.
        """
        is_function = isinstance(self.items.get(scope), griffe.Function | griffe.Attribute)

        def found(text: str) -> str | None:
            text = text.removesuffix("()")
            if text.endswith(".md") and re.fullmatch(r"docs/[\w/.-]+", text):
                page_folder = os.path.dirname(page_path(self.library, module))
                return os.path.relpath(text.removeprefix("docs/"), page_folder)
            if not re.fullmatch(r"[A-Za-z]\w*(\.\w+)*", text) or text in besides:
                return None
            prefix, _, name = text.rpartition(".")
            exported = self.shown.get(prefix or module, {}).get(name, "")
            anchors = [f"{module}.{text}", exported, text]
            if not is_function:
                anchors.insert(0, f"{scope}.{text}")
            first, _, member = text.partition(".")
            same_name = self.classes.get(first, set())
            if len(same_name) == 1:
                anchors.append(next(iter(same_name)) + ("." + member if member else ""))
            modules = {} if is_function and "." not in text else self.library.modules
            for anchor in anchors:
                if anchor != scope and (anchor in self.places or anchor in modules):
                    return self.address(module, anchor)
            return None

        return found

    def page(self, module: str) -> str:
        documented_module = self.library.modules[module]
        title = module if module.count(".") == 0 else module.partition(".")[2]
        text = documented_module.docstring.value if documented_module.docstring else ""
        parts = [f"# {title} {{ #{module} }}", to_markdown(text, self.find(module, module))]
        source_path = self.library.path_of(module).as_posix()
        parts.append(f"`{module}`, in [`{source_path}`](repository:{source_path})\n{{ .module }}")
        own_names = self.library.names_by_page[module]
        reexports = [n for n in self.library.names(module) if n.module not in (module, n.anchor)]
        parts.extend(self._submodule_table(module))
        parts.extend(self._reexport_table(module, reexports))
        for name in own_names:
            parts.extend(self._name_section(module, name))
        return "\n\n".join(parts) + "\n"

    def _submodule_table(self, module: str) -> Iterator[str]:
        submodules = [m for m in self.library.modules if m.rpartition(".")[0] == module]
        if submodules:
            rows = [self._table_row(module, m, m, self.library.modules[m]) for m in submodules]
            yield "\n".join(["| module | about |", "|---|---|", *rows])

    def _reexport_table(self, module: str, names: list[PublicName]) -> Iterator[str]:
        if names:
            rows = [self._table_row(module, n.name, n.anchor, n.item) for n in names]
            ids = [f'<span id="{module}.{n.name}"></span>' for n in names]
            yield "## Names shown here\n\n" + "".join(ids)
            yield "\n".join(["| name | is |", "|---|---|", *rows])

    def _table_row(self, module: str, text: str, anchor: str, item: griffe.Object | None) -> str:
        docstring = item.docstring.value if item is not None and item.docstring else ""
        description = to_markdown(first_sentence(docstring), self.find(module, anchor))
        if isinstance(item, griffe.Attribute) and not docstring:
            description = f"`{' '.join(signatures.signature_of(item).split())}`"
        link = f"[`{text.rpartition('.')[2]}`]({self.address(module, anchor)})"
        return f"| {link} | {description.replace('|', chr(92) + '|')} |"

    def _name_section(self, module: str, name: PublicName) -> Iterator[str]:
        item = name.item
        kind = item.kind.value if item is not None else "attribute"
        yield _heading(2, name.name, name.anchor, kind)
        if item is None:
            yield _code_block(name.source)
            return
        yield from self._signature_and_text(module, item)
        if isinstance(item, griffe.Class):
            for member in self._members(item):
                yield _heading(3, member.name, member.path, _kind(member))
                yield from self._signature_and_text(module, member)
            yield from self._inherited_lines(module, item)

    def _signature_and_text(self, module: str, item: griffe.Object) -> Iterator[str]:
        yield _code_block(signatures.signature_of(item))
        if item.docstring:
            parameters = frozenset(_parameter_names(item))
            yield to_markdown(item.docstring.value, self.find(module, item.path, parameters))

    def _members(self, item: griffe.Object | None) -> list[griffe.Object]:
        """Return the documented methods, properties and attributes of a class, else nothing."""
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

    def _inherited_lines(self, module: str, item: griffe.Class) -> Iterator[str]:
        """Yield a line for each public base class with the methods inherited from it."""
        links_by_class: dict[str, list[str]] = {}
        for member in item.inherited_members.values():
            target = member.final_target
            if target.path in self.places and target.parent is not None:
                text = f"[`{target.name}`]({self.address(module, target.path)})"
                links_by_class.setdefault(target.parent.path, []).append(text)
        for owner, links in links_by_class.items():
            if owner in self.places:
                link = f"[`{owner.rpartition('.')[2]}`]({self.address(module, owner)})"
                yield f"From {link}: {', '.join(links)}."


def _heading(level: int, text: str, anchor: str, kind: str) -> str:
    line = f"{'#' * level} {text} {{ #{anchor} .{kind} }}"
    return line.replace("_", r"\_")  # a double underscore would begin bold text


def _kind(member: griffe.Object) -> str:
    return "property" if "property" in member.labels else member.kind.value


def _parameter_names(item: griffe.Object) -> list[str]:
    if isinstance(item, griffe.Function):
        return [parameter.name for parameter in item.parameters]
    return []


def _code_block(source: str) -> str:
    return f"```python\n{source}\n```"
