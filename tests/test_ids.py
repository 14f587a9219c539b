"""Ledger ids, entry ids and locations: arithmetic, text forms, order."""

from __future__ import annotations

import contextlib
import copy
import pickle
import uuid

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bkstore import ids
from bkstore.errors import InvalidArgument
from bkstore.ids import LedgerId, make_locations

UNSIGNED = st.one_of(
    st.integers(0, 2**64 - 1),
    st.sampled_from([0, 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1]),
)
NAMED = st.tuples(UNSIGNED, UNSIGNED).filter(lambda pair: pair[0] > 0 or pair[1] < 2**63)


class TestLedgerId:
    """The two halves and where they may lie."""

    def test_plain_int_is_scope_0(self) -> None:
        """A plain int names a ledger of scope 0, as BookKeeper's ids do."""
        assert (0, 7) == LedgerId.of(7)
        assert (0, 7) == LedgerId(ledger=7)
        assert (0, 7) == LedgerId.of(np.int64(7))

    def test_one_half_is_not_enough(self) -> None:
        """`LedgerId(7)` would be a scope without a ledger and is refused."""
        with pytest.raises(InvalidArgument):
            LedgerId(7)

    @pytest.mark.parametrize(
        ("scope", "ledger"), [(0, -1), (0, 2**63), (0, 2**64 - 1), (0, -(2**63))]
    )
    def test_scope_0_holds_63_bits(self, scope: int, ledger: int) -> None:
        """Scope 0 has no ledger above 2^63-1: a real bookie would refuse to start."""
        with pytest.raises(InvalidArgument):
            LedgerId(scope, ledger)

    @pytest.mark.parametrize(("scope", "ledger"), [(1, 2**64), (2**64, 1), (1, -(2**63) - 1)])
    def test_64_bits_each(self, scope: int, ledger: int) -> None:
        """Neither half may need more than 64 bits."""
        with pytest.raises(InvalidArgument):
            LedgerId(scope, ledger)

    @pytest.mark.parametrize("value", [True, "7", 7.0, None, b"7", (0, 7)])
    def test_other_types_are_refused(self, value: object) -> None:
        """Only ints and ledger ids name a ledger."""
        with pytest.raises(InvalidArgument):
            LedgerId.of(value)  # type: ignore[arg-type]

    @given(NAMED)
    def test_negative_is_modulo(self, pair: tuple[int, int]) -> None:
        """Negative halves, as Java and tables show them, are taken modulo 2^64."""
        signed = [half - 2**64 if half >= 2**63 else half for half in pair]

        assert pair == LedgerId(*signed)
        assert tuple(signed) == LedgerId(*pair).signed
        assert pair == LedgerId.from_signed(*signed)

    @given(st.lists(NAMED, max_size=8))
    def test_order_is_unsigned(self, pairs: list[tuple[int, int]]) -> None:
        """Ids, their names and their UUIDs all sort as 128-bit unsigned numbers."""
        by_number = sorted(pairs, key=lambda pair: pair[0] << 64 | pair[1])
        found = [LedgerId(*pair) for pair in pairs]

        assert by_number == sorted(found)
        assert by_number == sorted(found, key=lambda ledger: ledger.qualified_name)
        assert by_number == sorted(found, key=lambda ledger: ledger.uuid.int)

    @given(NAMED)
    def test_copies_are_equal(self, pair: tuple[int, int]) -> None:
        """Pickling and copying keep the id and its type."""
        ledger = LedgerId(*pair)

        for other in (pickle.loads(pickle.dumps(ledger)), copy.copy(ledger), copy.deepcopy(ledger)):
            assert ledger == other
            assert type(other) is LedgerId
            assert hash(ledger) == hash(other)


