"""The parts below the first screen: the texts of each table, and the columns it shows.

`page_tables` makes tables from them, `sentences` fills `{known}` and `{judge}` and chooses texts.
"""

from __future__ import annotations

from typing import NamedTuple

from bkstore.tables.columns import COLUMNS


class ShownColumn(NamedTuple):
    """A column of the page: its heading, the kind of its cells, and the table's column.

    Kinds are the forms of `COLUMNS`. Some combine several columns: ledger and scope (the ids),
    missing (`missing` and `missing_groups`), log (id and file), quorums, and class (of health).
    """

    heading: str
    kind: str
    table_column: str


class Section(NamedTuple):
    """A table of the page. `order` are the columns to sort by; "-" means descending."""

    name: str
    heading: str
    rule: str
    advice: str
    nothing_found: str
    order: tuple[str, ...]
    columns: tuple[ShownColumn, ...]
    needs_metadata: bool = False


def _show_columns(names: str, **own: ShownColumn) -> tuple[ShownColumn, ...]:
    """Return the named columns as described in `COLUMNS`, or as overridden by `own`."""
    return tuple(own.get(name) or _default_column(name) for name in names.split())


def _default_column(name: str) -> ShownColumn:
    column = COLUMNS[name]
    return ShownColumn(column.label or name.replace("_", " ").capitalize(), column.form, name)


_TOPIC = ShownColumn("Topic", "long", "owner")

PARTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("What is missing", ("violations", "violations_by_owner", "homeless", "holes", "findings")),
    ("Health", ("ledger_health", "surplus", "orphans")),
    (
        "Disk",
        (
            "bytes_by_bookie",
            "bytes_by_owner",
            "leaked_ledgers",
            "log_occupancy",
            "bytes_by_ledger",
            "bytes_by_scope",
        ),
    ),
    ("Shape", ("fragmentation", "sequences", "comparison")),
    ("Source", ("bookies",)),
)
"""The parts of the page in order, and the tables in each."""

OWNER_SECTIONS = frozenset({"violations_by_owner", "bytes_by_owner"})
"""Tables by owner, which the page has only if the metadata state owners."""

OPTIONAL_SECTIONS = OWNER_SECTIONS | {"leaked_ledgers"}
"""Tables whose absence the page does not mention: most clusters have no Pulsar."""

