"""The tables that single commands print."""

from __future__ import annotations

from bkstore.tables.dump import LEDGERS
from bkstore.tables.table import Column, Schema, schema

_AT = LEDGERS.names.index("explicit_lac") + 1

LEDGER_LIST = Schema(
    "ledger_list",
    (
        *LEDGERS.columns[:_AT],
        Column("explicit_lac_entry", "int64", True),
        *LEDGERS.columns[_AT:],
    ),
)
"""One row a ledger (`bkstore ledgers`): a dump's columns, and the entry that an explicit LAC says.

`explicit_lac_entry` is null without an explicit LAC, and where the bytes are no body of one."""

LOCATIONS = schema(
    "locations",
    ("entry_id", "int64"),
    ("dir_index", "int32"),
    ("log_id", "int64"),
    ("position", "int64"),
    ("location", "int64"),
)
"""The entries of one ledger with their places (`bkstore ledger`)."""

AVAILABILITY = schema(
    "availability",
    ("scope_id", "int64"),
    ("ledger_id", "int64"),
    ("qualified_name", "string"),
    ("entries", "int64"),
    ("bytes", "binary"),
    ("groups", "rows"),
    ("ranges", "rows", True),
    ("missing", "rows", True),
    ("missing_entries", "int64", True),
    ("missing_groups", "rows", True),
)
"""One row: which entries of a ledger are here (`bkstore availability`).

`ranges` and `missing` are null above 10,000 ranges, all of `missing` where nothing was asked.
"""

JOURNAL_RECORDS = schema(
    "journal_records",
    ("file", "string"),
    ("journal_dir", "int32"),
    ("journal_id", "int64"),
    ("version", "int32"),
    ("offset", "int64"),
    ("kind", "string"),
    ("scope_id", "int64"),
    ("ledger_id", "int64"),
    ("entry_id", "int64"),
    ("bytes", "int64"),
    ("lac", "int64", True),
    ("length", "int64", True),
    ("master_key", "binary", True),
    ("explicit_lac", "binary", True),
    ("explicit_lac_entry", "int64", True),
    ("payload", "binary", True),
)
"""One row a journal record (`bkstore readjournal`).

`file` is a name in journal directory number `journal_dir`, `version` the file's. `offset` is that
of the length field, `bytes` the record without it.
`explicit_lac` is the body of such a record, `explicit_lac_entry` the entry that it says.
`payload` is null unless asked for, else what follows the header: digest, then payload.
"""

LAST_MARKS = schema(
    "last_marks",
    ("journal_dir", "int32"),
    ("file", "string", True),
    ("journal_id", "int64"),
    ("journal", "string"),
    ("position", "int64"),
)
"""One row a journal (`bkstore lastmark`); `file` is null where none says a mark."""

ENTRY_RECORDS = schema(
    "entry_records",
    ("scope_id", "int64"),
    ("ledger_id", "int64"),
    ("entry_id", "int64"),
    ("dir_index", "int32"),
    ("log_id", "int64"),
    ("position", "int64"),
    ("bytes", "int64"),
    ("lac", "int64"),
    ("length", "int64"),
    ("digest_ok", "bool", True),
    ("payload", "binary"),
)
"""One row an entry as it is stored (`bkstore readledger`).

`bytes` is the record's size, `length` the ledger's payload bytes up to this entry. `digest_ok`
is null where no digest type was given; `payload` begins with the digest then.
"""

LOG_RECORDS = schema(
    "log_records",
    ("dir_index", "int32"),
    ("log_id", "int64"),
    ("file", "string"),
    ("offset", "int64"),
    ("position", "int64"),
    ("scope_id", "int64"),
    ("ledger_id", "int64"),
    ("entry_id", "int64"),
    ("lac", "int64"),
    ("length", "int64"),
    ("bytes", "int64"),
    ("payload", "binary", True),
)
"""One row a record of an entry log (`bkstore readlog`).

`file` is a name in ledger directory number `dir_index`. `offset` is that of the size field,
`position` that of the record, which locations have.
`payload` is null unless asked for, else what follows the header: digest, then payload.
"""

LOG_ENTRIES = schema(
    "log_entries",
    ("dir_index", "int32"),
    ("log_id", "int64"),
    ("file", "string"),
    ("entries", "int64"),
    ("first_entry", "int64"),
    ("last_entry", "int64"),
)
"""One row an entry log that holds entries of a ledger (`bkstore where`), or one a run of them.

`file` is a name in ledger directory number `dir_index`.
"""

