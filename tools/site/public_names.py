"""Public names and the modules that document them, read from the source without importing it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import griffe

Item = griffe.Object | griffe.Alias


class PublicName(NamedTuple):
    """A public name of a module, and the object that it names. `module` is the module that
    documents it, `anchor` its anchor there. `item` is None for a module, and for a name that an
    assignment unpacks (``A, B = 1, 2``): `source` is the assignment."""

    name: str
    module: str
    anchor: str
    item: griffe.Object | None
    source: str = ""


def first_sentence(text: str) -> str:
    """Return the first sentence of a docstring's first paragraph, on one line."""
    paragraph = " ".join(text.strip().partition("\n\n")[0].split())
    end = paragraph.find(". ")
    return paragraph if end < 0 else paragraph[: end + 1]


def _walk(module: griffe.Module) -> Iterator[griffe.Module]:
    yield module
    for _, submodule in sorted(module.modules.items()):
        if isinstance(submodule, griffe.Module):
            yield from _walk(submodule)


def _bound_names(statements: Iterable[ast.stmt]) -> Iterator[str]:
    """Yield the names that statements define, not import, also below ``if`` and ``try``."""
    for statement in statements:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield statement.name
            case ast.Assign(targets=targets):
                for target in targets:
                    yield from (n.id for n in ast.walk(target) if isinstance(n, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.If() | ast.Try():
                yield from _bound_names([*statement.body, *statement.orelse])


class Library:
    """A package's modules and their public names, found in its folder."""

    def __init__(self, package: str, root: Path) -> None:
        loaded = griffe.load(
            package, search_paths=[root], try_relative_path=False, allow_inspection=False
        )
        if not isinstance(loaded, griffe.Module):
            raise TypeError(f"{package} is no package of {root}")
        self.root = root
        public = (module for module in _walk(loaded) if not module.name.startswith("_"))
        self.modules = {module.path: module for module in public}

    def exports(self, module: str) -> list[str]:
        """Return the names of ``__all__``, or else the names defined without an underscore."""
        exports = self.modules[module].exports
        if exports is not None:
            return [str(name) for name in exports]
        text = (self.root / self.path_of(module)).read_text(encoding="utf-8")
        names = dict.fromkeys(_bound_names(ast.parse(text).body))
        return sorted(name for name in names if not name.startswith("_"))

    def names(self, module: str) -> list[PublicName]:
        """Return the module's public names; raise `LookupError` for an undefined one."""
        return [self._resolve(module, name) for name in self.exports(module)]

    @cached_property
    def names_by_page(self) -> dict[str, list[PublicName]]:
        """Module -> the names that its page documents: its own, and those that others export."""
        names_by_anchor: dict[str, dict[str, PublicName]] = {module: {} for module in self.modules}
        for module in self.modules:
            for name in self.names(module):
                is_module = name.module == name.anchor  # these have a page of their own
                if name.module in names_by_anchor and not is_module:
                    names_by_anchor[name.module].setdefault(name.anchor, name)
        return {module: list(names.values()) for module, names in names_by_anchor.items()}

    def path_of(self, module: str) -> Path:
        """Return the module's file, relative to the root."""
        file = self.modules[module].filepath
        if not isinstance(file, Path):
            raise LookupError(f"{module} is a folder without __init__.py")
        return file.resolve().relative_to(self.root.resolve())

    def _resolve(self, module: str, name: str) -> PublicName:
        """Return a name that a module exports: a submodule, an object, or an unpacked value."""
        if f"{module}.{name}" in self.modules:
            return PublicName(name, f"{module}.{name}", f"{module}.{name}", None)
        member = self.modules[module].members.get(name)
        if member is None:
            assignment = self._find_assignment(module, name)
            return PublicName(name, module, f"{module}.{name}", None, assignment)
        try:
            item = member.final_target if isinstance(member, griffe.Alias) else member
        except griffe.AliasResolutionError as error:
            raise LookupError(f"{module}: {name} of its __all__ leads to nothing") from error
        defining_module = item.module.path
        if defining_module not in self.modules:
            text = f"{module}: {name} is at home in {defining_module}, which is not public"
            raise LookupError(text)
        return PublicName(name, defining_module, item.path, item)

    def _find_assignment(self, module: str, name: str) -> str:
        """Return the source of the assignment that unpacks into a name, such as ``A, B = 1, 2``."""
        text = (self.root / self.path_of(module)).read_text(encoding="utf-8")
        for statement in ast.parse(text).body:
            if isinstance(statement, ast.Assign):
                bound = {n.id for t in statement.targets for n in ast.walk(t) if hasattr(n, "id")}
                if name in bound:
                    return ast.unparse(statement)
        raise LookupError(f"{module}: nothing defines {name} of its __all__")
