"""When a pass compacts, and which kind wins: upstream's rules, with a clock by hand."""

from __future__ import annotations

from bkstore.cluster.garbage.options import GarbageOptions
from bkstore.cluster.garbage.schedule import CompactionSchedule

OPTIONS = GarbageOptions(
    gc_wait_time=10, minor_compaction_interval=60, major_compaction_interval=300
)


def test_a_kind_is_due_when_its_interval_is_over() -> None:
    """Not at the interval, but behind it; the opening counts as a compaction of each kind."""
    schedule = CompactionSchedule(OPTIONS, 1000.0)

    assert [None, None, "minor"] == [schedule.choose_due(now) for now in (1000.0, 1060.0, 1060.1)]


def test_major_goes_before_minor_and_is_as_good() -> None:
    """Where both are due the major one runs, and both begin to wait anew; a minor one moves the
    time of minor ones only."""
    schedule = CompactionSchedule(OPTIONS, 0.0)
    schedule.record_compaction("minor", 290.0)

    assert "major" == schedule.choose_due(301.0)

    schedule.record_compaction("major", 305.0)

    assert [None, "minor"] == [schedule.choose_due(now) for now in (365.0, 366.0)]

    schedule.record_compaction("minor", 600.0)

    assert "major" == schedule.choose_due(606.0)


def test_a_suspended_kind_does_not_run() -> None:
    """The minor one runs instead of a major one that is suspended; with both nothing runs."""
    schedule = CompactionSchedule(OPTIONS, 0.0)

    assert "minor" == schedule.choose_due(1000.0, suspended=("major",))
    assert "major" == schedule.choose_due(1000.0, suspended=("minor",))
    assert schedule.choose_due(1000.0, suspended=("major", "minor")) is None


def test_what_is_forced_waits_for_no_interval() -> None:
    """Of what is on and not suspended, the major one first."""
    schedule = CompactionSchedule(OPTIONS, 0.0)
    without_major = GarbageOptions(major_compaction_threshold=0)

    assert "major" == schedule.choose_due(1.0, force=True)
    assert "minor" == schedule.choose_due(1.0, force=True, suspended=("major",))
    assert "minor" == CompactionSchedule(without_major, 0.0).choose_due(1.0, force=True)


def test_a_kind_that_is_off_never_runs() -> None:
    """However long ago it is, and forced or not."""
    off = GarbageOptions(minor_compaction_threshold=0, major_compaction_interval=0)
    schedule = CompactionSchedule(off, 0.0)

    assert schedule.choose_due(1e9) is None
    assert schedule.choose_due(1e9, force=True) is None


def test_entry_locations_have_an_interval_of_their_own() -> None:
    """Off by default; due behind the interval since the last time."""
    schedule = CompactionSchedule(GarbageOptions(entry_location_compaction_interval=600), 0.0)

    assert [False, True] == [schedule.is_location_compaction_due(now) for now in (600.0, 601.0)]

    schedule.record_location_compaction(601.0)

    assert not schedule.is_location_compaction_due(1201.0)
    assert not CompactionSchedule(GarbageOptions(), 0.0).is_location_compaction_due(1e9)
