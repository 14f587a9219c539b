"""Durations and times on command lines: ``36h``, ``2026-11-28T12:00``."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


def parse_duration(text: str) -> float:
    """Return the seconds of a duration, a number with a unit, for use as argparse's `type`; raises
    `ArgumentTypeError`.

    >>> parse_duration("1.5h"), parse_duration("30")
    (5400.0, 30.0)
    """
    match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)([smhdw]?)", text)
    if match is None:
        reason = f"not a duration: {text[:40]!r} (a number and s, m, h, d or w)"
        raise argparse.ArgumentTypeError(reason)
    return float(match[1]) * _SECONDS[match[2]]


def parse_time(text: str) -> int:
    """Return the milliseconds since 1970 of a time of ISO 8601, UTC unless it states otherwise, for
    use as argparse's `type`; raises `ArgumentTypeError`.

    >>> parse_time("1970-01-02"), parse_time("1970-01-01T01:00:00.5+01:00")
    (86400000, 500)
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        reason = f"not a time: {text[:40]!r} (ISO 8601, such as 2026-11-28T12:00)"
        raise argparse.ArgumentTypeError(reason) from None
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
