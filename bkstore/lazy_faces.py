"""Faces of rooms that load a module only when one of its names is asked for (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module


def lazy_names(
    package: str, homes: Mapping[str, str], rooms: Collection[str] = ()
) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a package: public names by the module that has them.

    `homes` gives each name the whole name of its module; `rooms` are modules of the package that
    are loaded when they are asked for as its attributes. Any other name is `AttributeError`.
    Costs one look-up a name; what is found is not kept, so that a test that patches the module
    is seen.

    >>> lazy_names("bkstore", {"LedgerId": "bkstore.ids"})("LedgerId").__module__
    'bkstore.ids'
    """

    def look_up(name: str) -> object:
        if name in rooms:
            return import_module(f"{package}.{name}")
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return look_up


def names_of_face(package: str) -> Callable[[], list[str]]:
    """Return the ``__dir__`` of a package: its public names, loaded or not, among the others.

    >>> "open_index" in names_of_face("bkstore")()
    True
    """

    def names() -> list[str]:
        module = sys.modules[package]
        return sorted({*vars(module), *module.__all__})

    return names
