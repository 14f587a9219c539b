"""The catalogue: every analysis by name, what it needs, what it is made by, how it is ordered.

An analysis is a SQL text, or a kernel and the rows that it is fed: of sorted files as they lie,
else sorted. Engines run them
(`local_engine`, and `bkstore.spark.analysis`); rules, columns and costs: `docs/analyses.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from bkstore.arguments import check_fields, instance, number, optional, whole
from bkstore.errors import InvalidArgument
from bkstore.offline.analyses import sql
from bkstore.offline.analyses.judged_files import JudgedFiles
from bkstore.offline.analyses.kernels.fragmentation import Fragmentation
from bkstore.offline.analyses.kernels.holes import Holes
from bkstore.offline.analyses.kernels.judge import Judge
from bkstore.offline.analyses.kernels.sequences import (
    Compare,
    Condense,
    CondensedSequences,
    Sequences,
)
from bkstore.offline.analyses.kernels.verdict_rows import Output
from bkstore.offline.analyses.metadata_table import Metadata
from bkstore.offline.analyses.sorted_files import Answering, Direct
from bkstore.offline.reading.open_dump import Dump
from bkstore.tables import (
    BOOKIE_BYTES,
    COMPARISON,
    FRAGMENTATION,
    GROUPS,
    HEALTH,
    HOLES,
    HOMELESS,
    LEDGER_BYTES,
    LOG_OCCUPANCY,
    ORPHANS,
    SCOPE_BYTES,
    SEQUENCES,
    SURPLUS,
    VIOLATIONS,
    Schema,
)

if TYPE_CHECKING:
    import pyarrow as pa

PINNED = 0.2
"""Below this occupancy a log counts as pinned: upstream's `minorCompactionThreshold`."""

_Kernel = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


@dataclass(frozen=True)
class Options:
    """What may be asked for beside the dump.

    `top`: only so many rows, those with the most in column `by` (default: the analysis's own),
    most first. `pinned`: the occupancy below which an entry log counts as pinned.
    """

    top: int | None = None
    by: str | None = None
    pinned: float = PINNED

    def __post_init__(self) -> None:
        """Refuse what makes no sense. Whether there is a column `by`, its analysis knows."""
        check_fields(self, _CHECKS)


_CHECKS = {
    "top": optional(whole(1)),
    "by": optional(instance(str)),
    "pinned": number(0, 1),
}


@dataclass(frozen=True)
class Inputs:
    """What is analysed: a dump, ledger metadata and a second dump where there are any."""

    dump: Dump
    metadata: Metadata | None = None
    other: Dump | None = None
    options: Options = field(default_factory=Options)


@dataclass(frozen=True)
class Feed:
    """Rows that a kernel is fed, sorted: a SQL text, or None for the columns that `Pass.direct`
    reads (or what `Pass.before` makes of them). `keys` are what must stay together, and `order`
    what the rows of a key are sorted by. Ids among `keys` sort unsigned.
    """

    text: str | None
    keys: tuple[str, ...]
    order: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pass:
    """A kernel at work: what it is fed, and what is made.

    `direct` is how sorted files answer without any sorting. `before` shrinks the rows of others
    first, entries to `groups`, where they lie and in any order.
    """

    feed: Feed
    kernel: _Kernel
    direct: Answering
    before: Direct | None = None


@dataclass(frozen=True)
class Analysis:
    """One analysis. `answer` is its SQL text, or makes that or a `Pass` of the inputs.

    Rows come sorted by `order`, ids unsigned; with `Options.top` by `rank`, most first.
    """

    schema: Schema
    answer: str | Callable[[Inputs], str | Pass]
    order: tuple[str, ...]
    rank: str
    needs_metadata: bool = False
    needs_other: bool = False

    @property
    def name(self) -> str:
        """What it and its table are called."""
        return self.schema.name

    def work(self, inputs: Inputs) -> str | Pass:
        """Return the SQL text or the `Pass` that answers it."""
        return self.answer if isinstance(self.answer, str) else self.answer(inputs)

    def lacks(self, inputs: Inputs) -> str | None:
        """Return what the inputs lack for it, None if they have all."""
        if self.needs_metadata and inputs.metadata is None:
            return "ledger metadata"
        if self.needs_other and inputs.other is None:
            return "a second dump"
        return None

    def ranked_by(self, options: Options) -> str:
        """Return the column of the top rows; `InvalidArgument` if it is no number of ours."""
        name = options.by or self.rank
        numbers = [c.name for c in self.schema.columns if c.kind in ("int64", "float64")]
        numbers = [each for each in numbers if each not in ("scope_id", "ledger_id")]
        if name not in numbers:
            raise InvalidArgument(f"{self.name} has no column {name!r} to go by: {numbers}")
        return name


