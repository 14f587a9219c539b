"""The catalog: every analysis by name, with its inputs, its SQL or kernel, and its row order. An
analysis is a SQL text, or a kernel and its input rows, which are sorted first unless the files are.
Engines run them (`local_engine`, `bkstore.spark.analysis`). Costs: `docs/analyses.md`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Literal, TypedDict

from bkstore.arguments import check_fields, choice, instance, integer, number, optional
from bkstore.errors import InvalidArgument
from bkstore.ledger_metadata import OwnerFilter
from bkstore.offline.analyses import leak_sql, owner_sql, sql
from bkstore.offline.analyses.kernels import sequences
from bkstore.offline.analyses.kernels.fragmentation import Fragmentation
from bkstore.offline.analyses.kernels.holes import Holes
from bkstore.offline.analyses.kernels.metadata_comparison import Judge
from bkstore.offline.analyses.kernels.verdict_rows import Output
from bkstore.offline.analyses.metadata_table import Metadata
from bkstore.offline.analyses.metadata_tasks import SortedGroupScan
from bkstore.offline.analyses.pulsar_tables import PulsarMetadata, PulsarTables
from bkstore.offline.analyses.sorted_files import Kernel, SortedFileReader, SortedFileScan
from bkstore.offline.reading.open_dump import Dump
from bkstore.tables import (
    BOOKIE_BYTES,
    COMPARISON,
    FRAGMENTATION,
    GROUPS,
    HEALTH,
    HOLES,
    HOMELESS,
    LEAKED_LEDGERS,
    LEDGER_BYTES,
    LOG_OCCUPANCY,
    ORPHANS,
    OWNER_BYTES,
    OWNER_VIOLATIONS,
    SCOPE_BYTES,
    SEQUENCES,
    SURPLUS,
    VIOLATIONS,
    Schema,
)

DAY_MILLISECONDS = 24 * 60 * 60 * 1000

PINNED_OCCUPANCY = 0.2
"""A log of lower occupancy counts as pinned: BookKeeper's `minorCompactionThreshold`."""


@dataclass(frozen=True)
class Options:
    """Options of an analysis: `top` limits the result to the rows with the largest values. `by` is
    their column (default: the rank column of the analysis), largest first. An entry log of
    occupancy below `pinned` counts as pinned. The analyses by owner have a row for each `group_by`:
    topic, namespace, tenant or component. `owners` chooses ledgers by their owners. Only ledgers
    that are `grace` milliseconds old are leaked; ages count from `as_of`, in milliseconds since
    1970 (None: when the copy of Pulsar's metadata was made)."""

    top: int | None = None
    by: str | None = None
    pinned: float = PINNED_OCCUPANCY
    group_by: str = "topic"
    owners: OwnerFilter = field(default_factory=OwnerFilter)
    grace: int = DAY_MILLISECONDS
    as_of: int | None = None

    def __post_init__(self) -> None:
        """Validate the options, except `by`: whether that column exists depends on the analysis."""
        check_fields(self, _CHECKS)


_CHECKS = {
    "top": optional(integer(1)),
    "by": optional(instance(str)),
    "pinned": number(0, 1),
    "group_by": choice(*owner_sql.OWNER_NAMES),
    "owners": instance(OwnerFilter),
    "grace": integer(0),
    "as_of": optional(integer(0)),
}


@dataclass(frozen=True)
class Inputs:
    """Inputs of an analysis: a dump, and optionally ledger metadata, a second dump, and a copy of
    Pulsar's metadata."""

    dump: Dump
    metadata: Metadata | None = None
    other: Dump | None = None
    options: Options = field(default_factory=Options)
    pulsar: PulsarMetadata | None = None

    @property
    def pulsar_tables(self) -> PulsarTables | None:
        """The ledgers that Pulsar refers to, and those of the metadata, as tables; None if there is
        no copy of Pulsar's metadata, or no ledger metadata."""
        if self.pulsar is None or self.metadata is None:
            return None
        return self.pulsar.tables(self.metadata)

    @cached_property
    def chosen_metadata(self) -> Metadata | None:
        """The metadata of the ledgers that `options.owners` chooses."""
        if self.metadata is None or not self.options.owners:
            return self.metadata
        return self.metadata.choose(self.options.owners)


@dataclass(frozen=True)
class KernelInput:
    """The sorted input rows of a kernel. `sql_text` is the SQL query, or None for the columns that
    `KernelJob.sorted_reader` reads (or the output of `condenser`). Rows of equal `keys` are
    together, sorted by `order`, ids unsigned."""

    sql_text: str | None
    keys: tuple[str, ...]
    order: tuple[str, ...] = ()


