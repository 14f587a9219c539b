"""Rounds of random tests: one by default, under the long profile as many as fit."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings, strategies as st

from tests import rounds as module
from tests.rounds import ROUNDS, SECONDS, rounds

CALLS: list[int] = []


def _at(monkeypatch: pytest.MonkeyPatch, name: str, step: float) -> None:
    """Play a profile, and a clock that goes on by `step` whenever it is asked."""
    clock = itertools.count(0, step)
    monkeypatch.setattr(module, "profile", lambda: name)
    monkeypatch.setattr(module, "time", type("Clock", (), {"monotonic": lambda: next(clock)}))


def test_one_round_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default profile has one round, however fast it is."""
    _at(monkeypatch, "default", 0)

    assert [0] == list(rounds())


def test_many_rounds_at_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """The long profile has all rounds where there is time for them."""
    _at(monkeypatch, "long", 0)

    assert list(range(ROUNDS)) == list(rounds())


def test_rounds_end_with_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """No round is begun when the time is over; the first is always run."""
    _at(monkeypatch, "long", SECONDS / 2)
    assert [0, 1] == list(rounds())

    _at(monkeypatch, "long", SECONDS)
    assert [0] == list(rounds())


@pytest.fixture
def three_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the test that asks for it run in three rounds."""
    _at(monkeypatch, "long", SECONDS / 2.5)


@settings(max_examples=1)
@given(st.just(7))
@pytest.mark.usefixtures("three_rounds")
def test_a_random_test_is_run_in_rounds(number: int) -> None:
    """Each round runs the test anew, with the fixtures that it has."""
    CALLS.append(number)


def test_all_rounds_were_run() -> None:
    """The test above was run three times, whatever the profile; alone it is not asked for."""
    assert [7, 7, 7] == CALLS or [] == CALLS
