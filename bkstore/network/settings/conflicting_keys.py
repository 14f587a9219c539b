"""Keys that conflict: a bookie refuses to start with some combinations, as BookKeeper's does."""

from __future__ import annotations

from typing import Any

from bkstore.errors import InvalidArgument
from bkstore.formats.syntax.configuration import Configuration
from bkstore.network.settings.keys import HONORED_KEYS


def check_conflicts(conf: Configuration) -> None:
    """Raise `InvalidArgument` for combinations of keys that a bookie refuses to start with."""

    def read(key: str) -> Any:
        return HONORED_KEYS[key].read(conf)

    alignment = read("journalAlignmentSize")
    if alignment < 512 or alignment % 512:
        raise InvalidArgument(f"journalAlignmentSize: {alignment} is not a multiple of 512")
    if alignment > read("journalPreAllocSizeMB") << 20:
        raise InvalidArgument("journalPreAllocSizeMB: is less than journalAlignmentSize")
    journal_version = read("journalFormatVersionToWrite")
    index_version = read("fileInfoFormatVersionToWrite")
    if (journal_version >= 6) != (index_version >= 1):
        raise InvalidArgument(
            "journalFormatVersionToWrite: must be 6 or more if fileInfoFormatVersionToWrite is 1 "
            "or more, and only then: both keep explicit LACs"
        )
    if read("forceReadOnlyBookie") and not read("readOnlyModeEnabled"):
        raise InvalidArgument("forceReadOnlyBookie: needs readOnlyModeEnabled, which is false")
    if not read("bookiePort") and not conf.boolean("allowEphemeralPorts", False):
        raise InvalidArgument("bookiePort: 0 (any free port) needs allowEphemeralPorts=true")
