"""A Parquet file of a dump: what the manifest says of it, and what its own footer does."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from bkstore.counts import counted
from bkstore.errors import CorruptionError, InvalidArgument, UnsupportedLayout
from bkstore.ids import LedgerId
from bkstore.offline.reading.ledger_ranges import LedgerRange
from bkstore.tables import Schema

if TYPE_CHECKING:
    import pyarrow.parquet as pq


class RowGroup(NamedTuple):
    """Rows that are read together. `first` and `last` are ledgers that are known by statistics.

    They hold for sorted files. Parquet's least and greatest ids are signed: where a group has
    ids of both signs they do not tell which ledger comes first.
    """

    rows: int
    first: LedgerId | None
    last: LedgerId | None


@dataclass(frozen=True)
class DumpFile:
    """A Parquet file of a dump, whose rows it has, and how many: what its manifest says.

    `pure`: all rows are of `bookie`, as in every dump; who reads them looks. `ledgers`: it is
    sorted, and from which ledger to which. Nothing here asks for the file's footer.
    """

    path: str
    table: str
    bookie: str
    rows: int
    pure: bool = True
    ledgers: LedgerRange | None = None


def described(path: str | os.PathLike[str], said: Mapping[str, Any], table: str) -> DumpFile:
    """Return a file of a table, of which a manifest says `said`.

    Raises `CorruptionError` where that makes no sense.
    """
    try:
        ledgers = LedgerRange.from_json(said, table)
    except InvalidArgument as error:
        raise CorruptionError(path, None, f"the manifest says: {error}") from None
    return DumpFile(os.fspath(path), table, said["bookie"], said["rows"], True, ledgers)


def check_footer(
    place: str,
    file: pq.ParquetFile,
    schema: Schema,
    columns: Sequence[str] | None,
    rows: int | None,
) -> None:
    """Raise unless a file has the declared columns, or these of them, and so many rows (None:
    any number).

    `UnsupportedLayout` for other columns, `CorruptionError` for other rows. Of some columns, text
    may be Arrow's large text too.
    """
    here, wanted = file.schema_arrow, schema.to_arrow()
    if columns is None:
        odd = [f"{f.name} {f.type}" for f in here if f not in wanted]
        lost = [f.name for f in wanted if f.name not in here.names]
        if here.names != wanted.names or here.types != wanted.types:
            said = f"it has {', '.join(odd or here.names)}"
            raise _other(place, schema, said + (f", it lacks {', '.join(lost)}" if lost else ""))
    for column in (f for f in wanted if f.name in (columns or ())):
        at = here.get_all_field_indices(column.name)
        if len(at) != 1:
            raise _other(place, schema, f"no column {column.name}")
        kind = here.field(at[0]).type
        if kind != column.type and str(kind) != f"large_{column.type}":
            raise _other(place, schema, f"{column.name} is {kind}, not {column.type}")
    if rows is not None and file.metadata.num_rows != rows:
        has = counted(file.metadata.num_rows, "row")
        raise CorruptionError(place, None, f"has {has}, the manifest says {rows}")


def _other(place: str, schema: Schema, said: str) -> UnsupportedLayout:
    return UnsupportedLayout(f"{place}: not the table {schema.name} of a dump: {said}")


def is_pure(footer: pq.FileMetaData, bookie: str) -> bool:
    """Return whether statistics say that all rows are of this bookie, and none of null."""
    at = _columns(footer).get("bookie")
    if at is None:
        return not footer.num_row_groups
    for number in range(footer.num_row_groups):
        said = _statistics(footer, number, at)
        # As bytes: what is no UTF-8 is no bookie's name either.
        if said is None or not said.min_raw == said.max_raw == bookie.encode():
            return False
    return not has_nulls(footer, "bookie")


def has_nulls(footer: pq.FileMetaData, name: str) -> bool:
    """Return whether a column may have nulls, as far as statistics tell."""
    at = _columns(footer)[name]
    for number in range(footer.num_row_groups):
        said: Any = footer.row_group(number).column(at).statistics
        if said is None or not said.has_null_count or said.null_count:
            return True
    return False


def row_groups(footer: pq.FileMetaData) -> tuple[RowGroup, ...]:
    """Return the row groups of a file that has columns `scope_id` and `ledger_id`, or none.

    Cost: some 10 us a row group.
    """
    columns = _columns(footer)
    found = []
    for number in range(footer.num_row_groups):
        rows = footer.row_group(number).num_rows
        ends: tuple[LedgerId | None, LedgerId | None] = (None, None)
        if "scope_id" in columns and "ledger_id" in columns:
            said = [_statistics(footer, number, columns[n]) for n in ("scope_id", "ledger_id")]
            ends = _ends(*said)
        found.append(RowGroup(rows, *ends))
    return tuple(found)


def check_row_groups(
    place: str, groups: Sequence[RowGroup], ledgers: LedgerRange | None = None
) -> None:
    """Raise `CorruptionError` where statistics tell that a file is not sorted as its manifest
    says, or has others than these ledgers. O(row groups).
    """
    known = [(at, g.first, g.last) for at, g in enumerate(groups) if g.first and g.last]
    for (before, _, last), (at, first, _) in pairwise(known):
        if first < last:
            reason = (
                f"row group {at} begins with ledger {first}, row group {before} ends with {last}"
            )
            raise CorruptionError(place, None, f"the manifest says that it is sorted, and {reason}")
    for _, first, last in known:
        if ledgers is not None and not ledgers.first <= first <= last <= ledgers.last:
            odd = first if first < ledgers.first else last
            raise outside(place, odd, ledgers)


def outside(place: str, ledger: tuple[int, int], ledgers: LedgerRange) -> CorruptionError:
    """Return the error for a file that has a ledger outside the range that its manifest says."""
    scope, number = ledger  # it may be none of ours: of scope 0 and above 2^63-1
    name = f"{scope:016x}{number:016x}" if scope else str(number)
    said = f"the manifest says that its ledgers are {ledgers.first} to {ledgers.last}"
    return CorruptionError(place, None, f"has ledger {name}, {said}")


def _columns(footer: pq.FileMetaData) -> dict[str, int]:
    return {footer.schema.column(at).path: at for at in range(footer.num_columns)}


def _statistics(footer: pq.FileMetaData, number: int, at: int) -> Any:
    said = footer.row_group(number).column(at).statistics
    return said if said is not None and said.has_min_max else None


def _ends(scope: Any, ledger: Any) -> tuple[LedgerId | None, LedgerId | None]:
    """Return the first and last ledger of a row group of one scope, whose ids have one sign."""
    if scope is None or ledger is None or scope.min != scope.max:
        return None, None
    if ledger.min < 0 <= ledger.max:
        return None, None
    try:
        return tuple(LedgerId.from_signed(scope.min, n) for n in (ledger.min, ledger.max))  # type: ignore[return-value]
    except InvalidArgument:
        return None, None
