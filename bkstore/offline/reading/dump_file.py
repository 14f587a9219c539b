"""A Parquet file of a dump, with what its footer says of its row groups."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.ids import LedgerId
from bkstore.offline.reading.ledger_ranges import LedgerRange

if TYPE_CHECKING:
    import pyarrow.parquet as pq

__all__ = ["DumpFile", "RowGroup", "described", "has_nulls", "is_pure", "row_groups"]


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
    """A Parquet file of a dump, whose rows it has, and how many.

    `pure`: its statistics say so, too, of all of its rows. `ledgers`: the manifest says that it
    is sorted, and from which ledger to which.
    """

    path: str
    bookie: str
    rows: int
    pure: bool
    ledgers: LedgerRange | None = None
    row_groups: tuple[RowGroup, ...] = ()


def described(
    path: str | os.PathLike[str], said: Mapping[str, Any], footer: pq.FileMetaData, table: str
) -> DumpFile:
    """Return a file of a table, of which a manifest says `said`.

    Raises `CorruptionError` where that makes no sense.
    """
    try:
        ledgers = LedgerRange.from_json(said, table)
    except InvalidArgument as error:
        raise CorruptionError(path, None, f"the manifest says: {error}") from None
    pure = is_pure(footer, said["bookie"])
    groups = row_groups(footer)
    return DumpFile(os.fspath(path), said["bookie"], footer.num_rows, pure, ledgers, groups)


def is_pure(footer: pq.FileMetaData, bookie: str) -> bool:
    """Return whether statistics say that all rows are of this bookie."""
    at = _columns(footer).get("bookie")
    if at is None:
        return not footer.num_row_groups
    for number in range(footer.num_row_groups):
        said = _statistics(footer, number, at)
        if said is None or not said.min == said.max == bookie:
            return False
    return True


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
