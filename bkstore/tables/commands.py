"""The tables that commands print, except those of `bkstore usage` and of analyses."""

from __future__ import annotations

from bkstore.tables.columns import make_schema

OWNERS = "application? component? tenant? namespace? topic? partition? cursor? schema?"
"""The columns of a ledger's owner (`bkstore.ledger_metadata.owners`), in this order."""

OWNER_COLUMNS = make_schema("owners", f"owner? {OWNERS}").columns
"""The columns that commands add to tables of ledgers if they have metadata: `owner` is the topic
with its subscription, the schema, or the application, for people."""

LEDGER_LIST = make_schema(
    "ledger_list",
    "bookie scope_id ledger_id qualified_name entries? first_entry? last_entry? fenced? limbo?"
    " explicit_lac? explicit_lac_entry? master_key? layout",
    show="bookie layout ledger_id entries first_entry last_entry fenced limbo explicit_lac_entry"
    " master_key",
    caption="bookie layout",
    hide_idle="explicit_lac explicit_lac_entry master_key",
    drop_first="first_entry limbo last_entry explicit_lac_entry fenced entries",
    nothing="no ledgers",
)
"""One row per ledger (`bkstore ledgers`). `explicit_lac_entry` is null if none can be decoded."""

LOCATIONS = make_schema(
    "locations",
    "entry_id dir_index log_id position location",
    nothing="no entries",
)
"""The entries of one ledger with their locations (`bkstore ledger`)."""

AVAILABILITY = make_schema(
    "availability",
    "scope_id ledger_id qualified_name entries bytes:binary groups:rows ranges? missing?"
    " missing_entries? missing_groups?",
    may_cut="bytes",
    as_records=True,
)
"""One row: which entries of a ledger the bookie has (`bkstore availability`). `ranges` and
`missing` are null above 10,000 ranges; all `missing` columns are null without --missing-from."""

JOURNAL_RECORDS = make_schema(
    "journal_records",
    "file journal_dir journal_id version:int32 offset kind scope_id ledger_id entry_id bytes lac?"
    " length? master_key? explicit_lac? explicit_lac_entry? payload?",
    show="journal_dir file offset kind ledger_id entry_id bytes lac explicit_lac_entry master_key"
    " payload",
    hide_idle="payload explicit_lac explicit_lac_entry master_key",
    drop_first="bytes lac explicit_lac_entry entry_id offset",
    may_cut="payload",
    nothing="no journal records",
)
"""One row per journal record (`bkstore readjournal`). `file` is a name in journal directory number
`journal_dir`, `version` its version. `offset` is that of the length field, `bytes` the record's
size without it. `payload` is null unless asked for; it begins after the header, with the digest."""

LAST_MARKS = make_schema(
    "last_marks",
    "journal_dir file? journal_id journal position",
    show="journal_dir journal journal_id position file",
    may_cut="file",
    nothing="no journal directories",
)
"""One row per journal (`bkstore lastmark`); `file` is null if no file has a mark."""

ENTRY_RECORDS = make_schema(
    "entry_records",
    "scope_id ledger_id entry_id dir_index log_id position bytes lac length digest_ok? payload",
    caption="ledger_id",
    hide_idle="digest_ok",
    drop_first="length position log_id bytes lac",
    may_cut="payload",
    nothing="no entries",
)
"""One row per stored entry (`bkstore readledger`). `payload` begins with the digest if the digest
type cannot be told; `digest_ok` is null if it was not verified."""

PULSAR_ENTRIES = make_schema(
    "pulsar_entries",
    "scope_id ledger_id entry_id dir_index log_id position bytes digest_ok? published?"
    " publish_time? producer? sequence_id? messages? properties? compression? uncompressed_bytes?"
    " encryption_keys? metadata_bytes? payload_bytes? checksum_ok? event_time? broker_time?"
    " broker_index? compacted_ledger_id? compacted_entry_id? marker_type? payload?",
    show="ledger_id entry_id published producer sequence_id messages properties compression"
    " encryption_keys marker_type broker_index compacted_ledger_id compacted_entry_id payload_bytes"
    " payload",
    caption="ledger_id",
    hide_idle="properties encryption_keys marker_type broker_index compacted_ledger_id"
    " compacted_entry_id payload",
    drop_first="broker_index payload_bytes compression sequence_id compacted_entry_id"
    " compacted_ledger_id marker_type encryption_keys properties messages",
    may_cut="payload encryption_keys properties producer",
    nothing="no entries",
)
"""One row per entry of a topic (`bkstore readledger --as pulsar`). From `published` on, columns are
null for an entry that is none. `uncompressed_bytes` is null without compression, `event_time` if no
application set one, `broker_time` and `broker_index` without the broker's metadata, `compacted_...`
outside of ledgers of the compaction, `marker_type` for messages, `checksum_ok` without a checksum,
`payload` unless asked for. `properties` and `encryption_keys` are names."""

