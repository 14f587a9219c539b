"""Package attributes that load their module when they are first used (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module


def lazy_names(
    package: str, homes: Mapping[str, str], rooms: Collection[str] = ()
) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a package, which loads public names from their modules.

    `homes` maps each name to its module's full name; `rooms` are submodules loaded when used as
    attributes. Other names raise `AttributeError`. Costs one look-up per use: values are not
    cached, so that tests can patch the module.

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
    """Return the ``__dir__`` of a package, which includes public names that are not yet loaded.

    >>> "open_index" in names_of_face("bkstore")()
    True
    """

    def names() -> list[str]:
        module = sys.modules[package]
        return sorted({*vars(module), *module.__all__})

    return names