_ALL_SECTIONS = (
    Section(
        "violations",
        "Violations",
        "BP-34's rules: each entry of a closed ledger belongs on W bookies of its segment's "
        "ensemble. A row is a bookie that lacks entries of a segment; the category is that of the "
        "ledger's worst entry.",
        "Below a quorum, entries can be copied from the replicas that are left: let autorecovery "
        "run, or use the bookie shell's recover. Where no replica is left, look for bookies that "
        "are not in the dump, and for copies of lost disks, before anything is deleted.",
        "No violation was found.",
        ("category", "-missing_entries"),
        _show_columns(
            "category ledger_id bookie missing_entries missing first_entry detail",
            first_entry=ShownColumn("Segment at", "entry", "first_entry"),
        ),
        needs_metadata=True,
    ),
    Section(
        "violations_by_owner",
        "Topics that lack replicas",
        "The ledgers of Violations by the topic that their custom metadata state, or by the "
        "application without one; the most lost entries first. Lost are entries of which no bookie "
        "of the dump has a replica.",
        "",
        "No topic lacks replicas.",
        ("-lost_entries", "-replicas_missing"),
        _show_columns(
            "owner lost_entries replicas_missing replicas_due no_replica below_ack_quorum"
            " below_write_quorum",
            owner=_TOPIC,
            no_replica=ShownColumn("Ledgers with lost entries", "number", "no_replica"),
        ),
        needs_metadata=True,
    ),
    Section(
        "homeless",
        "Ledgers without any bookie",
        "Ledgers of the metadata that have entries, and of which no bookie of the dump has one.",
        "Check whether their bookies are in the dump. If so, these ledgers are lost.",
        "Each ledger of the metadata has entries on some bookie, or should have none.",
        (),
        _show_columns(
            "ledger_id state last_entry_id bookies",
            bookies=ShownColumn("Ensembles", "long", "bookies"),
        ),
        needs_metadata=True,
    ),
    Section(
        "holes",
        "Holes",
        "Judged without metadata: entries that a ledger's own stripe on a bookie would hold "
        "between its first and its last, and that are not there.",
        "A hole is not a loss as long as other bookies have the entries: {judge} "
        "A writer that changed its ensemble leaves holes too, and entries off the stripe.",
        "No ledger has holes in its own stripe.",
        ("-holes",),
        _show_columns(
            "bookie ledger_id holes off_stripe stripe entries first_entry last_entry",
            entries=ShownColumn("Entries there", "number", "entries"),
        ),
    ),
    Section(
        "findings",
        "Findings of the dump",
        "Problems found while bookies were read. Damage: data could not be read, so entries may "
        "seem to be missing. Oddity: unusual, but a bookie can handle it.",
        "Look at the named file; run bkstore inspect on that bookie. Read a damaged disk from a "
        "copy.",
        "Nothing unusual was found in what was read.",
        ("severity",),
        _show_columns("severity bookie detail file offset ledger_id"),
    ),
    Section(
        "ledger_health",
        "Ledgers of the metadata",
        "One row per ledger, the worst first: replicas that bookies of the dump should hold, and "
        "those they lack. Open ledgers, and those in recovery, are not judged.",
        "A reason in the last column means that the expected replicas could not all be counted.",
        "The ledger metadata contain no ledger.",
        ("class", "-replicas_missing"),
        _show_columns(
            "ledger_id category replicas_missing replicas_due replicas_surplus"
            " fewest_replicas ensemble_size state last_entry_id segments not_judged",
            category=ShownColumn("Health", "class", "category"),
            ensemble_size=ShownColumn("E/W/A", "quorums", "ensemble_size"),
        ),
        needs_metadata=True,
    ),
    Section(
        "surplus",
        "Surplus replicas",
        "Entries of closed ledgers on bookies that do not have to hold them.",
        "Left by recoveries and ensemble changes; garbage collection removes them in time. "
        "Where replicas are missing elsewhere, a surplus one may be the copy that saves the entry.",
        "No bookie holds entries that it does not have to.",
        ("-surplus_entries",),
        _show_columns("bookie ledger_id surplus_entries surplus_groups"),
        needs_metadata=True,
    ),
    Section(
        "orphans",
        "Orphan ledgers",
        "Ledgers that a bookie has and the metadata do not.",
        "Garbage collection will delete them. If one of them should exist, the metadata are at "
        "fault: stop garbage collection first, then restore them.",
        "The metadata contain each ledger of each bookie.",
        ("-bytes",),
        _show_columns("bookie ledger_id entries bytes"),
        needs_metadata=True,
    ),
    Section(
        "bytes_by_bookie",
        "Disk by bookie",
        "Bytes of entry logs. Live are records of ledgers that {known}, garbage the other "
        "records; the rest of a file is its header and its ledgers map.",
        "Much garbage on a bookie: check its compaction. Uneven bookies: check placement and "
        "weights.",
        "The dump has no bookie.",
        ("-log_file_bytes",),
        _show_columns(
            "bookie log_file_bytes live_bytes garbage_bytes entry_logs ledgers entries damage"
        ),
    ),
    Section(
        "bytes_by_owner",
        "Disk by topic",
        "Bytes of the records of a topic's ledgers in all entry logs, replicas included; its "
        "subscriptions and schemas belong to it. Entries are those of closed ledgers. Garbage are "
        "records of ledgers that the metadata do not contain, whose owner is no longer known. "
        "Pinned: logs that are kept for a few live records, some of them of this topic.",
        "Check the retention of the biggest first.",
        "The dump has no ledger.",
        ("-bytes",),
        _show_columns(
            "owner bytes ledgers entries replicas garbage_bytes pinned_logs pinned_bytes bookies",
            owner=_TOPIC,
        ),
        needs_metadata=True,
    ),
    Section(
        "leaked_ledgers",
        "Ledgers that no topic needs",
        "Ledgers of the metadata compared with a copy of Pulsar's. Leaked: Pulsar's, and nothing "
        "refers to it. Offloaded copy: the topic is read from long-term storage. Dangling: Pulsar "
        "refers to it, and the metadata do not contain it. Undetermined: what may refer to it is "
        "not known. Removable are bytes that are freed without compaction if all leaks and "
        "offloaded copies are deleted.",
        "Review the list, and delete with bkstore metadata delete, which looks at each ledger "
        "again. A dangling ledger is lost, or its topic is being deleted.",
        "Pulsar refers to each of its ledgers, and none of them is missing.",
        ("class", "-bytes"),
        _show_columns(
            "class owner ledger_id bytes removable_bytes bookies detail caution",
            owner=_TOPIC,
            **{"class": ShownColumn("Class", "text", "class")},
        ),
        needs_metadata=True,
    ),
    Section(
        "log_occupancy",
        "Entry logs",
        "The live part of each entry log's records, those with most garbage first. Live are "
        "records of ledgers that {known}. Pinned: few of its records are live, but they keep "
        "the file.",
        "Compaction frees pinned logs: the thresholds of minor and major compaction set the "
        "occupancy. A log without live records is removed by the next garbage collection.",
        "The bookies have no entry log.",
        ("-garbage_bytes",),
        _show_columns(
            "bookie log_id bytes garbage_bytes live_bytes occupancy pinned live_ledgers"
            " ledgers closed",
        ),
    ),
    Section(
        "bytes_by_ledger",
        "Disk by ledger",
        "Bytes of a ledger's records in all entry logs of all bookies, replicas and old copies "
        "included.",
        "Check the retention of the biggest first.",
        "The dump has no ledger.",
        ("-bytes",),
        _show_columns("ledger_id bytes replicas bookies"),
    ),
    Section(
        "bytes_by_scope",
        "Disk by scope",
        "Bytes of the records of all ledgers of a scope; scope 0 is BookKeeper's own.",
        "A scope belongs to one user of the store, who knows what its ledgers are for.",
        "The dump has no ledger.",
        ("-bytes",),
        _show_columns("scope_id bytes ledgers replicas"),
    ),
    Section(
        "fragmentation",
        "Fragmentation",
        "How scattered a ledger is: a stretch is a range of consecutive entries in one log with "
        "rising positions. The most stretches first.",
        "Short stretches make catch-up reads seek. Storage that sorts by ledger before it "
        "writes (sorted, db) keeps stretches long.",
        "The dump has no ledger with entries.",
        ("-stretches",),
        _show_columns("bookie ledger_id stretches mean_stretch entries logs log_changes"),
    ),
    Section(
        "sequences",
        "Sequences",
        "Entries of a ledger on a bookie as BP-34 condenses them: ranges of consecutive entries, "
        "and groups of equal ranges at equal distance. The most groups first.",
        "A striped ledger has one or two groups; many groups indicate holes or "
        "many ensemble changes.",
        "The dump has no ledger with entries.",
        ("-groups",),
        _show_columns("bookie ledger_id groups sequences entries first_entry last_entry"),
    ),
    Section(
        "comparison",
        "Change between two dumps",
        "Entries of each ledger on each bookie in the first dump and in the second.",
        "Entries that were removed should belong to deleted ledgers.",
        "Neither dump has a ledger.",
        ("-removed", "-added"),
        _show_columns("bookie ledger_id change before after added removed common"),
    ),
    Section(
        "bookies",
        "Bookies of the dump",
        "What the dump read: entries and ledgers of each bookie's index.",
        "A bookie that was not read is in no other part of this page: correct the stated reason, "
        "and dump again.",
        "The dump lists no bookie.",
        ("read",),
        _show_columns("bookie read layout entries ledgers damage oddities path reason"),
    ),
)

SECTIONS = {section.name: section for section in _ALL_SECTIONS}
"""The sections by the name of their table."""