def _live(inputs: Inputs) -> str:
    return sql.LIVE_BY_INDEX if inputs.metadata is None else sql.LIVE_BY_METADATA


def _occupancy(inputs: Inputs) -> str:
    pinned = repr(float(inputs.options.pinned))
    return sql.LOG_OCCUPANCY_SQL.format(live=_live(inputs), pinned=pinned)


def _by_bookie(inputs: Inputs) -> str:
    return sql.BOOKIE_BYTES_SQL.format(live=_live(inputs))


_BOOKIE_LEDGER = ("bookie", "scope_id", "ledger_id")


def _sequences(_: Inputs) -> Pass:
    columns = ("scope_id", "ledger_id", "entry_id")
    feed = Feed(None, _BOOKIE_LEDGER, ("first_sequence_start",))
    direct, before = (Direct("entries", columns, made) for made in (CondensedSequences, Condense))
    return Pass(feed, Sequences(), direct, before)


def _holes(_: Inputs) -> Pass:
    feed = Feed(sql.READ_GROUPS, _BOOKIE_LEDGER, ("first_sequence_start",))
    direct = Direct("groups", tuple(GROUPS.names[1:]), Holes, only_read=True)
    return Pass(feed, Holes(), direct)


def _fragmentation(_: Inputs) -> Pass:
    columns = ("scope_id", "ledger_id", "entry_id", "dir_index", "log_id", "position")
    feed = Feed(None, _BOOKIE_LEDGER, ("entry_id", "log_id", "position", "dir_index"))
    kernel = Fragmentation(repeated=True)
    return Pass(feed, kernel, Direct("entries", columns, Fragmentation))


def _judged(output: Output) -> Callable[[Inputs], Pass]:
    def make(inputs: Inputs) -> Pass:
        order = ("role", "bookie", "first_sequence_start")
        feed = Feed(sql.JUDGED, ("scope_id", "ledger_id"), order)
        judge = Judge(output, inputs.dump.bookies)
        return Pass(feed, judge, JudgedFiles(judge))

    return make


def _compared(_: Inputs) -> Pass:
    order = ("side", "first_sequence_start")
    feed = Feed(sql.COMPARED, _BOOKIE_LEDGER, order)
    return Pass(feed, Compare(), Direct("groups", tuple(GROUPS.names[1:]), Compare))


_BY_BOOKIE = ("bookie", "qualified_name")
_BY_LEDGER = ("qualified_name",)

_LISTED = (
    Analysis(
        VIOLATIONS,
        _judged("violations"),
        ("qualified_name", "first_entry", "bookie"),
        "missing_entries",
        needs_metadata=True,
    ),
    Analysis(HOMELESS, _judged("homeless"), _BY_LEDGER, "last_entry_id", needs_metadata=True),
    Analysis(HEALTH, _judged("ledger_health"), _BY_LEDGER, "replicas_missing", needs_metadata=True),
    Analysis(SURPLUS, _judged("surplus"), _BY_BOOKIE, "surplus_entries", needs_metadata=True),
    Analysis(ORPHANS, sql.ORPHANS_SQL, _BY_BOOKIE, "bytes", needs_metadata=True),
    Analysis(HOLES, _holes, _BY_BOOKIE, "holes"),
    Analysis(BOOKIE_BYTES, _by_bookie, ("bookie",), "log_file_bytes"),
    Analysis(SCOPE_BYTES, sql.SCOPE_BYTES_SQL, ("scope_id",), "bytes"),
    Analysis(LEDGER_BYTES, sql.LEDGER_BYTES_SQL, _BY_LEDGER, "bytes"),
    Analysis(LOG_OCCUPANCY, _occupancy, ("bookie", "dir_index", "log_id"), "garbage_bytes"),
    Analysis(FRAGMENTATION, _fragmentation, _BY_BOOKIE, "stretches"),
    Analysis(SEQUENCES, _sequences, _BY_BOOKIE, "sequences"),
    Analysis(COMPARISON, _compared, _BY_BOOKIE, "added", needs_other=True),
)

ANALYSES = MappingProxyType({each.name: each for each in _LISTED})
"""Every analysis by the name of its table; what matters most comes first."""


def find(name: str) -> Analysis:
    """Return the analysis of that name; `InvalidArgument` naming all if there is none."""
    if name not in ANALYSES:
        raise InvalidArgument(f"no analysis {name!r}: there are {', '.join(ANALYSES)}")
    return ANALYSES[name]
