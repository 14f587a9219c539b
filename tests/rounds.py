"""Random tests in rounds: under the long profile each is run again and again, within bounds.

One run of hypothesis has as many examples as its profile says. Under the long profile a test with
cheap examples is run `ROUNDS` times, each time with other examples; one with dear examples until
`SECONDS` are over, so that what all take together is known. A round that was begun is finished.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from hypothesis import settings

ROUNDS = 20
SECONDS = 40


def profile() -> str:
    """Return the name of the profile that hypothesis runs with."""
    return settings.get_current_profile_name()


def rounds() -> Iterator[int]:
    """Yield the number of each round to run, from 0: one, more under the long profile."""
    yield 0
    end = time.monotonic() + SECONDS
    for number in range(1, ROUNDS if profile() == "long" else 1):
        if time.monotonic() >= end:
            return
        yield number
