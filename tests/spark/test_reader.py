"""What the reader of the source `bookie` plans and reads, without a session.

The bookies cross the edges of a plan: more ledgers than are looked up one by one, scopes and
ledgers of either sign, ledgers at the ends of a range, several directories, several pieces.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bkstore.errors import CorruptionError, DirectoryInUse
from bkstore.ids import LedgerId
from bkstore.index.api import EntryIndex
from bkstore.spark.source.options import parse_options
from tests.worlds.dumps import LAYOUTS, write_log

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark")

TOP = 2**63
LEDGERS = [
    *(LedgerId(0, ledger) for ledger in range(40)),
    LedgerId(0, TOP - 2),
    LedgerId(0, TOP - 1),
    *(LedgerId(1, ledger) for ledger in (0, 2**64 - 1)),
    *(LedgerId(3, ledger) for ledger in range(25)),
    *(LedgerId(3, TOP + ledger) for ledger in range(20)),
    LedgerId(TOP - 1, 7),
    *(LedgerId(TOP, ledger) for ledger in (0, 7, 2**64 - 1)),
    LedgerId(2**64 - 1, 2**64 - 1),
]
ENTRIES = 3
Row = tuple[str, int, int, int]


def _fill(index: EntryIndex, ledgers: list[LedgerId] = LEDGERS) -> None:
    with index:
        for ledger in ledgers:
            index.put_many(ledger, range(ENTRIES), range(1028, 1028 + ENTRIES))


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return a bookie of each layout with LEDGERS."""
    top = tmp_path_factory.mktemp("edges")
    for name, make in LAYOUTS.items():
        _fill(make(top / name))
    return [top / name for name in LAYOUTS]


def _reader(paths: list[Path], *filters: Any, **options: object) -> Any:
    """Return a reader that has taken all the filters."""
    from bkstore.spark.source.data_source import BookieReader

    words = {"paths": json.dumps(list(map(str, paths)))}
    reader = BookieReader(parse_options(words | {k: str(v) for k, v in options.items()}))
    assert [] == list(reader.pushFilters(list(filters)))
    return reader


def _batches(reader: Any) -> Iterator[Any]:
    for part in reader.partitions():
        yield from reader.read(part)


def _rows(reader: Any) -> list[Row]:
    """Return the rows, each as often as it is given, sorted."""
    names = ("bookie", "scope_id", "ledger_id", "entry_id")
    found = [tuple(row[name] for name in names) for b in _batches(reader) for row in b.to_pylist()]
    return sorted(found)


def _expected(
    keep: Callable[[int, int], bool], names: tuple[str, ...] = tuple(LAYOUTS)
) -> list[Row]:
    """Return the rows of ledgers, by their signed ids, that plain Python keeps."""
    kept = [ledger.signed for ledger in LEDGERS if keep(*ledger.signed)]
    return sorted((name, *ids, entry) for name in names for ids in kept for entry in range(ENTRIES))


@pytest.mark.parametrize("count", [2, 16, 17, 20])
def test_any_number_of_ledgers_may_be_asked_for(paths: list[Path], count: int) -> None:
    """`IN` of few ids or many gives the rows of each of them, once; not of those between them."""
    from pyspark.sql.datasource import EqualTo, In

    wanted = tuple(range(0, 2 * count, 2))
    found = _rows(_reader(paths, EqualTo(("scope_id",), 0), In(("ledger_id",), wanted)))

    assert _expected(lambda s, n: s == 0 and n in wanted) == found


def test_many_ledgers_of_any_scope(paths: list[Path]) -> None:
    """Without a scope, ids are those of ledgers of each scope."""
    from pyspark.sql.datasource import In

    wanted = tuple(range(1, 40, 2))

    assert _expected(lambda s, n: n in wanted) == _rows(_reader(paths, In(("ledger_id",), wanted)))
    (null,) = {_reader(paths, In(("ledger_id",), (3, None))).bounds.ledgers}
    assert ((3, 3),) == null  # which is no id


