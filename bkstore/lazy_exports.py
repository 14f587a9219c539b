"""Package attributes that load their module when they are first used (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module


def lazy_names(
    package: str, modules: Mapping[str, str], submodules: Collection[str] = ()
) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a package, which loads public names from their modules.

    `modules` maps each name to its module's full name, a former name to ``module:present_name``;
    `submodules` are submodules loaded when used as attributes. Other names raise `AttributeError`.
    Costs one look-up per use: values are not cached, so that tests can patch the module.

    >>> lazy_names("bkstore", {"LedgerId": "bkstore.ids"})("LedgerId").__module__
    'bkstore.ids'
    """

    def look_up(name: str) -> object:
        if name in submodules:
            return import_module(f"{package}.{name}")
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, present_name = modules[name].partition(":")
        return getattr(import_module(module), present_name or name)

    return look_up


def exported_names(package: str) -> Callable[[], list[str]]:
    """Return the ``__dir__`` of a package, which includes public names that are not yet loaded.

    >>> "open_index" in exported_names("bkstore")()
    True
    """

    def names() -> list[str]:
        module = sys.modules[package]
        return sorted({*vars(module), *module.__all__})

    return names
