"""Former names of documented modules, which redirect to the present ones.

Each looks up its attributes when they are used, so that nothing is loaded before.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

FORMER = {
    "bkstore.formats.metadatafile": "bkstore.formats.metadata.json_file",
    "bkstore.storage.entry_logger": "bkstore.storage.entry_log.writer",
    "bkstore.storage.journaling": "bkstore.storage.journal",
    "bkstore.storage.log_scan": "bkstore.storage.entry_log.scan",
    "bkstore.storage.summaries": "bkstore.storage.read_only.ledgers_table",
    "bkstore.testing.storage_machine": "bkstore.testing.suites.storage.machine",
}


class _FormerModule(ModuleType):
    def __init__(self, name: str, home: str) -> None:
        super().__init__(name, f"The former name of `{home}`.")
        self.__spec__ = ModuleSpec(name, None)
        self._present_name = home

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(import_module(self._present_name), name)


def keep_former_names() -> None:
    """Make the former names importable; loads nothing."""
    for name, home in FORMER.items():
        sys.modules.setdefault(name, _FormerModule(name, home))
