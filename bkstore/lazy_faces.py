"""Faces of rooms that load a module only when one of its names is asked for (PEP 562)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

__all__ = ["lazy_names"]


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a package: public names by the module that has them.

    `homes` gives each name the whole name of its module. A name that it does not know is
    `AttributeError`. Costs one look-up a name; what is found is not kept, so that a test that
    patches the module is seen.

    >>> lazy_names("bkstore", {"LedgerId": "bkstore.ids"})("LedgerId").__module__
    'bkstore.ids'
    """

    def look_up(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return look_up