LOG_RECORDS = make_schema(
    "log_records",
    "dir_index log_id file offset position scope_id ledger_id entry_id lac length bytes payload?",
    hide="file offset",
    hide_idle="payload",
    drop_first="length lac bytes log_id",
    may_cut="payload",
    nothing="no records",
)
"""One row per record of an entry log (`bkstore readlog`). `file` is a name in ledger directory
number `dir_index`. `offset` is that of the size field, `position` that of the record, as in
locations. `payload` is null unless asked for; it begins with the digest if the
digest type cannot be told."""

LOG_ENTRIES = make_schema(
    "log_entries",
    "dir_index log_id file entries first_entry last_entry ranges? groups:rows",
    show="dir_index log_id file entries ranges",
    may_cut="ranges",
    nothing="",
)
"""One row per entry log that holds entries of a ledger (`bkstore where`), or per run of entries.
`file` is a name in ledger directory number `dir_index`. `ranges` are null above 10,000; `groups`
hold the same entries: (first, last, size, period)."""

LOG_METADATA = make_schema(
    "log_metadata",
    "dir_index log_id file source total_bytes remaining_bytes usage scope_id? ledger_id? bytes?",
    hide="file",
    drop_first="source usage",
    nothing="no entry logs",
)
"""One row per ledger of an entry log (`bkstore readlogmetadata`); a log without any has one row.
`source` is "map" (the log's ledgers map), "scan" (its records) or "cache" (what garbage collection
keeps in `metadata-cache`). The totals are the log's, `bytes` the ledger's."""

BOOKIE_FILES = make_schema(
    "bookie_files",
    "kind dir_index file bytes",
    show="kind dir_index bytes file",
    may_cut="file",
    nothing="no files",
)
"""One row per file (`bkstore listfiles`); `kind` is "journal", "entrylog", "index" or "other"."""

ROCKS_FILES = make_schema(
    "rocks_files",
    "database dir_index file kind level? file_bytes? rows? tombstones? range_tombstones?"
    " smallest_sequence? largest_sequence? first_key? last_key? epoch_number? created?"
    " compression?",
    show="database dir_index kind file level file_bytes rows tombstones range_tombstones"
    " smallest_sequence largest_sequence first_key last_key",
    hide_idle="rows tombstones range_tombstones",
    drop_first="smallest_sequence largest_sequence range_tombstones tombstones file_bytes kind",
    may_cut="last_key first_key",
)
"""One row per file of a database (`bkstore rocks`). `kind` is "table" (live), "log" (with rows that
are in no table yet), "manifest", "options", "unused" (no longer used) or "unknown" (no manifest can
be read). `file_bytes` is null for a file that is missing. Keys are ``ledger/entry``, ``ledger``, or
bytes in hex."""

ROCKS_ROWS = make_schema(
    "rocks_rows",
    "database dir_index file? sequence? kind scope_id? ledger_id? entry_id? log_id? position?"
    " location? end_key? fenced? limbo? explicit_lac_entry? master_key? stored_key:binary"
    " stored_value:binary?",
    show="database dir_index file sequence kind ledger_id entry_id log_id position end_key fenced"
    " limbo explicit_lac_entry master_key",
    hide_idle="file sequence entry_id log_id position end_key fenced limbo explicit_lac_entry"
    " master_key",
    drop_first="explicit_lac_entry limbo file position",
)
"""One row per row of a database, live ones by key (`bkstore rocks --rows`), or all of a file in its
order (`--rows FILE`, `--log`). `kind` is "put", "delete", "single-delete" or "range-delete", which
ends before `end_key`. Ids are null for keys that are no ledger's, `location` for values that are
none, `file` for live rows, and `sequence` for those of ledgers."""

