"""Two bookies side by side: what differs is told, as ranges, whatever the layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bkstore import Availability, BookieDir, LedgerId
from bkstore.errors import BkstoreError, CorruptionError
from bkstore.formats.entry import encode_explicit_lac
from bkstore.index.api import EntryIndex, Finding, LedgerState
from bkstore.offline.diff import ComparedLedger, ComparedState, Difference, DirectorySide, diff
from tests.worlds.dumps import KEY, LAYOUTS, WIDE, fill

Told = tuple[str, LedgerId, str | None, list[int] | None]


class _Listed:
    """A side of what it is given, for the merge alone."""

    def __init__(self, name: str, held: list[ComparedLedger]) -> None:
        self.name = name
        self._held = held

    def ledgers(self, only: LedgerId | None = None) -> Iterator[ComparedLedger]:
        """Yield the ledgers, or the one that is asked for."""
        return (held for held in self._held if only in (None, held.ledger))


def _told(found: Difference) -> Told:
    entries = None if found.entries is None else found.entries.entries().tolist()
    return found.kind, found.ledger, found.only_in, entries


def _compared(a: Path, b: Path, findings: list[Finding] | None = None) -> list[Difference]:
    with BookieDir(a) as left, BookieDir(b) as right:
        told = [] if findings is None else findings
        return list(diff(DirectorySide(left), DirectorySide(right), told))


def _made(top: Path, layout: str, change: Callable[[EntryIndex], None] | None = None) -> Path:
    fill(LAYOUTS[layout](top))
    if change is not None:
        with LAYOUTS[layout](top) as index:
            change(index)
    return top


@pytest.mark.parametrize(("one", "other"), list(product(LAYOUTS, LAYOUTS)))
def test_nothing_differs_between_layouts(tmp_path: Path, one: str, other: str) -> None:
    """The same content is the same, in index files and RocksDB, in one directory and three."""
    findings: list[Finding] = []

    assert [] == _compared(_made(tmp_path / "a", one), _made(tmp_path / "b", other), findings)
    assert [] == findings


def _change(index: EntryIndex) -> None:
    index.delete(9)
    index.put_many(5, [3, 4, 9], [1028, 1100, 1200])
    index.put_many(1, [3000, 3001], [1028, 1100])
    index.put_many(LedgerId(3, 4), [1], [1028])
    index.set_state(300, LedgerState(KEY, fenced=True))
    index.set_state(2, LedgerState(b"other key, other key"))


EXPECTED: list[Told] = [
    ("entries", LedgerId.of(1), "b", [3000, 3001]),
    ("master_key", LedgerId.of(2), None, None),
    ("ledger", LedgerId.of(5), "b", [3, 4, 9]),
    ("ledger", LedgerId.of(9), "a", [0, 1, 2, 70_000, 70_001]),
    ("fenced", LedgerId.of(300), None, None),
    ("entries", LedgerId(3, 4), "b", [1]),
]


@pytest.mark.parametrize(("one", "other"), [("idx", "rocks3"), ("rocks", "idx"), ("idx", "idx")])
def test_each_kind_of_difference(tmp_path: Path, one: str, other: str) -> None:
    """Ledgers of one side, entries of one side, states: in unsigned order; and the other way."""
    a, b = _made(tmp_path / "a", one), _made(tmp_path / "b", other, _change)
    swapped = {"a": "b", "b": "a", None: None}
    found = _compared(a, b)

    assert EXPECTED == list(map(_told, found))
    assert [("no", "yes")] == [(each.a, each.b) for each in found if each.kind == "fenced"]
    assert [(k, name, swapped[w], e) for k, name, w, e in EXPECTED] == list(
        map(_told, _compared(b, a))
    )


def test_master_keys_are_not_told(tmp_path: Path) -> None:
    """That keys differ is told, what they are is not: neither in values nor in their text."""
    a, b = _made(tmp_path / "a", "idx"), _made(tmp_path / "b", "idx", _change)
    text = repr(_compared(a, b)) + repr(ComparedState(KEY, False, None, None))

    assert KEY.decode() not in text
    assert KEY.hex() not in text
    assert "other key" not in text


LACS = [None, *(encode_explicit_lac(300, lac, "CRC32C") for lac in (4, 7))]
OTHER_DIGEST = encode_explicit_lac(300, 4, "DUMMY")


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        pytest.param(LACS[0], LACS[1], ("none", "entry 4"), id="only one"),
        pytest.param(LACS[2], LACS[1], ("entry 7", "entry 4"), id="entries"),
        pytest.param(
            LACS[1], OTHER_DIGEST, ((LACS[1] or b"").hex(), OTHER_DIGEST.hex()), id="bytes"
        ),
        pytest.param(b"odd", LACS[1], (b"odd".hex(), "entry 4"), id="no body"),
    ],
)
def test_explicit_lacs(
    tmp_path: Path, one: bytes | None, other: bytes | None, said: tuple[str, str]
) -> None:
    """Explicit LACs differ by their bytes; told is the entry where that says it."""
    for name, body in (("a", one), ("b", other)):
        with LAYOUTS["rocks"](tmp_path / name) as index:
            index.set_state(300, LedgerState(KEY, explicit_lac=body))
    (found,) = _compared(tmp_path / "a", tmp_path / "b")

    assert ("explicit_lac", *said) == (found.kind, found.a, found.b)


def test_limbo_counts_where_both_keep_it(tmp_path: Path) -> None:
    """Index files keep no limbo: it is compared between RocksDB indexes only."""
    for name, layout, limbo in (("a", "rocks", True), ("b", "rocks3", False), ("c", "idx", False)):
        with LAYOUTS[layout](tmp_path / name) as index:
            index.set_state(7, LedgerState(KEY, limbo=limbo))
    (found,) = _compared(tmp_path / "a", tmp_path / "b")

    assert ("limbo", "yes", "no") == (found.kind, found.a, found.b)
    assert [] == _compared(tmp_path / "a", tmp_path / "c")


def test_a_damaged_ledger_is_not_compared(tmp_path: Path) -> None:
    """What cannot be read is a finding with its file; the ledger is neither alike nor different."""
    a, b = _made(tmp_path / "a", "idx"), _made(tmp_path / "b", "idx", _change)
    path = a / "ledgers/current/0/1/1.idx"
    path.write_bytes(b"XXXX" + path.read_bytes()[4:])
    findings: list[Finding] = []

    found = _compared(a, b, findings)

    assert str(path) in {told.file for told in findings}
    assert {LedgerId.of(1)} == {told.ledger for told in findings}
    assert {"damage"} == {told.severity for told in findings}
    assert all("not compared" in told.detail for told in findings)
    assert EXPECTED[1:] == [told for told in map(_told, found) if told[1] != LedgerId.of(1)]


def test_one_ledger(tmp_path: Path) -> None:
    """Asked for one ledger, only that is looked at, and told."""
    a, b = _made(tmp_path / "a", "rocks"), _made(tmp_path / "b", "idx", _change)
    seen: list[tuple[LedgerId, bool]] = []
    with BookieDir(a) as left, BookieDir(b) as right:
        for ledger in (LedgerId.of(1), LedgerId.of(2**63 - 1), LedgerId.of(77)):
            sides = DirectorySide(left), DirectorySide(right)
            list(diff(*sides, [], ledger, lambda name, differs: seen.append((name, differs))))

    assert [(LedgerId.of(1), True), (LedgerId.of(2**63 - 1), False)] == seen


def test_stripes_are_not_taken_apart() -> None:
    """What a stripe of 2^60 entries lacks is found on groups, in no time and memory."""
    name, state = LedgerId.of(1), ComparedState(b"", False, None, None)
    whole = Availability.from_entries(range(0, 2**60, 3))
    part = Availability.from_entries(range(0, 2**59, 3))
    (found,) = diff(
        _Listed("a", [ComparedLedger(name, whole, state)]),
        _Listed("b", [ComparedLedger(name, part, state)]),
        [],
    )

    assert found.entries is not None
    assert len(whole) - len(part) == len(found.entries)


NAMES = [LedgerId.of(1), LedgerId.of(2**63 - 1), LedgerId(1, 0), LedgerId(1, 2**63), *WIDE]
SETS = st.dictionaries(st.sampled_from(NAMES), st.sets(st.integers(0, 40)), max_size=5)


@given(SETS, SETS)
def test_against_plain_sets(a: dict[LedgerId, set[int]], b: dict[LedgerId, set[int]]) -> None:
    """The merge tells what plain sets do, of each ledger once, in order."""

    def side(name: str, held: dict[LedgerId, set[int]]) -> _Listed:
        state = ComparedState(b"", False, False, None)
        rows = [
            ComparedLedger(k, Availability.from_entries(sorted(v)), state)
            for k, v in sorted(held.items())
        ]
        return _Listed(name, rows)

    expected: list[Told] = []
    for name in sorted(a.keys() | b.keys()):
        if name not in a or name not in b:
            where = "a" if name in a else "b"
            expected.append(("ledger", name, where, sorted(a.get(name, b.get(name, set())))))
            continue
        for where, only in (("a", a[name] - b[name]), ("b", b[name] - a[name])):
            if only:
                expected.append(("entries", name, where, sorted(only)))
    seen: list[tuple[LedgerId, bool]] = []
    found = diff(side("a", a), side("b", b), [], on_ledger=lambda name, d: seen.append((name, d)))

    assert expected == list(map(_told, found))
    assert sorted(a.keys() | b.keys()) == [name for name, _ in seen]
    assert {name for _, name, _, _ in expected} == {name for name, d in seen if d}


@pytest.mark.parametrize("where", ["a", "b"])
def test_unread_parts_of_either_side(where: str) -> None:
    """Entries and state stand for themselves: what one side could read is compared."""
    name = LedgerId.of(1)
    state = ComparedState(b"", True, None, None)
    here = Availability.from_entries([1])
    broken = ComparedLedger(name, CorruptionError("f.idx", 9, "bad"), state)
    silent = ComparedLedger(name, here, BkstoreError("nobody knows"))
    fine = ComparedLedger(name, Availability(), ComparedState(b"", False, None, None))

    for held, kind, said in (
        (
            broken,
            "fenced",
            Finding("damage", "ledger 1: its entries are not compared: bad", "f.idx", 9, name),
        ),
        (
            silent,
            "entries",
            Finding(
                "damage", "odd: ledger 1: its state is not compared: nobody knows", None, None, name
            ),
        ),
    ):
        sides = [_Listed("odd", [held]), _Listed("fine", [fine])]
        findings: list[Finding] = []
        (found,) = diff(*(sides if where == "a" else sides[::-1]), findings)

        assert kind == found.kind
        assert [said] == findings


def test_memory_is_that_of_a_ledger() -> None:
    """Ledgers are asked for and told one by one: nothing waits for the end."""
    asked: list[int] = []

    class Endless(_Listed):
        def ledgers(self, only: LedgerId | None = None) -> Iterator[ComparedLedger]:
            for number in range(10**9):
                asked.append(number)
                here = Availability.from_entries(np.arange(number % 3))
                yield ComparedLedger(
                    LedgerId.of(number), here, ComparedState(self.name.encode(), False, None, None)
                )

    found = diff(Endless("a", []), Endless("b", []), [])

    assert ["master_key"] * 5 == [next(found).kind for _ in range(5)]
    assert len(asked) < 20