LOG_METADATA = schema(
    "log_metadata",
    ("dir_index", "int32"),
    ("log_id", "int64"),
    ("file", "string"),
    ("source", "string"),
    ("total_bytes", "int64"),
    ("remaining_bytes", "int64"),
    ("usage", "float64"),
    ("scope_id", "int64", True),
    ("ledger_id", "int64", True),
    ("bytes", "int64", True),
)
"""One row a ledger of an entry log (`bkstore readlogmetadata`); one without ledger if it has none.

`source` is "map" (the log's ledgers map), "scan" (its records) or "cache" (what garbage
collection keeps in `metadata-cache`). The totals are the log's, `bytes` the ledger's.
"""

BOOKIE_FILES = schema(
    "bookie_files",
    ("kind", "string"),
    ("dir_index", "int32"),
    ("file", "string"),
    ("bytes", "int64"),
)
"""One row a file (`bkstore listfiles`); `kind` is "journal", "entrylog" or "index"."""

ANSWERS = schema(
    "answers",
    ("kind", "string"),
    ("object_id", "int64"),
    ("start", "int64"),
    ("end", "int64"),
)
"""One row an object of an answer (`bkstore streams lookup`), in the order of offsets.

`kind` is "SSO" (stream set object) or "SO" (stream object); the range is half open.
"""

LOOKUPS = schema(
    "lookups",
    ("world", "string", True),
    ("strategy", "string"),
    ("query", "int64", True),
    ("stream_id", "int64", True),
    ("start", "int64", True),
    ("end", "int64", True),
    ("limit", "int64", True),
    ("answer", "string", True),
    ("covered_to", "int64", True),
    ("agrees", "bool", True),
    ("loads", "int64"),
    ("waves", "int64"),
    ("preloads", "int64"),
    ("filter_refusals", "int64"),
    ("index_hits", "int64"),
    ("index_misses", "int64"),
    ("dead_entries", "int64"),
    ("seconds", "float64"),
)
"""One row a look-up and strategy (`bkstore streams compare`), and one with their sums.

`query` is the number of the look-up, null in the row of sums. `answer` is the status where it is
not "ok", else the objects, stream objects as ``so24``. `agrees` is null where there was nothing
to compare with, true if the answer is the expected one and that of the strategy before.
"""

FINDINGS = schema(
    "findings",
    ("severity", "string"),
    ("detail", "string"),
    ("file", "string", True),
    ("offset", "int64", True),
    ("scope_id", "int64", True),
    ("ledger_id", "int64", True),
    ("first_entry", "int64", True),
    ("last_entry", "int64", True),
    ("entries", "int64", True),
)
"""Oddities and damage. `entries` says how many of first..last a run is about."""

INSPECT = schema("inspect", ("property", "string"), ("value", "string"))
"""What `bkstore inspect` says, one property a row."""

METADATA_LEDGERS = schema(
    "metadata_ledgers",
    ("scope_id", "int64"),
    ("ledger_id", "int64"),
    ("qualified_name", "string"),
    ("state", "string"),
    ("ensemble_size", "int64"),
    ("write_quorum_size", "int64"),
    ("ack_quorum_size", "int64"),
    ("last_entry_id", "int64", True),
    ("length", "int64", True),
    ("digest_type", "string", True),
    ("segments", "int64"),
    ("ctime", "int64", True),
    ("underreplicated", "bool", True),
    ("metadata_format_version", "int32"),
    ("version", "int64"),
)
"""One row a ledger (`bkstore metadata list`): what the metadata store says of it.

Null are `last_entry_id` and `length` of a ledger that is not closed, `ctime` (milliseconds) where
nothing tells it, and `underreplicated` where the store tells no marks. `version` is the store's.
"""

METADATA_SEGMENTS = schema(
    "metadata_segments",
    ("scope_id", "int64"),
    ("ledger_id", "int64"),
    ("first_entry", "int64"),
    ("last_entry", "int64", True),
    ("ensemble", "string"),
)
"""One row a segment (`bkstore metadata show`); the last one of an open ledger has no last entry."""

ENSEMBLE_BOOKIES = schema(
    "ensemble_bookies",
    ("uri", "string"),
    ("bookie", "string"),
    ("state", "string", True),
    ("address", "string", True),
    ("pid", "int64", True),
    ("storage", "string"),
    ("directory", "string"),
    ("log", "string"),
)
"""One row a bookie of an ensemble (`bkstore ensemble status`); `uri` is the ensemble's.

`state` is how ZooKeeper has it: writable, read-only, unregistered; null if nobody could be asked.
`pid` is null where no process of the ensemble runs it, `address` before its first start.
"""
