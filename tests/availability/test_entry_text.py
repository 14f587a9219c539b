"""Sets of entries as text: the texts of small sets by hand, and their runs by plain sets."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from bkstore.availability import Availability
from bkstore.availability.entry_text import format_entries, format_entries_of
from bkstore.ids import MAX_ENTRY_ID, LedgerId


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ([], "none"),
        ([7], "7"),
        ([7, 8], "7-8"),
        ([0, 3], "0, 3 (2 entries)"),
        ([0, 3, 6, 9], "0, 3, 6, 9 (4 entries)"),  # as many runs as the short form has
        ([0, 3, 6, 9, 12], "0, 3, 6, ..., 12 (5 entries)"),
        (range(0, 100, 3), "0, 3, 6, ..., 99 (34 entries)"),
        ([0, 1, 3, 4, 6, 7, 9, 10, 12, 13], "0-1, 3-4, 6-7, ..., 12-13 (10 entries)"),
        ([*range(0, 30, 3), 100], "0, 3, 6, ..., 27, 100 (11 entries)"),
        (range(1200), "0-1199"),
        (range(0, 6000, 5), "0, 5, 10, ..., 5995 (1,200 entries)"),
    ],
)
def test_texts(entries: list[int] | range, text: str) -> None:
    """A single run is told by its ends; several by their number of entries too."""
    assert text == format_entries(Availability.from_entries(list(entries)))


def test_many_runs_are_cut() -> None:
    """Of an irregular set the first runs are listed, and the highest id stands for the others."""
    squares = Availability.from_entries([number**2 for number in range(100)])

    assert "0-1, 4, 9 and others up to 9801 (100 entries)" == format_entries(squares, 3)


def test_exactly_as_many_runs_as_allowed_are_complete() -> None:
    """The last run that is allowed is not replaced by "and others"."""
    entries = Availability.from_entries([0, 2, 7])

    assert "0, 2, 7 (3 entries)" == format_entries(entries, 3)
    assert "0, 2 and others up to 7 (3 entries)" == format_entries(entries, 2)


def test_a_stripe_of_any_length() -> None:
    """2^61 entries take no longer than a few."""
    stripe = Availability.from_groups([[0, 3 * 2**60, 1, 3]])

    assert f"0, 3, 6, ..., {3 * 2**60} ({2**60 + 1:,} entries)" == format_entries(stripe)


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ([5], "entry 5 of ledger 7"),
        ([5, 6], "entries 5-6 of ledger 7"),
        ([MAX_ENTRY_ID], f"entry {MAX_ENTRY_ID} of ledger 7"),
    ],
)
def test_the_subject_of_a_sentence(entries: list[int], text: str) -> None:
    """One entry is in the singular."""
    assert text == format_entries_of(LedgerId.of(7), Availability.from_entries(entries))


@given(st.sets(st.integers(0, 40), min_size=1))
def test_the_text_lists_the_set(entries: set[int]) -> None:
    """Runs that are listed are the set's, in order; "..." stands for further ones of its stripe."""
    text = format_entries(Availability.from_entries(sorted(entries)), 100)
    listed = re.sub(r" \(.*", "", text).split(", ")
    runs = [tuple(map(int, run.split("-"))) for run in listed if run != "..."]
    shown = {entry for run in runs for entry in range(run[0], run[-1] + 1)}

    assert shown <= entries
    assert ("..." in listed) == (shown < entries)
    assert [*runs] == sorted(runs)
    assert (min(entries), max(entries)) == (runs[0][0], runs[-1][-1])
