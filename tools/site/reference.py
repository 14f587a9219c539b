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
    """Writes pages. An anchor is the full name of a module's member, or of a member of that."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.exported_anchors = {  # by module and name
            m: {name.name: name.anchor for name in library.names(m)} for m in library.modules
        }
        self.module_of_anchor: dict[str, str] = {}
        self.object_at_anchor: dict[str, griffe.Object] = {}
        self.anchors_of_class: dict[str, set[str]] = {}  # several if classes have one name
        for module, names in library.names_by_page.items():
            for name in names:
                self.module_of_anchor[name.anchor] = module
                for item in [name.item, *self._members(name.item)]:
                    if item is not None:
                        self.module_of_anchor[item.path] = module
                        self.object_at_anchor[item.path] = item
                if isinstance(name.item, griffe.Class):
                    self.anchors_of_class.setdefault(name.name, set()).add(name.anchor)

    def address(self, module: str, anchor: str) -> str:
        """Return the address of an anchor, or of a module's page, as linked on a module's page."""
        page = page_path(self.library, module)
        target_module = self.module_of_anchor.get(anchor, anchor)
        path = os.path.relpath(page_path(self.library, target_module), os.path.dirname(page))
        return path if target_module == anchor else f"{path}#{anchor}"

    def address_finder(
        self, module: str, scope: str, parameters: frozenset[str] = frozenset()
    ) -> FindAddress:
        """Return the function that resolves names in the docstring of `scope` on a module's page.
        In classes and modules, members come first, then classes and modules of the whole package.
        In functions, methods of the same class are skipped, as such a word is usually a value."""
        scope_object = self.object_at_anchor.get(scope)
        is_function = isinstance(scope_object, griffe.Function | griffe.Attribute)

        def find_address(text: str) -> str | None:
            """Return the address of a name or page, linked from the docstring of `scope`."""
            text = text.removesuffix("()")
            if text.endswith(".md") and re.fullmatch(r"docs/[\w/.-]+", text):
                page_folder = os.path.dirname(page_path(self.library, module))
                return os.path.relpath(text.removeprefix("docs/"), page_folder)
            if not re.fullmatch(r"[A-Za-z]\w*(\.\w+)*", text) or text in parameters:
                return None
            # What it may be: a name of this module, an export, a full name.
            prefix, _, name = text.rpartition(".")
            exported = self.exported_anchors.get(prefix or module, {}).get(name, "")
            anchors = [f"{module}.{text}", exported, text]
            if not is_function:
                anchors.insert(0, f"{scope}.{text}")
            # Or a class of any module, or its member, if no other class has this name.
            class_name, _, member = text.partition(".")
            class_anchors = self.anchors_of_class.get(class_name, set())
            if len(class_anchors) == 1:
                anchors.append(".".join([*class_anchors, member] if member else class_anchors))
            modules = {} if is_function and "." not in text else self.library.modules
            for anchor in anchors:
                if anchor != scope and (anchor in self.module_of_anchor or anchor in modules):
                    return self.address(module, anchor)
            return None

        return find_address

    def page(self, module: str) -> str:
        """Return the Markdown of a module's page."""
        documented_module = self.library.modules[module]
        title = module if module.count(".") == 0 else module.partition(".")[2]
        text = documented_module.docstring.value if documented_module.docstring else ""
        find_address = self.address_finder(module, scope=module)
        parts = [f"# {title} {{ #{module} }}", to_markdown(text, find_address)]
        source_path = self.library.path_of(module).as_posix()
        parts.append(f"`{module}`, in [`{source_path}`](repository:{source_path})\n{{ .module }}")
        names = self.library.names(module)
        # A name that is a module itself is in the table of submodules.
        reexports = [name for name in names if name.module not in (module, name.anchor)]
        parts.extend(self._submodule_table(module))
        parts.extend(self._reexport_table(module, reexports))
        for name in self.library.names_by_page[module]:
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

    def _table_row(self, module: str, name: str, anchor: str, item: griffe.Object | None) -> str:
        """Return the row of a name on a module's page: link and first sentence, or its value."""
        docstring = item.docstring.value if item is not None and item.docstring else ""
        description = to_markdown(first_sentence(docstring), self.address_finder(module, anchor))
        if isinstance(item, griffe.Attribute) and not docstring:
            description = f"`{' '.join(signatures.signature_of(item).split())}`"
        description = description.replace("|", r"\|")
        return f"| [`{name.rpartition('.')[2]}`]({self.address(module, anchor)}) | {description} |"

    def _name_section(self, module: str, name: PublicName) -> Iterator[str]:
        """Yield the parts of the section on a name; one that an assignment unpacks has no item."""
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
            find_address = self.address_finder(module, item.path, parameters)
            yield to_markdown(item.docstring.value, find_address)

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
            if target.path in self.module_of_anchor and target.parent is not None:
                link = f"[`{target.name}`]({self.address(module, target.path)})"
                links_by_class.setdefault(target.parent.path, []).append(link)
        for base, member_links in links_by_class.items():
            if base in self.module_of_anchor:
                base_link = f"[`{base.rpartition('.')[2]}`]({self.address(module, base)})"
                yield f"From {base_link}: {', '.join(member_links)}."


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
