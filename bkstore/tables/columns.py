"""Every column of bkstore's tables, described once; a schema refers to columns by name.

A name means the same in every table. A description has what a screen or a page needs to show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, cast

from bkstore.tables.table import Column, ColumnKind, Schema, ScreenColumns


class ColumnSpec(NamedTuple):
    """The description of a column, the same in every table.

    `form` is how a page formats its values: text, long (text that wraps), number, entry (an id),
    size (bytes), share, decimal, flag, or a special form. `label` is its heading there, if not its
    name in words. A screen hides the column while every row has null or the `idle` value.
    """

    kind: ColumnKind
    form: str
    meaning: str
    label: str = ""
    idle: int | None = None


_text = partial(ColumnSpec, "string", "text")
_long = partial(ColumnSpec, "string", "long")
_number = partial(ColumnSpec, "int64", "number")
_small = partial(ColumnSpec, "int32", "number")
_entry = partial(ColumnSpec, "int64", "entry")
_bytes = partial(ColumnSpec, "int64", "size")
_flag = partial(ColumnSpec, "bool", "flag")
_binary = partial(ColumnSpec, "binary", "hex")
_share = partial(ColumnSpec, "float64", "share")
_decimal = partial(ColumnSpec, "float64", "decimal")
_groups = partial(ColumnSpec, "rows", "groups")
_ranges = partial(ColumnSpec, "rows", "ranges")

COLUMNS: Mapping[str, ColumnSpec] = MappingProxyType(
    {
        # -- bookies, directories, files
        "bookie": _text("the bookie's id"),
        "bookies": _number("bookies that have entries of the ledger, or ledgers of the owner"),
        "layout": _text("idx or rocksdb: the layout of the index"),
        "layout_before": _text("the layout of the source"),
        "storage": _text("sorted, interleaved or db"),
        "dir_index": _small("number of the ledger directory, in the configured order", idle=0),
        "directories": _small("ledger directories"),
        "directory": _text("where the bookie's directories are"),
        "file": _text("name or path of a file"),
        "files": _number("files"),
        "path": _long("the path of its files"),
        "source": _text("what was read"),
        "target": _text("the directory that was made"),
        "offset": _number("its offset in the file"),
        "address": _text("host and port"),
        "pid": _number("the id of the process that runs it"),
        "log": _text("the log file of the process"),
        "faults": _text("the faults that it was given, for tests"),
        "uri": _text("the service URI of the metadata store"),
        # -- ledgers
        "scope_id": ColumnSpec("int64", "scope", "the scope, in two's complement", "Scope"),
        "ledger_id": ColumnSpec("int64", "ledger", "the id, in two's complement", "Ledger"),
        "qualified_name": _text("scope and ledger as 32 hex digits, whose order is the id order"),
        "ledgers": _number("ledgers"),
        "live": _flag("the index has the ledger"),
        "live_ledgers": _number("ledgers in the index"),
        "fenced": _flag("closed for adds, except those of a recovery"),
        "limbo": _flag("entries may be lost: an entry absent here may exist", idle=0),
        "master_key": _binary("digest of the ledger's password"),
        "explicit_lac": _binary("body of the explicit LAC"),
        "explicit_lac_entry": _entry("the entry that the explicit LAC names"),
        "state": _text("state of a ledger in the metadata, or of a bookie in ZooKeeper"),
        "ensemble_size": _number("bookies of a segment"),
        "write_quorum_size": _number("bookies that an entry is written to"),
        "ack_quorum_size": _number("bookies that must have an entry before it is acknowledged"),
        "segments": _number("segments of the ledger"),
        "ensemble": _text("bookies of the segment, separated by spaces"),
        "last_entry_id": _entry("last entry of a closed ledger", "Last entry"),
        "digest_type": _text("the type of its entries' digests"),
        "ctime": _number("when it was created, in milliseconds since 1970"),
        "underreplicated": _flag("the store has a mark that replicas are missing"),
        "metadata_format_version": _small("version of the serialized metadata"),
        # -- owners of ledgers
        "owner": _long("a topic (with its subscription), namespace, schema or application"),
        "application": _text("the application that made the ledger"),
        "component": _text("the part of the application that the ledger belongs to"),
        "tenant": _text("the tenant of the topic or schema"),
        "namespace": _text("the namespace, tenant included"),
        "topic": _long("the topic, with the suffix of its partition"),
        "partition": _small("number of the partition"),
        "cursor": _text("the subscription whose positions the ledger has"),
        "schema": _text("id of the schema that the ledger has"),
        "managed_ledger": _text("the topic's path below /managed-ledgers"),
        "class": _text("what the ledger is to Pulsar: leaked, dangling, referenced and others"),
        "age_days": _decimal("days since it was created", "Days old"),
        "caution": _long("why it should not be deleted yet"),
        # -- entries
        "entry_id": _entry("the entry's id"),
        "entries": _number("entries"),
        "first_entry": _entry("the lowest entry id", "First"),
        "last_entry": _entry("the highest entry id", "Last"),
        "lac": _entry("last add confirmed, as the entry's writer knew it"),
        "length": _bytes("payload bytes of the ledger up to this entry, or of a closed ledger"),
        "payload": _binary("payload, after its digest if the digest type cannot be told"),
        "digest_ok": _flag("the digest matches"),
        "ranges": _ranges("inclusive ranges of entries"),
        "groups": _number("BP-34 sequence groups"),
        "sequences": _number("ranges of consecutive entries"),
        "availability": _binary("BP-34's grouped encoding"),
        "first_sequence_start": _entry("first entry of the group's first sequence"),
        "last_sequence_start": _entry("first entry of the group's last sequence"),
        "sequence_size": _number("entries of each sequence"),
        "sequence_period": _number("distance between the starts of sequences, 0 for a single one"),
        # -- messages of Pulsar
        "published": _text("when the message was published, in UTC"),
        "publish_time": _number("the same, in milliseconds since 1970"),
        "event_time": _number("the application's time of it, in milliseconds since 1970"),
        "broker_time": _number("when the broker had it, in milliseconds since 1970"),
        "broker_index": _number("number of the entry's last message in the topic"),
        "producer": _text("the producer's name"),
        "sequence_id": _number("the producer's number of the message"),
        "messages": _number("messages in the entry: more than one in a batch"),
        "properties": _text("names of the message's properties"),
        "uncompressed_bytes": _bytes("bytes of the payload before its compression"),
        "encryption_keys": _text("names of the keys with which the payload is encrypted"),
        "metadata_bytes": _bytes("bytes of the message metadata"),
        "payload_bytes": _bytes("bytes of the payload, as it is stored"),
        "compacted_ledger_id": _number("ledger of the message before the compaction"),
        "compacted_entry_id": _entry("entry of the message before the compaction"),
        "marker_type": _number("the kind of a marker, an entry of the broker itself"),
        "checksum_ok": _flag("the producer's checksum matches"),
        # -- entry logs and where entries lie
        "log_id": ColumnSpec("int64", "log", "the entry log's id", "Log"),
        "position": _number("where the record begins in its entry log, or a mark in its journal"),
        "location": _number("log id << 32, plus position"),
        "bytes": _bytes("bytes of records, the size before each included, or of a file"),
        "closed": _flag("the log is closed: its header points to a ledgers map"),
        "total_bytes": _bytes("bytes of all records that were written to the log"),
        "remaining_bytes": _bytes("bytes of records of ledgers that are not deleted"),
        "usage": _share("remaining bytes divided by total bytes"),
        "logs": _number("entry logs that have records of the ledger"),
        "entry_logs": _number("entry log files", "Files"),
        "log_changes": _number("how often the next entry is in another log"),
        "stretches": _number("ranges of consecutive entries in one log with rising positions"),
        "mean_stretch": _decimal("entries per stretch", "Entries a stretch"),
        # -- journals
        "journal_dir": _small("number of the journal directory", idle=0),
        "journal": _text("name of the journal file"),
        "journal_id": _number("the journal's id"),
        "version": _number("version of the journal file, or of the metadata in the store"),
        "kind": _text("the kind of the row"),
        # -- what fills a disk
        "log_file_bytes": _bytes("bytes of the entry log files", "Entry logs"),
        "record_bytes": _bytes("bytes of records: 4 + size of each"),
        "live_bytes": _bytes("bytes of records of live ledgers", "Live"),
        "garbage_bytes": _bytes("bytes of all other records", "Garbage"),
        "other_bytes": _bytes("bytes of log files that belong to no record"),
        "occupancy": _share("live bytes divided by record bytes, 0 without records"),
        "pinned": _flag("the log has live records, but fewer bytes of them than the threshold"),
        "pinned_logs": _number("logs that are pinned"),
        "pinned_bytes": _bytes("bytes of pinned logs"),
        "removable_logs": _number("logs without live records"),
        "compactable_logs": _number("logs that garbage collection would compact"),
        "damaged_logs": _number("logs that are kept because they are damaged"),
        "fate": _text("what garbage collection would do: keep, compact, remove; or damaged"),
        "moved_bytes": _bytes("bytes that compaction would rewrite"),
        "removable_bytes": _bytes("bytes that are freed without compaction", "Removable"),
        "freed_bytes": _bytes("bytes that deleting the owner's ledgers would free", "Freed"),
        "bytes_by_bookie": _long("the bytes on each bookie"),
        "given_back_bytes": _bytes("bytes that garbage collection would free"),
        "journal_bytes": _bytes("bytes of journal files"),
        "index_file_bytes": _bytes("bytes of the index's files"),
        "index_disk_bytes": _bytes("bytes allocated to them on the disk"),
        "index_row_bytes": _bytes("bytes of the index's rows before compression"),
        "part": _text("idx, or the name of a database"),
        "file_bytes": _bytes("bytes of files"),
        "disk_bytes": _bytes("bytes allocated to them on the disk"),
        "rows": _number("rows of known ledgers, or of a table"),
        "row_bytes": _bytes("bytes of the rows before compression"),
        "pages": _number("pages of index files"),
        "table_bytes": _bytes("bytes of RocksDB's tables, as their properties state"),
        "estimated_rows": _number("RocksDB's estimate of its rows"),
        "dead_rows": _number("overwritten or deleted rows that are still in RocksDB's tables"),
        "tombstones": _number("deletes that RocksDB has not compacted away"),
        "range_tombstones": _number("range deletes that RocksDB has not compacted away"),
        "database": _text("name of a RocksDB database: locations, ledgers, and those of 128 bits"),
        "level": _small("level of a table file, null for other files"),
        "sequence": _number("number of the write, which counts all writes to the database"),
        "smallest_sequence": _number("number of the oldest write in the file", "From sequence"),
        "largest_sequence": _number("number of the newest write in the file", "To sequence"),
        "first_key": _text("its lowest key: ledger/entry, or the ledger"),
        "last_key": _text("its highest key"),
        "end_key": _text("where a range delete ends, exclusive"),
        "epoch_number": _number("order in which level 0 files were made"),
        "created": _number("when the file was made, in seconds since 1970"),
        "compression": _text("how a table file's blocks, or a message's payload, are compressed"),
        "stored_key": _binary("the key as it is stored"),
        "stored_value": _binary("the value as it is stored"),
        "waiting": _number("rows in write-ahead logs that are in no table yet", idle=0),
        "setting": _text("a setting of BookKeeper"),
        "purpose": _text("what the setting must be large enough for"),
        "value": _number("the smallest sufficient value"),
        "unit": _text("the setting's unit"),
        "default": _text("the setting's default"),
        "formula": _text("how the value is computed"),
        # -- findings
        "severity": _text("damage, oddity or note"),
        "detail": _long("what is wrong"),
        "damage": _number("findings of data that cannot be read"),
        "oddities": _number("findings that a bookie can handle"),
        "read": _flag("the bookie was read"),
        "reason": _long("why the bookie was not read"),
        "header_bytes": _bytes("bytes of the log's header"),
        "map_bytes": _bytes("bytes of its ledgers map"),
        "padding_bytes": _bytes("bytes of padding"),
        "unaccounted_bytes": _bytes("bytes that belong to no known structure"),
        "unaccounted": _ranges("their [start, end] offsets"),
        "records": _number("records of the log"),
        "indexed": _number("records that an index row points to"),
        "copies": _number("records of entries whose row points elsewhere"),
        "unindexed": _number("records of known ledgers that are in no row"),
        "garbage": _number("records of ledgers not in the index"),
        "others": _number("records of ledgers that were not requested"),
        "unjudged": _number("records that could not be looked up"),
        "digests": _number("digests that were verified"),
        # -- replicas
        "action": _text("write, replace, move or recover: how a replica is repaired"),
        "status": _text("planned, repaired, failed, impossible or skipped"),
        "source_bookie": _text("the bookie that has the entries", "From"),
        "target_bookie": _text("the bookie that is to receive them", "To"),
        "category": ColumnSpec("string", "category", "the rule of BP-34 that is broken"),
        "missing": ColumnSpec("rows", "missing", "inclusive ranges of missing entries", "Entries"),
        "missing_entries": _number("entries that are missing", "Missing"),
        "first_missing": _entry("the lowest entry that is missing", "First missing"),
        "last_missing": _entry("the highest entry that is missing", "Last missing"),
        "missing_groups": _groups("missing entries as sequence groups"),
        "replicas": _number("entries on all bookies, each counted once for each bookie"),
        "replicas_due": _number("replicas that bookies should hold", "Expected"),
        "replicas_missing": _number("expected replicas that are missing", "Missing"),
        "lost_entries": _number("entries without any replica on the bookies of the dump", "Lost"),
        "no_replica": _number("ledgers with entries that have no replica"),
        "below_ack_quorum": _number("ledgers whose worst entry has fewer replicas than A"),
        "below_write_quorum": _number("ledgers whose worst entry has fewer replicas than W"),
        "replicas_surplus": _number("replicas beyond the expected ones", "Surplus"),
        "fewest_replicas": _number("replicas of the entry that has the fewest", "Fewest"),
        "not_judged": _long("why a ledger is not judged, or which bookies were not read"),
        "surplus_entries": _number("entries that the bookie holds, but is not expected to"),
        "surplus_groups": _groups("surplus entries as sequence groups", "Groups"),
        "stripe": _text('the ledger\'s own stripe on a bookie: "all", or "size of period"'),
        "holes": _number("entries of the stripe, between the first and the last, that are absent"),
        "off_stripe": _number("entries that do not fit the stripe", "Off the stripe"),
        # -- comparisons
        "before": _number("entries in the first dump"),
        "after": _number("entries in the second dump"),
        "common": _number("entries in both", "In both"),
        "added": _number("entries in the second dump only"),
        "removed": _number("entries in the first dump only"),
        "change": _text("new, gone, grown, shrunk, changed or same"),
        "only_in": _text('the side that has it, "a" or "b"'),
        "a": _text("what the first side has"),
        "b": _text("what the second side has"),
        # -- rewrites
        "duplicates": _number("further copies of entries in the logs"),
        "left_out": _number("rows or ledgers left out as unknown to the bookie"),
        "log_bytes": _bytes("bytes of entry logs"),
        "linked": _flag("the entry logs are hard links"),
        "renamed_logs": _number("logs that have other ids than in the source"),
        "second_names": _number("additional links to logs, in other directories"),
        "other_files": _number("files that were copied as they are"),
        "compared": _flag("each row and state was read back and compared"),
        # -- streams
        "object_id": _number("the object's id"),
        "world": _text("the image that was searched"),
        "strategy": _text("how objects were searched"),
        "query": _number("number of the lookup"),
        "stream_id": _number("the stream"),
        "start": _number("first offset"),
        "end": _number("offset after the last"),
        "limit": _number("maximum number of objects requested"),
        "answer": _text("the objects, stream objects as so24; or the status that is not ok"),
        "covered_to": _number("offset up to which the answer is complete"),
        "agrees": _flag("the answer matches the expected one and the previous strategy's"),
        "loads": _number("objects that were loaded"),
        "waves": _number("rounds of loads, each waiting for the one before"),
        "preloads": _number("objects that were loaded ahead"),
        "filter_refusals": _number("loads avoided by filters"),
        "index_hits": _number("lookups answered by the range index"),
        "index_misses": _number("lookups that the range index could not answer"),
        "dead_entries": _number("entries of the range index whose objects are gone"),
        "seconds": _decimal("seconds"),
        # -- texts
        "property": _text("a property of the directory"),
        "analysis": _text("name of the analysis"),
        "finding": _flag("the analysis found something"),
        "result": _long("its result in a sentence"),
    }
)


def make_schema(
    name: str,
    columns: str,
    *,
    show: str = "",
    hide: str = "",
    caption: str = "",
    hide_idle: str = "",
    drop_first: str = "",
    may_cut: str = "",
    wrap: str = "",
    as_records: bool = False,
    nothing: str = "no rows",
) -> Schema:
    """Return a schema of the named columns, ``name?`` for one that may be null.

    ``name:kind`` is a column whose kind differs from `COLUMNS`, or that is not in it. The other
    parameters are for screens, with names of columns separated by spaces. `show` lists the columns
    shown; without it, all are shown except those of `hide`, and `scope_id` and `qualified_name`,
    whose values are shown in `ledger_id`. `caption` and the following ones are fields of
    `ScreenColumns`. Without any of them, `Schema.screen` is None, and a screen shows the default
    columns. `nothing` is a field of `Schema`.

    >>> make_schema("pairs", "entries? groups:rows").columns[0]
    Column(name='entries', kind='int64', nullable=True)
    """
    parsed = tuple(map(_parse_column, columns.split()))
    if not any((show, hide, caption, hide_idle, drop_first, may_cut, wrap, as_records)):
        return Schema(name, parsed, nothing=nothing)
    hidden = {"scope_id", "qualified_name", *hide.split()}
    shown = show.split() or [column.name for column in parsed if column.name not in hidden]
    screen = ScreenColumns(
        tuple(shown),
        caption=tuple(caption.split()),
        hide_idle=tuple(hide_idle.split()),
        drop_first=tuple(drop_first.split()),
        may_cut=tuple(may_cut.split()),
        wrap=wrap,
        as_records=as_records,
    )
    return Schema(name, parsed, screen, nothing)


def _parse_column(word: str) -> Column:
    name, _, kind = word.removesuffix("?").partition(":")
    return Column(name, cast(ColumnKind, kind) if kind else COLUMNS[name].kind, word.endswith("?"))
