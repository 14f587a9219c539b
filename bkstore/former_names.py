"""Former names of documented modules, parameters and members, which lead to the present ones.

They are kept for one release, and go with 1.0. Modules look up their attributes when they are used,
so that nothing is loaded before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from operator import attrgetter
from types import ModuleType
from typing import Any, TypeVar

_C = TypeVar("_C", bound=type)

FORMER = {
    "bkstore.cluster.client.handle": "bkstore.cluster.client.ledger_handle",
    "bkstore.formats.metadatafile": "bkstore.formats.metadata.json_file",
    "bkstore.network.sanity": "bkstore.network.sanity_test",
    "bkstore.pulsar.messages": "bkstore.pulsar.metadata_messages",
    "bkstore.storage.entry_logger": "bkstore.storage.entry_log.writer",
    "bkstore.storage.journaling": "bkstore.storage.journal",
    "bkstore.storage.log_scan": "bkstore.storage.entry_log.scan",
    "bkstore.storage.summaries": "bkstore.storage.read_only.ledgers_table",
    "bkstore.testing.storage_machine": "bkstore.testing.suites.storage.machine",
    "bkstore.wire.admin.guard": "bkstore.wire.admin.connection_limits",
    "bkstore.wire.detection": "bkstore.wire.protocol_detection",
    "bkstore.wire.schema": "bkstore.wire.v3_schema",
}


class _FormerModule(ModuleType):
    """A module of a former name, whose attributes are those of the present module."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(import_module(FORMER[self.__name__]), name)


class _FormerNameFinder(MetaPathFinder, Loader):
    """Finds modules by their former names; imports ask it after all others."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for a former name, None for any other."""
        return ModuleSpec(fullname, self) if fullname in FORMER else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return a module that loads the present one when it is used."""
        return _FormerModule(spec.name, f"The former name of `{FORMER[spec.name]}`.")

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module has no code."""


def keep_former_names() -> None:
    """Make the former module names importable; loads nothing."""
    if not any(isinstance(finder, _FormerNameFinder) for finder in sys.meta_path):
        sys.meta_path.append(_FormerNameFinder())


def former_exports(package: str, **present_names: str) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a package, whose public names were called otherwise before.

    >>> former_exports("bkstore.ids", Id="LedgerId")("Id").__name__
    'LedgerId'
    """

    def look_up(name: str) -> object:
        if name not in present_names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(sys.modules[package], present_names[name])

    return look_up


def with_former_members(**present_names: str) -> Callable[[_C], _C]:
    """Let a class take former keywords at its creation, and have former members.

    >>> @with_former_members(at="offset")
    ... class Position:
    ...     def __init__(self, offset: int) -> None:
    ...         self.offset = offset
    >>> Position(at=3).at
    3
    """

    def add_members(cls: _C) -> _C:
        """Make a class accept former parameters, and give its instances the former attributes."""
        create = cls.__init__  # type: ignore[misc]

        @wraps(create)
        def create_with_former(self: object, *args: Any, **kwargs: Any) -> None:
            for former in present_names.keys() & kwargs:
                if present_names[former] in kwargs:
                    raise TypeError(f"{former!r} is the former name of {present_names[former]!r}")
                kwargs[present_names[former]] = kwargs.pop(former)
            create(self, *args, **kwargs)

        cls.__init__ = create_with_former  # type: ignore[misc]
        for former, present in present_names.items():
            setattr(cls, former, property(attrgetter(present)))
        return cls

    return add_members