ROCKS_PROPERTIES = make_schema(
    "rocks_properties",
    "database dir_index file property value:string",
    caption="database file",
    wrap="value",
)
"""One row per property of a table file (`bkstore rocks --properties`)."""

FINDINGS = make_schema(
    "findings",
    "severity detail file? offset? scope_id? ledger_id? first_entry? last_entry? entries?",
    hide_idle="ledger_id first_entry last_entry entries offset",
    may_cut="file",
    wrap="detail",
    nothing="no findings",
)
"""Oddities and damage. `entries` is the number of entries in first..last that are affected."""

INSPECT = make_schema("inspect", "property value:string", wrap="value")
"""The properties that `bkstore inspect` prints, one per row."""

CHECK_FINDINGS = make_schema(
    "check_findings",
    "bookie severity kind detail file? offset? scope_id? ledger_id? first_entry? last_entry?"
    " entries? groups:rows?",
    show="bookie severity kind detail file offset",
    hide_idle="file offset",
    may_cut="file",
    wrap="detail",
    nothing="",
)
"""One row per finding of `bkstore check`. `entries` is the number affected in first..last, and
`groups` (first, last, size, period) are these entries, null if they are not known."""

CHECK_COVERAGE = make_schema(
    "check_coverage",
    "bookie dir_index log_id file bytes header_bytes record_bytes map_bytes padding_bytes"
    " unaccounted_bytes unaccounted rows records indexed copies unindexed garbage garbage_bytes"
    " others unjudged digests",
    hide="file header_bytes record_bytes map_bytes padding_bytes unaccounted garbage_bytes",
    hide_idle="others unjudged digests",
    nothing="no entry logs",
)
"""One row per entry log (`bkstore check --coverage`). The bytes by purpose add up to `bytes`.
`rows` index rows point into the log; its `records` are `indexed` and so on to `unjudged`."""

DIFFERENCES = make_schema(
    "differences",
    "kind scope_id ledger_id qualified_name only_in? a? b? entries? first_entry? last_entry?"
    " ranges? groups:rows?",
    show="kind ledger_id only_in entries ranges a b",
    hide_idle="only_in a b ranges entries",
    drop_first="entries",
    may_cut="ranges b a",
    nothing="",
)
"""One row per difference (`bkstore diff`). `kind` is "ledger" (only the side `only_in`, "a" or "b",
has it), "entries" (only that side has these), or the part of the state that differs: "fenced",
"limbo", "explicit_lac", "master_key". `a` and `b` have each side's value, except for master keys.
`ranges` are null above 10,000; `groups` hold the same entries: (first, last, size, period)."""

REWRITES = make_schema(
    "rewrites",
    "source target layout_before layout directories ledgers entries duplicates left_out entry_logs"
    " log_bytes linked renamed_logs second_names other_files compared",
    hide="source",
    as_records=True,
)
"""One row: the result of a rewrite (`bkstore convert`, `bkstore rebuild-index`). `left_out` counts
index rows of unknown ledgers (convert), or unknown ledgers in the logs (rebuild-index)."""

LOSSES = make_schema(
    "losses",
    "kind file offset bytes? scope_id? ledger_id? first_entry? last_entry? entries? detail"
    " groups:rows?",
    show="kind detail file offset bytes",
    hide_idle="bytes",
    may_cut="file",
    wrap="detail",
    nothing="",
)
"""One row per loss (`bkstore salvage`). kind "bytes": `bytes` of `file` from `offset` on cannot be
read. kind "entries": entries of a ledger that the old index had in `file` and no log has: `groups`
(first, last, size, period). `offset` is the lowest of their positions."""

RESCUE = make_schema(
    "rescue",
    "kind scope_id ledger_id first_entry? last_entry? entries detail groups:rows?",
    show="kind ledger_id first_entry last_entry entries detail",
    wrap="detail",
    nothing="no ledgers",
)
"""Rows of one ledger each (`bkstore rescue`): "whole" or "partial" says how many entries are
rescued; "lost", "differing", "unverified", "unconfirmed" and "end" which are not, or not for sure,
as `groups` (first, last, size, period)."""

RESCUED_ENTRIES = make_schema("rescued_entries", "scope_id ledger_id entry_id lac length payload")
"""One row per rescued entry (`bkstore rescue --as parquet`), by ledger and entry. `payload` begins
with the digest if the digest type cannot be told."""

