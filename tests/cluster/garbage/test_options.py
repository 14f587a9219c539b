"""GarbageOptions: a bookie's defaults, and which settings it does not start with."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from bkstore.cluster.garbage import GarbageOptions
from bkstore.errors import InvalidArgument


def test_defaults_are_those_of_a_bookie() -> None:
    """Those of `ServerConfiguration`, with times in seconds."""
    assert {
        "gc_wait_time": 600.0,
        "minor_compaction_threshold": 0.2,
        "minor_compaction_interval": 3600.0,
        "minor_compaction_max_time": None,
        "major_compaction_threshold": 0.8,
        "major_compaction_interval": 86400.0,
        "major_compaction_max_time": None,
        "compaction_rate_by_entries": 1000,
        "compaction_rate_by_bytes": 1_000_000,
        "is_throttle_by_bytes": False,
        "compaction_max_outstanding_requests": 100_000,
        "use_transactional_compaction": False,
        "use_target_entry_log_size_for_gc": False,
        "gc_metadata_op_rate_limit": 1000,
        "is_force_gc_allow_when_no_space": False,
        "force_allow_compaction": False,
        "entry_location_compaction_interval": -1.0,
    } == dataclasses.asdict(GarbageOptions())


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"minor_compaction_threshold": 1.1}, "minor_compaction_threshold"),
        ({"major_compaction_threshold": 1.1}, "major_compaction_threshold"),
        ({"minor_compaction_interval": 599}, "minor_compaction_interval"),
        ({"major_compaction_interval": 599.9}, "major_compaction_interval"),
        ({"minor_compaction_threshold": 0.8}, "minor_compaction_threshold"),
        ({"minor_compaction_interval": 86400}, "minor_compaction_interval"),
        ({"entry_location_compaction_interval": 60}, "entry_location_compaction_interval"),
        ({"compaction_rate_by_entries": 0}, "compaction_rate_by_entries"),
        ({"gc_wait_time": -1}, "gc_wait_time"),
        ({"minor_compaction_threshold": float("nan")}, "minor_compaction_threshold"),
    ],
)
def test_what_a_bookie_does_not_start_with(settings: dict[str, Any], named: str) -> None:
    """Thresholds above 1, intervals below the wait, minor settings that are not below the major
    ones; the setting is named."""
    with pytest.raises(InvalidArgument, match=named):
        GarbageOptions(**settings)


@pytest.mark.parametrize(
    ("settings", "enabled"),
    [
        ({}, ["minor", "major"]),
        ({"minor_compaction_threshold": 0}, ["major"]),
        ({"minor_compaction_interval": -1, "minor_compaction_threshold": 7}, ["major"]),
        ({"major_compaction_threshold": -0.5}, ["minor"]),
        ({"major_compaction_interval": 0, "minor_compaction_interval": 1e6}, ["minor"]),
    ],
)
def test_what_turns_a_compaction_off(settings: dict[str, Any], enabled: list[str]) -> None:
    """A threshold or an interval of 0 or less; the other settings of that kind are not looked at,
    nor compared with those of the other kind."""
    options = GarbageOptions(**settings)

    assert enabled == [kind for kind in ("minor", "major") if options.is_enabled(kind)]  # type: ignore[arg-type]


def test_what_may_be_forced() -> None:
    """A forced pass compacts what is on; with `force_allow_compaction` also a kind without an
    interval, if its threshold is between 0 and 1."""
    off = {"minor_compaction_interval": 0, "major_compaction_interval": 0}
    allowed = GarbageOptions(force_allow_compaction=True, major_compaction_threshold=1.0, **off)

    assert [True, True] == [GarbageOptions().is_forcible(kind) for kind in ("minor", "major")]
    assert not GarbageOptions(**off).is_forcible("major")
    assert [True, False] == [allowed.is_forcible(kind) for kind in ("minor", "major")]
