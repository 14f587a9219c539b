"""Which columns of a table stand on a screen when nobody has said which.

The other formats have all columns. A screen of 100 characters has those that answer what the
command is asked for; --wide and --columns bring the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from bkstore.tables import Schema


class Look(NamedTuple):
    """How a table is shown: its columns, and what gives way where they are too many.

    columns: in the order of the screen. once: said above the header as long as all rows have the
    same. quiet: left out while no row has anything but null or this value. drop: the first to be
    left out where room is short, then the last columns. cut: may be shortened, the first of them
    last. fold: goes on below itself where the terminal ends, and is never left out. record: a row
    is shown as fields, one a line.
    """

    columns: tuple[str, ...]
    once: tuple[str, ...] = ()
    quiet: Mapping[str, Any] = {}
    drop: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()
    fold: str = ""
    record: bool = False


def look_of(schema: Schema) -> Look:
    """Return how a table of this schema is shown by default."""
    if schema.name in _LOOKS:
        return _LOOKS[schema.name]
    there = set(schema.names)
    beside = {"qualified_name", "scope_id"} if "ledger_id" in there else set()
    return Look(
        tuple(name for name in schema.names if name not in beside),
        cut=tuple(c.name for c in schema.columns if c.kind in ("string", "binary", "rows")),
        record=any(c.kind == "rows" for c in schema.columns),
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_STATE = dict.fromkeys(("explicit_lac", "explicit_lac_entry", "master_key"))

_LOOKS = {
    "ledger_list": Look(
        _words(
            "bookie layout ledger_id entries first_entry last_entry fenced limbo"
            " explicit_lac_entry master_key"
        ),
        once=("bookie", "layout"),
        quiet={"limbo": False, **_STATE},
        drop=_words("first_entry limbo last_entry explicit_lac_entry fenced entries"),
    ),
    "locations": Look(
        _words("entry_id dir_index log_id position location"), quiet={"dir_index": 0}
    ),
    "entry_records": Look(
        _words("ledger_id entry_id dir_index log_id position bytes lac length digest_ok payload"),
        once=("ledger_id",),
        quiet={"dir_index": 0, "digest_ok": None},
        drop=_words("length position log_id bytes lac"),
        cut=("payload",),
    ),
    "log_records": Look(
        _words("dir_index log_id position ledger_id entry_id lac length bytes payload"),
        quiet={"dir_index": 0, "payload": None},
        drop=_words("length lac bytes log_id"),
        cut=("payload",),
    ),
    "journal_records": Look(
        _words(
            "journal_dir file offset kind ledger_id entry_id bytes lac explicit_lac_entry"
            " master_key payload"
        ),
        quiet={"journal_dir": 0, "payload": None, **_STATE},
        drop=_words("bytes lac explicit_lac_entry entry_id offset"),
        cut=("payload",),
    ),
    "availability": Look(
        _words("ledger_id entries bytes groups ranges missing missing_entries missing_groups"),
        cut=("bytes",),
        record=True,
    ),
    "last_marks": Look(
        _words("journal_dir journal journal_id position file"),
        quiet={"journal_dir": 0},
        cut=("file",),
    ),
    "log_entries": Look(
        _words("dir_index log_id file entries first_entry last_entry"), quiet={"dir_index": 0}
    ),
    "log_metadata": Look(
        _words("dir_index log_id source total_bytes remaining_bytes usage ledger_id bytes"),
        quiet={"dir_index": 0},
        drop=("source", "usage"),
    ),
    "bookie_files": Look(
        _words("kind dir_index bytes file"), quiet={"dir_index": 0}, cut=("file",)
    ),
    "findings": Look(
        _words("severity detail file offset ledger_id first_entry last_entry entries"),
        quiet=dict.fromkeys(("ledger_id", "first_entry", "last_entry", "entries", "offset")),
        cut=("detail", "file"),
    ),
    "check_findings": Look(
        _words("severity kind detail file offset"),
        quiet={"file": None, "offset": None},
        cut=("file", "detail"),
    ),
    "check_coverage": Look(
        _words(
            "dir_index log_id bytes unaccounted_bytes rows records indexed copies unindexed garbage"
            " others unjudged digests"
        ),
        quiet={"dir_index": 0, "others": 0, "unjudged": 0, "digests": 0},
    ),
    "differences": Look(
        _words("kind ledger_id only_in entries first_entry last_entry ranges a b"),
        quiet={"only_in": None, "a": None, "b": None, "ranges": None, "entries": None}
        | {"first_entry": None, "last_entry": None},
        drop=("last_entry", "first_entry"),
        cut=("ranges", "b", "a"),
    ),
    "usage": Look(
        _words(
            "bookie layout ledgers live_ledgers entries entry_logs log_file_bytes record_bytes"
            " live_bytes garbage_bytes other_bytes pinned_logs pinned_bytes removable_logs"
            " compactable_logs damaged_logs moved_bytes given_back_bytes index_file_bytes"
            " index_disk_bytes index_row_bytes journal_bytes"
        ),
        record=True,
    ),
    "usage_by_log": Look(
        _words(
            "bookie dir_index log_id bytes ledgers live_ledgers live_bytes garbage_bytes"
            " occupancy pinned fate given_back_bytes"
        ),
        once=("bookie",),
        quiet={"dir_index": 0, "pinned": False},
        drop=("ledgers", "live_ledgers", "bytes"),
    ),
    "usage_by_ledger": Look(
        _words("bookie ledger_id live entries logs bytes live_bytes garbage_bytes pinned_logs"),
        once=("bookie",),
        quiet={"pinned_logs": 0},
        drop=("live_bytes", "logs"),
    ),
    "usage_by_log_and_ledger": Look(
        _words("bookie dir_index log_id ledger_id live bytes"),
        once=("bookie",),
        quiet={"dir_index": 0},
    ),
    "usage_of_index": Look(
        _words(
            "bookie dir_index part files file_bytes disk_bytes rows row_bytes table_bytes"
            " dead_rows tombstones waiting"
        ),
        once=("bookie",),
        quiet={"dir_index": 0, "waiting": 0, "table_bytes": None, "dead_rows": None}
        | {"tombstones": None},
        drop=("files", "disk_bytes"),
    ),
    "usage_of_caches": Look(
        _words("bookie setting value unit default purpose"),
        once=("bookie",),
        drop=("default",),
        cut=("purpose",),
    ),
    "lookups": Look(
        _words(
            "world strategy query stream_id start end answer agrees loads waves index_hits seconds"
        ),
        quiet=dict.fromkeys(("world", "query", "stream_id", "start", "end", "agrees")),
        drop=("index_hits", "start", "end"),
        cut=("answer",),
    ),
    "violations": Look(
        _words("category ledger_id first_entry bookie missing_entries missing detail"),
        drop=("missing_entries",),
        cut=("missing", "detail"),
    ),
    "ledger_health": Look(
        _words("ledger_id state replicas_due replicas_missing fewest_replicas category not_judged"),
        quiet={"category": None, "not_judged": None},
        drop=("state", "replicas_due"),
        cut=("not_judged",),
    ),
    "surplus": Look(
        _words("bookie ledger_id surplus_entries surplus_groups"),
        once=("bookie",),
        cut=("surplus_groups",),
    ),
    "homeless": Look(_words("ledger_id state last_entry_id bookies"), cut=("bookies",)),
    "sequences": Look(
        _words("bookie ledger_id entries first_entry last_entry sequences groups"),
        once=("bookie",),
    ),
    "holes": Look(
        _words("bookie ledger_id entries first_entry last_entry stripe holes off_stripe"),
        once=("bookie",),
    ),
    "log_occupancy": Look(
        _words(
            "bookie dir_index log_id bytes ledgers live_ledgers live_bytes garbage_bytes"
            " occupancy pinned"
        ),
        once=("bookie",),
        quiet={"dir_index": 0},
        drop=("ledgers", "live_ledgers", "bytes"),
    ),
    "bytes_by_bookie": Look(
        _words("bookie ledgers entries log_file_bytes live_bytes garbage_bytes damage"),
        quiet={"damage": 0},
        drop=("ledgers",),
    ),
    "fragmentation": Look(
        _words("bookie ledger_id entries logs log_changes stretches mean_stretch"),
        once=("bookie",),
    ),
    "rewrites": Look(
        _words(
            "target layout_before layout directories ledgers entries duplicates left_out"
            " entry_logs log_bytes linked renamed_logs second_names other_files compared"
        ),
        record=True,
        quiet={"duplicates": 0, "left_out": 0, "renamed_logs": 0, "second_names": 0},
    ),
    "losses": Look(
        _words("kind ledger_id first_entry last_entry entries file offset bytes detail"),
        quiet=dict.fromkeys(("ledger_id", "first_entry", "last_entry", "entries", "bytes")),
        drop=("last_entry",),
        cut=("detail", "file"),
    ),
    "comparison": Look(
        _words("bookie ledger_id before after common added removed change"), once=("bookie",)
    ),
    "ensemble_bookies": Look(
        _words("uri storage bookie state address pid log directory"),
        once=("uri", "storage"),
        drop=("directory", "log"),
    ),
    "inspect": Look(_words("property value"), fold="value"),
    "summary": Look(_words("analysis rows finding says"), fold="says"),
}