def test_many_ledgers_with_the_top_bit(paths: list[Path]) -> None:
    """Negative ids are the ledgers with the top bit; more than 16 of them are all read."""
    from pyspark.sql.datasource import EqualTo, In

    wanted = (*range(-(2**63), -(2**63) + 19, 2), *range(1, 24, 2), -1)

    assert _expected(lambda s, n: s == 3 and n in wanted) == _rows(
        _reader(paths, EqualTo(("scope_id",), 3), In(("ledger_id",), wanted))
    )
    assert _expected(lambda s, n: s < 0 and n in wanted) == _rows(
        _reader(paths, In(("scope_id",), (-1, -(2**63))), In(("ledger_id",), wanted))
    )


CASES: list[tuple[str, str, int, Callable[[int, int], bool]]] = [
    ("LessThan", "ledger_id", 0, lambda s, n: n < 0),
    ("LessThan", "ledger_id", 20, lambda s, n: n < 20),
    ("LessThanOrEqual", "ledger_id", 20, lambda s, n: n <= 20),
    ("LessThan", "ledger_id", -(2**63), lambda s, n: False),
    ("LessThanOrEqual", "ledger_id", -(2**63), lambda s, n: n == -(2**63)),
    ("GreaterThan", "ledger_id", 20, lambda s, n: n > 20),
    ("GreaterThanOrEqual", "ledger_id", 20, lambda s, n: n >= 20),
    ("GreaterThan", "ledger_id", TOP - 2, lambda s, n: n == TOP - 1),
    ("GreaterThan", "ledger_id", TOP - 1, lambda s, n: False),
    ("GreaterThanOrEqual", "ledger_id", -1, lambda s, n: n >= -1),
    ("EqualTo", "ledger_id", TOP - 1, lambda s, n: n == TOP - 1),
    ("EqualTo", "ledger_id", -1, lambda s, n: n == -1),
    ("EqualTo", "scope_id", 0, lambda s, n: s == 0),
    ("EqualTo", "scope_id", 1, lambda s, n: s == 1),
    ("EqualTo", "scope_id", -1, lambda s, n: s == -1),
    ("EqualTo", "scope_id", -(2**63), lambda s, n: s == -(2**63)),
    ("EqualTo", "scope_id", TOP - 1, lambda s, n: s == TOP - 1),
    ("LessThan", "scope_id", 0, lambda s, n: s < 0),
    ("LessThanOrEqual", "scope_id", 1, lambda s, n: s <= 1),
    ("GreaterThan", "scope_id", 0, lambda s, n: s > 0),
    ("GreaterThanOrEqual", "scope_id", 3, lambda s, n: s >= 3),
]


@pytest.mark.parametrize(("kind", "column", "value", "keep"), CASES)
def test_comparisons_at_the_edges(
    paths: list[Path], kind: str, column: str, value: int, keep: Callable[[int, int], bool]
) -> None:
    """Ids compare as signed numbers, also where indexes begin or end, or change their sign."""
    from pyspark.sql import datasource

    one = getattr(datasource, kind)((column,), value)

    assert _expected(keep) == _rows(_reader(paths, one))


def test_pieces_that_a_filter_leaves(paths: list[Path]) -> None:
    """Up to 16 ranges of a database are looked up one by one, more are read as one; a single
    ledger is looked for in its own directory, and of index files just its own is opened.
    """
    from pyspark.sql.datasource import EqualTo, In

    idx, rocks, rocks3 = paths
    scope = EqualTo(("scope_id",), 0)

    def pieces(path: Path, *wanted: int) -> list[Any]:
        reader = _reader([path], scope, In(("ledger_id",), wanted))
        return [piece for part in reader.partitions() for piece, _ in part.table_partition.pieces]

    assert [16, 1] == [len(pieces(rocks, *range(0, 2 * n, 2))) for n in (16, 17)]
    assert [LedgerId(0, 5)] == [piece.first_ledger for piece in pieces(rocks, 5)]
    assert [LedgerId(0, 6)] == [piece.stop_ledger for piece in pieces(rocks, 5)]
    assert [(2, LedgerId(0, 5))] == [(p.dir_index, p.first_ledger) for p in pieces(rocks3, 5)]
    assert [[LedgerId(0, 5), LedgerId(0, 9)]] == [
        [ledger for ledger, _ in piece.files] for piece in pieces(idx, 5, 9, 777)
    ]