@dataclass(frozen=True)
class KernelJob:
    """A kernel and its input; `sorted_reader` reads sorted files without sorting them again.
    `condenser` condenses the rows of other files first (entries to `groups`), in any order."""

    input: KernelInput
    kernel: Kernel
    sorted_reader: SortedFileReader
    condenser: SortedFileScan | None = None


ChoosesBy = Literal["metadata", "rows", "definition"] | None
"""How an analysis is limited to the ledgers that `Options.owners` chooses: it reads the metadata of
these alone, its rows are filtered, its definition does it, or it cannot be limited (None)."""


@dataclass(frozen=True)
class Analysis:
    """One analysis: its SQL text, or a function from the inputs to that or to a `KernelJob`. Rows
    are sorted by `order` ("-": descending), ids unsigned; with `Options.top` by `rank`, largest
    first. `chooses_by` says how it is limited to the ledgers of some owners."""

    schema: Schema
    definition: str | Callable[[Inputs], str | KernelJob]
    order: tuple[str, ...]
    rank: str
    needs_metadata: bool = False
    needs_other: bool = False
    needs_pulsar: bool = False
    chooses_by: ChoosesBy = None

    @property
    def name(self) -> str:
        """The name of the analysis and of its table."""
        return self.schema.name

    def sql_or_job(self, inputs: Inputs) -> str | KernelJob:
        """Return the SQL text or the `KernelJob` that computes it."""
        return self.definition if isinstance(self.definition, str) else self.definition(inputs)

    def missing_input(self, inputs: Inputs) -> str | None:
        """Return the name of a required input that is missing, or None."""
        needs_metadata = self.needs_metadata or bool(inputs.options.owners)
        if needs_metadata and inputs.metadata is None:
            return "ledger metadata"
        if self.needs_other and inputs.other is None:
            return "a second dump"
        if self.needs_pulsar and inputs.pulsar is None:
            return "Pulsar's metadata"
        return None

    def rank_column(self, options: Options) -> str:
        """Return the column to rank by; raises `InvalidArgument` unless it is a numeric one."""
        name = options.by or self.rank
        numeric = [
            column.name
            for column in self.schema.columns
            if column.kind in ("int64", "float64") and column.name not in ("scope_id", "ledger_id")
        ]
        if name not in numeric:
            raise InvalidArgument(f"{self.name} has no column {name!r} to sort by: {numeric}")
        return name


class _ForJudged(TypedDict):
    """Arguments of analyses that judge ledgers of the metadata."""

    needs_metadata: bool
    chooses_by: ChoosesBy


def _live_records_sql(inputs: Inputs) -> str:
    """Return the SQL for live log records: by the metadata if given, else by the bookies' index."""
    return sql.LIVE_BY_INDEX if inputs.metadata is None else sql.LIVE_BY_METADATA


def _log_occupancy_sql(inputs: Inputs) -> str:
    pinned = repr(float(inputs.options.pinned))
    return sql.LOG_OCCUPANCY_SQL.format(live=_live_records_sql(inputs), pinned=pinned)


def _bookie_bytes_sql(inputs: Inputs) -> str:
    return sql.BOOKIE_BYTES_SQL.format(live=_live_records_sql(inputs))


def _owner_bytes_sql(inputs: Inputs) -> str:
    options, live = inputs.options, _live_records_sql(inputs)
    return owner_sql.owner_bytes_sql(
        options.group_by, live, float(options.pinned), is_filtered=bool(options.owners)
    )


def _owner_violations_sql(inputs: Inputs) -> str:
    return owner_sql.owner_violations_sql(inputs.options.group_by)


def _leaked_ledgers_sql(inputs: Inputs) -> str:
    options = inputs.options
    assert inputs.pulsar is not None
    assert inputs.metadata is not None
    now = inputs.pulsar.now(inputs.metadata) if options.as_of is None else options.as_of
    return leak_sql.leaked_ledgers_sql(now, options.grace)


_BOOKIE_LEDGER = ("bookie", "scope_id", "ledger_id")
_GROUP_COLUMNS = tuple(GROUPS.names[1:])


def _sequences_job(_: Inputs) -> KernelJob:
    """Return the job that lists sequences; sorted entries are condensed to groups first."""
    columns = ("scope_id", "ledger_id", "entry_id")
    rows = KernelInput(None, _BOOKIE_LEDGER, ("first_sequence_start",))
    sorted_reader = SortedFileScan("entries", columns, sequences.CondensedSequences)
    condenser = SortedFileScan("entries", columns, sequences.Condense)
    return KernelJob(rows, sequences.Sequences(), sorted_reader, condenser)


def _holes_job(_: Inputs) -> KernelJob:
    rows = KernelInput(sql.READ_GROUPS, _BOOKIE_LEDGER, ("first_sequence_start",))
    sorted_reader = SortedFileScan("groups", _GROUP_COLUMNS, Holes, skip_unread=True)
    return KernelJob(rows, Holes(), sorted_reader)