LOOKUP_OBJECTS = make_schema(
    "answers",
    "kind object_id start end",
    nothing="no objects",
)
"""One row per object of an answer (`bkstore streams lookup`), in the order of offsets. `kind` is
"SSO" (stream set object) or "SO" (stream object); the range is half open."""

LOOKUPS = make_schema(
    "lookups",
    "world? strategy query? stream_id? start? end? limit? answer? covered_to? agrees? loads waves"
    " preloads filter_refusals index_hits index_misses dead_entries seconds",
    hide="limit covered_to preloads filter_refusals index_misses dead_entries",
    hide_idle="world query stream_id start end agrees",
    drop_first="index_hits start end",
    may_cut="answer",
)
"""One row per lookup and strategy (`bkstore streams compare`), and one per strategy with the sums.
`query` is null in a row of sums, `agrees` if there was nothing to compare with."""

METADATA_LEDGERS = make_schema(
    "metadata_ledgers",
    "scope_id ledger_id qualified_name state ensemble_size write_quorum_size ack_quorum_size"
    " last_entry_id? length? digest_type? segments ctime? underreplicated? metadata_format_version"
    f" version {OWNERS}",
    hide_idle="topic cursor schema component application namespace partition tenant",
    drop_first="tenant partition namespace metadata_format_version version ctime digest_type"
    " application ack_quorum_size write_quorum_size ensemble_size underreplicated segments length"
    " component last_entry_id state schema",
    nothing="no ledgers",
)
"""One row per ledger in the metadata store (`bkstore metadata list`). `last_entry_id` and `length`
are null for a ledger that is not closed, `ctime` if it is unknown, and `underreplicated` if the
store has no such marks. `version` is the store's. The columns from `application` on are the
owner's, null where the custom metadata do not state it."""

LEAKS = make_schema(
    "leaks",
    f"class scope_id ledger_id qualified_name owner? {OWNERS} managed_ledger? state? ctime?"
    " age_days? length? version? bytes? removable_bytes? bytes_by_bookie? detail? caution?",
    show="class ledger_id owner component age_days length bytes removable_bytes bytes_by_bookie"
    " detail caution",
    hide_idle="component age_days length bytes removable_bytes bytes_by_bookie detail caution",
    drop_first="component length detail bytes_by_bookie age_days",
    may_cut="caution detail",
    wrap="owner",
    nothing="no ledger is leaked, dangling or of unknown owner",
)
"""One row per ledger (`bkstore leaks`), the worst class first. What BookKeeper does not have is
null for a dangling ledger. `version` is the store's. `bytes` are those on the bookies of --usage;
`removable_bytes` of them are freed without compaction when all leaks are deleted."""

REPAIRS = make_schema(
    "repairs",
    f"action status scope_id ledger_id qualified_name {OWNERS} first_entry bookie source_bookie?"
    " target_bookie? missing_entries first_missing? last_missing? missing? missing_groups:rows"
    " detail?",
    show="status action ledger_id topic first_entry bookie source_bookie target_bookie"
    " missing_entries missing detail",
    hide_idle="topic source_bookie target_bookie missing_entries missing detail",
    drop_first="first_entry missing_entries topic target_bookie action source_bookie",
    may_cut="missing",
    wrap="detail",
    nothing="",  # the summary says it
)
"""One row per segment, bookie that lacks entries, and bookie that has copies (`bkstore repair`).
`missing` is null if there are too many ranges to list; `missing_groups` (first, last, size, period)
hold the same entries. `source_bookie` and `target_bookie` are null where there is none."""

METADATA_SEGMENTS = make_schema(
    "metadata_segments",
    "scope_id ledger_id first_entry last_entry? ensemble",
    nothing="no segments",
)
"""One row per segment (`bkstore metadata show`); the last of an open ledger has no last entry."""

ENSEMBLE_BOOKIES = make_schema(
    "ensemble_bookies",
    "uri bookie state? faults address? pid? storage directory log",
    show="uri storage bookie state faults address pid log directory",
    caption="uri storage",
    drop_first="directory log",
)
"""One row per bookie of an ensemble (`bkstore ensemble status`); `uri` is the ensemble's. `state`
is ended or frozen by its process, else the state in ZooKeeper: writable, read-only, unregistered;
null if ZooKeeper could not be asked. `faults` are their names, with the seconds of a slow disk.
`pid` is null if no process of the ensemble runs it, `address` before its first start."""