@pytest.mark.parametrize("size", [800, 2000])
def test_pieces_of_any_size(paths: list[Path], size: int) -> None:
    """Partitions of any size have each row once, and a filter holds in each of them."""
    from pyspark.sql.datasource import GreaterThan

    whole = _reader(paths, partitionrows=size)
    behind = _reader(paths, GreaterThan(("ledger_id",), 9), partitionrows=size)

    assert len(whole.partitions()) > 3
    assert _expected(lambda s, n: True) == _rows(whole)
    assert _expected(lambda s, n: n > 9) == _rows(behind)


def test_bookies_that_are_wanted(paths: list[Path]) -> None:
    """Filters on `bookie` go together; those on other columns stay with Spark."""
    from pyspark.sql.datasource import EqualTo, GreaterThan, In

    one = _reader(paths, In(("bookie",), ("idx", "rocks")), EqualTo(("bookie",), "rocks"))
    none = _reader(paths, EqualTo(("bookie",), "idx"), EqualTo(("bookie",), "rocks"))
    others = [GreaterThan(("bookie",), "a"), EqualTo(("entry_id",), 1)]

    assert _expected(lambda s, n: True, ("rocks",)) == _rows(one)
    assert [] == _rows(none)
    assert others == list(_reader(paths).pushFilters(others))


# -- damage


def test_damage_in_what_is_read_last(tmp_path: Path) -> None:
    """Damage behind the last row, or in a part without rows, ends a query as any other does."""
    from pyspark.sql.datasource import EqualTo

    _fill(LAYOUTS["idx"](tmp_path), [LedgerId.of(1), LedgerId.of(2)])
    next(tmp_path.rglob("2.idx")).write_bytes(b"torn")
    for filters in ((), (EqualTo(("ledger_id",), 2),)):
        with pytest.raises(CorruptionError, match=r"2\.idx: offset 4: .*option damage=skip"):
            _rows(_reader([tmp_path], *filters))
    name = tmp_path.name

    assert [(name, 0, 1, e) for e in range(ENTRIES)] == _rows(_reader([tmp_path], damage="skip"))
    assert ENTRIES == len(_rows(_reader([tmp_path], EqualTo(("ledger_id",), 1))))


def test_damage_ends_a_query_before_further_rows(tmp_path: Path) -> None:
    """Rows behind damage are not given: the query has failed."""
    _fill(LAYOUTS["idx"](tmp_path), [LedgerId.of(1), LedgerId.of(2)])
    next(tmp_path.rglob("1.idx")).write_bytes(b"torn")
    with pytest.raises(CorruptionError, match=r"1\.idx"):
        next(_batches(_reader([tmp_path])))


def test_lengths_that_cannot_be_read(tmp_path: Path) -> None:
    """A log without the records that locations point to is damage, told behind the last row."""
    _fill(LAYOUTS["rocks"](tmp_path), [LedgerId.of(1)])
    write_log(tmp_path / "ledgers/current/0.log", iter([(LedgerId.of(1), 0, 100)]))
    reader = _reader([tmp_path], length="true")
    with pytest.raises(CorruptionError, match=r"0\.log"):
        _rows(reader)
    rest = _reader([tmp_path], length="true", damage="skip")

    told = _reader([tmp_path], table="findings", length="true")
    files = {row["file"].rpartition("/")[2] for b in _batches(told) for row in b.to_pylist()}

    assert {"0.log"} == files
    assert [100, None, None] == [row["length"] for b in _batches(rest) for row in b.to_pylist()]


def test_files_that_change_between_plan_and_rows(tmp_path: Path) -> None:
    """Files that are others than those that were planned are refused, unless read live."""
    _fill(LAYOUTS["idx"](tmp_path), [LedgerId.of(1)])
    (path,) = tmp_path.rglob("1.idx")
    for live in (False, True):
        reader = _reader([tmp_path], live=str(live).lower())
        (part,) = reader.partitions()
        path.write_bytes(path.read_bytes() + bytes(8192))
        rows = reader.read(part)
        if live:
            assert ENTRIES == sum(batch.num_rows for batch in rows)
        else:
            with pytest.raises(DirectoryInUse, match=f"{tmp_path.name}: files changed"):
                list(rows)