class TestText:
    """Decimal, hex, qualified name, UUID."""

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("7", (0, 7)),
            (" 7\n", (0, 7)),
            ("+7", (0, 7)),
            ("0", (0, 0)),
            ("9223372036854775807", (0, 2**63 - 1)),
            ("0x10", (0, 16)),
            ("0X1f", (0, 31)),
            ("0x7fffffffffffffff", (0, 2**63 - 1)),
            ("0000000000000001000000000000000a", (1, 10)),
            ("0x0000000000000001000000000000000A", (1, 10)),
            ("ffffffffffffffffffffffffffffffff", (2**64 - 1, 2**64 - 1)),
            ("00000000-0000-0001-0000-00000000000a", (1, 10)),
            ("80000000-0000-0000-8000-000000000000", (2**63, 2**63)),
            ("00000000000000000000000000000009", (0, 9)),
        ],
    )
    def test_parse(self, text: str, expected: tuple[int, int]) -> None:
        """Four forms are read; the last two carry their own scope."""
        assert expected == LedgerId.parse(text)

    def test_parse_with_a_scope(self) -> None:
        """Decimal and hex name a ledger of the given scope, negative numbers included."""
        assert (5, 7) == LedgerId.parse("7", scope=5)
        assert (5, 2**64 - 1) == LedgerId.parse("-1", scope=5)
        assert (5, 2**63) == LedgerId.parse("0x8000000000000000", scope=5)
        assert (1, 10) == LedgerId.parse("0000000000000001000000000000000a", scope=5)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "-1",
            "x",
            "0x",
            "1.0",
            "1e3",
            "7 8",
            "1_000",
            "\u0667",
            "0x10000000000000000",
            "9223372036854775808",
            "18446744073709551616",
            "123456789012345678901",
            "ffffffffffffffff",
            "0000000000000000ffffffffffffffff",
            "00000000-0000-0001-0000-00000000000",
            "{00000000-0000-0001-0000-00000000000a}",
            "0x00000000-0000-0001-0000-00000000000a",
        ],
    )
    def test_parse_refuses(self, text: str) -> None:
        """Anything else is no ledger id, and no other error escapes."""
        with pytest.raises(InvalidArgument):
            LedgerId.parse(text)

    @given(NAMED)
    def test_round_trips(self, pair: tuple[int, int]) -> None:
        """Each text form is read back as the id it came from."""
        ledger = LedgerId(*pair)

        assert f"{pair[0]:016x}{pair[1]:016x}" == ledger.qualified_name
        assert uuid.UUID(int=pair[0] << 64 | pair[1]) == ledger.uuid
        assert ledger == LedgerId.parse(ledger.qualified_name)
        assert ledger == LedgerId.parse(str(ledger.uuid))
        assert ledger == LedgerId.from_uuid(ledger.uuid)
        assert ledger == LedgerId.parse(str(ledger))
        assert ledger == LedgerId.parse(hex(pair[1]), scope=pair[0])

    @given(st.text(max_size=40))
    def test_parse_never_fails_otherwise(self, text: str) -> None:
        """Any text is either an id or `InvalidArgument`."""
        with contextlib.suppress(InvalidArgument):
            assert isinstance(LedgerId.parse(text), LedgerId)

    def test_shown(self) -> None:
        """Ids of scope 0 show as BookKeeper's, others by qualified name."""
        assert "7" == str(LedgerId(0, 7))
        assert "00000000000000010000000000000007" == str(LedgerId(1, 7))
        assert "LedgerId(scope=1, ledger=7)" == repr(LedgerId(1, 7))