def _fragmentation_job(_: Inputs) -> KernelJob:
    """Return the job that counts stretches: entries that follow each other in a log."""
    columns = ("scope_id", "ledger_id", "entry_id", "dir_index", "log_id", "position")
    rows = KernelInput(None, _BOOKIE_LEDGER, ("entry_id", "log_id", "position", "dir_index"))
    kernel = Fragmentation(repeated=True)
    return KernelJob(rows, kernel, SortedFileScan("entries", columns, Fragmentation))


def _judge_job(output: Output) -> Callable[[Inputs], KernelJob]:
    """Return the function that makes the job of one of the tables that `Judge` can output."""

    def make_job(inputs: Inputs) -> KernelJob:
        """Return the job that compares groups with metadata and yields the rows of one output."""
        order = ("role", "bookie", "first_sequence_start")
        rows = KernelInput(sql.JUDGED, keys=("scope_id", "ledger_id"), order=order)
        judge = Judge(output, inputs.dump.bookies)
        return KernelJob(rows, judge, sorted_reader=SortedGroupScan(judge))

    return make_job


def _comparison_job(_: Inputs) -> KernelJob:
    """Return the job that compares the groups of two dumps."""
    order = ("side", "first_sequence_start")
    rows = KernelInput(sql.COMPARED, _BOOKIE_LEDGER, order)
    sorted_reader = SortedFileScan("groups", _GROUP_COLUMNS, sequences.Compare)
    return KernelJob(rows, sequences.Compare(), sorted_reader)


_BY_BOOKIE = ("bookie", "qualified_name")
_BY_LEDGER = ("qualified_name",)
_BY_OWNER = ("owner", "application")
_JUDGED = _ForJudged(needs_metadata=True, chooses_by="metadata")

_ANALYSES = (
    Analysis(
        VIOLATIONS,
        _judge_job("violations"),
        ("qualified_name", "first_entry", "bookie"),
        "missing_entries",
        **_JUDGED,
    ),
    Analysis(
        OWNER_VIOLATIONS,
        _owner_violations_sql,
        ("-lost_entries", "-replicas_missing", *_BY_OWNER),
        "lost_entries",
        **_JUDGED,
    ),
    Analysis(HOMELESS, _judge_job("homeless"), _BY_LEDGER, "last_entry_id", **_JUDGED),
    Analysis(HEALTH, _judge_job("ledger_health"), _BY_LEDGER, "replicas_missing", **_JUDGED),
    Analysis(SURPLUS, _judge_job("surplus"), _BY_BOOKIE, "surplus_entries", **_JUDGED),
    Analysis(ORPHANS, sql.ORPHANS_SQL, _BY_BOOKIE, "bytes", needs_metadata=True),
    Analysis(
        LEAKED_LEDGERS,
        _leaked_ledgers_sql,
        ("class", "-bytes", *_BY_LEDGER),
        "bytes",
        needs_metadata=True,
        needs_pulsar=True,
        chooses_by="definition",
    ),
    Analysis(HOLES, _holes_job, _BY_BOOKIE, "holes", chooses_by="rows"),
    Analysis(BOOKIE_BYTES, _bookie_bytes_sql, ("bookie",), "log_file_bytes"),
    Analysis(SCOPE_BYTES, sql.SCOPE_BYTES_SQL, ("scope_id",), "bytes"),
    Analysis(
        OWNER_BYTES,
        _owner_bytes_sql,
        ("-bytes", *_BY_OWNER),
        "bytes",
        needs_metadata=True,
        chooses_by="definition",
    ),
    Analysis(LEDGER_BYTES, sql.LEDGER_BYTES_SQL, _BY_LEDGER, "bytes", chooses_by="rows"),
    Analysis(LOG_OCCUPANCY, _log_occupancy_sql, ("bookie", "dir_index", "log_id"), "garbage_bytes"),
    Analysis(FRAGMENTATION, _fragmentation_job, _BY_BOOKIE, "stretches", chooses_by="rows"),
    Analysis(SEQUENCES, _sequences_job, _BY_BOOKIE, "sequences", chooses_by="rows"),
    Analysis(COMPARISON, _comparison_job, _BY_BOOKIE, "added", needs_other=True, chooses_by="rows"),
)

ANALYSES = MappingProxyType({each.name: each for each in _ANALYSES})
"""Every analysis by the name of its table, the most important first."""


def find_analysis(name: str) -> Analysis:
    """Return the analysis of that name; raises `InvalidArgument` with the list of names."""
    if name not in ANALYSES:
        raise InvalidArgument(f"no analysis {name!r}: there are {', '.join(ANALYSES)}")
    return ANALYSES[name]
