"""bkstore: Apache BookKeeper bookie storage, outside the JVM.

Reads, writes, models and analyzes how bookies store and index ledgers. Start with `open_index` to
find the entries of a ledger, `BookieDir` for directories, `LedgerStorage` and `Bookie` to write.

The packages, each with a docstring that names what to read first: `availability`, `ledger_metadata`
and `tables` are values; `formats` encodes and decodes bytes; `files` accesses the disk; `index`
locates entries, `bloom` and `streams` the object with a stream's offsets; `storage` is one bookie,
`cluster` several, `wire` their network protocols; `offline`, `spark` and `report` work on stopped
bookies; `testing` is for tests, `cli` the command line. Modules for all of them: `ids`, `errors`,
`arguments` (checks of arguments), `schedule` (which bookies get which entries), `metrics`, `forks`;
`version`, `lazy_exports` and `former_names` are about imports. The whole map:
`docs/architecture.md`. Names and packages are loaded on first use, and numpy with the first that
needs it.

>>> from bkstore import Availability
>>> Availability.from_entries([0, 1, 3, 4, 6, 7]).groups.tolist()
[[0, 6, 2, 3]]
"""

import logging
from typing import TYPE_CHECKING

from bkstore.errors import (
    BadVersion,
    BkstoreError,
    BookieUnavailable,
    CorruptionError,
    DataUnknown,
    DirectoryInUse,
    IllegalOperation,
    InvalidArgument,
    LedgerExists,
    LedgerFenced,
    LoadFailed,
    MissingDependency,
    NoSuchEntry,
    NoSuchLedger,
    NotEnoughBookies,
    ReadFailed,
    ReadOnlyError,
    SyncFailed,
    SystemRefused,
    TooManyRequests,
    UnauthorizedAccess,
    UnsupportedLayout,
    WriteFailed,
)
from bkstore.former_names import keep_former_names
from bkstore.lazy_exports import exported_names, lazy_names
from bkstore.version import __version__

if TYPE_CHECKING:
    from bkstore.availability import Availability
    from bkstore.ids import LedgerId
    from bkstore.index.api import EntryIndex
    from bkstore.storage.bookie import Bookie
    from bkstore.storage.ledger_storage import LedgerStorage
    from bkstore.storage.read_only.bookie_dir import BookieDir, open_index

__all__ = [
    "Availability",
    "BadVersion",
    "BkstoreError",
    "Bookie",
    "BookieDir",
    "BookieUnavailable",
    "CorruptionError",
    "DataUnknown",
    "DirectoryInUse",
    "EntryIndex",
    "IllegalOperation",
    "InvalidArgument",
    "LedgerExists",
    "LedgerFenced",
    "LedgerId",
    "LedgerStorage",
    "LoadFailed",
    "MissingDependency",
    "NoSuchEntry",
    "NoSuchLedger",
    "NotEnoughBookies",
    "ReadFailed",
    "ReadOnlyError",
    "SyncFailed",
    "SystemRefused",
    "TooManyRequests",
    "UnauthorizedAccess",
    "UnsupportedLayout",
    "WriteFailed",
    "__version__",
    "open_index",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())

keep_former_names()

__getattr__ = lazy_names(
    __name__,
    {
        "Availability": "bkstore.availability",
        "Bookie": "bkstore.storage.bookie",
        "BookieDir": "bkstore.storage.read_only.bookie_dir",
        "EntryIndex": "bkstore.index.api",
        "LedgerId": "bkstore.ids",
        "LedgerStorage": "bkstore.storage.ledger_storage",
        "open_index": "bkstore.storage.read_only.bookie_dir",
    },
    submodules=(
        "availability",
        "bloom",
        "cluster",
        "formats",
        "ids",
        "index",
        "ledger_metadata",
        "metrics",
        "offline",
        "report",
        "schedule",
        "spark",
        "storage",
        "streams",
        "tables",
        "testing",
    ),
)
__dir__ = exported_names(__name__)