class TestColumns:
    """Ids as arrays."""

    @given(st.lists(NAMED, max_size=30))
    def test_unsigned_order(self, pairs: list[tuple[int, int]]) -> None:
        """int64 columns are sorted as the unsigned ids they stand for, stably."""
        signed = [LedgerId(*pair).signed for pair in pairs]
        scopes = np.array([pair[0] for pair in signed], np.int64)
        ledgers = np.array([pair[1] for pair in signed], np.int64)

        assert (
            sorted(range(len(pairs)), key=lambda at: pairs[at])
            == ids.unsigned_order(scopes, ledgers).tolist()
        )

    @pytest.mark.parametrize("values", [[-1], [2**63 - 1], [0, -5, 3], [2**63], [2**64]])
    def test_entry_ids_are_bounded(self, values: list[int]) -> None:
        """Entry ids are 0..2^63-2; 2^63-1 is out of reach of upstream's searches."""
        with pytest.raises(InvalidArgument):
            ids.as_entry_ids(values)
        with pytest.raises(InvalidArgument):
            ids.check_entry_id(next(v for v in values if not 0 <= v < 2**63 - 1))

    @pytest.mark.parametrize("values", [[0.5], ["1"], [True], [[1]], np.zeros((2, 2), np.int64)])
    def test_other_arrays_are_refused(self, values: object) -> None:
        """Fractions, text, truth values and tables are not taken for ids or locations."""
        with pytest.raises(InvalidArgument):
            ids.as_entry_ids(values)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument):
            ids.as_locations(values)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        "values", [[0, 2**63 - 2], (0, 2**63 - 2), iter([0, 2**63 - 2]), {0: 1, 2**63 - 2: 1}]
    )
    def test_any_iterable_of_ints(self, values: object) -> None:
        """Any iterable of ints becomes one int64 array."""
        array = ids.as_entry_ids(values)  # type: ignore[arg-type]

        assert [0, 2**63 - 2] == array.tolist()
        assert np.int64 == array.dtype

    @pytest.mark.parametrize("values", [range(3, 12, 4), range(9, 0, -3), range(0)])
    def test_ranges(self, values: range) -> None:
        """A range becomes its members, steps and direction kept."""
        assert list(values) == ids.as_entry_ids(values).tolist()

    def test_empty(self) -> None:
        """Nothing is an empty int64 array."""
        assert np.int64 == ids.as_entry_ids([]).dtype == ids.as_locations(()).dtype
        assert 0 == ids.as_entry_ids([]).size

    def test_int64_is_not_copied(self) -> None:
        """An int64 array is passed through."""
        array = np.arange(5)

        assert np.shares_memory(array, ids.as_entry_ids(array))

    @pytest.mark.parametrize("values", [[0], [1, -1], [2**63]])
    def test_locations_are_positive(self, values: list[int]) -> None:
        """A location is above 0, which means absent, and fits int64."""
        with pytest.raises(InvalidArgument):
            ids.as_locations(values)
        with pytest.raises(InvalidArgument):
            ids.check_location(next(v for v in values if not 0 < v < 2**63))


class TestLocations:
    """log id << 32 | position."""

    @given(st.integers(0, 2**31 - 1), st.integers(0, 2**32 - 1))
    def test_made_and_split(self, log_id: int, position: int) -> None:
        """A location is log id times 2^32 plus position, one at a time and in arrays."""
        location = log_id * 2**32 + position
        array = np.array([location], np.int64)

        assert location == ids.make_location(log_id, position)
        assert (log_id, position) == ids.split_location(location)
        assert [location] == ids.make_locations(log_id, np.array([position])).tolist()
        assert [location] == ids.make_locations(np.array([log_id]), position).tolist()
        assert [log_id] == ids.log_ids_of(array).tolist()
        assert [position] == ids.positions_of(array).tolist()

    @pytest.mark.parametrize(("log_id", "position"), [(-1, 0), (2**31, 0), (0, -1), (0, 2**32)])
    def test_bounds(self, log_id: int, position: int) -> None:
        """Log ids have 31 bits, positions 32."""
        with pytest.raises(InvalidArgument):
            ids.make_location(log_id, position)

    @given(st.integers(0, 2**64 - 1))
    def test_two_complement(self, value: int) -> None:
        """`signed64` is two's complement, `unsigned64` undoes it."""
        expected = int.from_bytes(value.to_bytes(8, "big"), "big", signed=True)

        assert expected == ids.signed64(value)
        assert value == ids.unsigned64(expected)


def test_replace_checks_too() -> None:
    """No way round the rule of scope 0: `_replace` checks like the constructor."""
    assert LedgerId(3, 7) == LedgerId(3, 9)._replace(ledger=7)
    with pytest.raises(InvalidArgument):
        LedgerId(3, 2**63)._replace(scope=0)


@pytest.mark.parametrize(("log_id", "position"), [(2**31, 0), (-1, 0), (0, 2**32), (0, -1)])
def test_locations_out_of_range(log_id: int, position: int) -> None:
    """A log id beyond 31 bits or a position beyond 32 makes no location, alone or in arrays."""
    with pytest.raises(InvalidArgument):
        make_locations(log_id, np.array([position]))
