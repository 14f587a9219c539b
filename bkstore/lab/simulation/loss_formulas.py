"""Closed formulas for the share of entries that are lost, where there is one."""

from __future__ import annotations

import math


def loss_share_of_lost_replicas(
    write_quorum: int, yearly_rate: float, years: float, repair_interval: float | None
) -> float:
    """Return the expected share of entries that are lost because all of their replicas were.

    Each replica is lost independently, at `yearly_rate`. Every `repair_interval` years all missing
    replicas of entries that have another one are written again; with None, never. An entry is lost
    in an interval with the probability that all `write_quorum` replicas are lost in it. The last
    interval may be shorter. Exact.

    >>> loss_share_of_lost_replicas(1, 0.0, 10, None)
    0.0
    >>> round(loss_share_of_lost_replicas(2, 0.01, 10, None), 6)
    0.009056
    """
    interval = years if repair_interval is None else min(repair_interval, years)
    # With a tolerance, as the quotient of floats may be just below a whole number.
    whole_intervals = int(years / interval * (1 + 1e-12))
    # Logarithms of the probability of survival: those of the whole intervals, and of what is left.
    survival = whole_intervals * _log_survival(write_quorum, yearly_rate * interval)
    survival += _log_survival(write_quorum, yearly_rate * (years - whole_intervals * interval))
    return -math.expm1(survival)


def _log_survival(write_quorum: int, lost_replicas: float) -> float:
    """Return the logarithm of the probability that not all replicas are lost in an interval in
    which `lost_replicas` losses per replica are expected."""
    replica_loss = -math.expm1(-max(lost_replicas, 0.0))
    return math.log1p(-(replica_loss**write_quorum)) if replica_loss < 1 else -math.inf


def loss_share_of_failed_bookies(
    yearly_rate: float, years: float, copying_years: float | None
) -> float:
    """Return the expected share of entries with two replicas that are lost by failing bookies.

    Each bookie fails at `yearly_rate`; `copying_years` later its replicas are on other bookies.
    An entry is lost if the other bookie fails meanwhile. Good to within the share of time that
    copying takes. With None nothing is copied, and the share is exact.

    >>> round(loss_share_of_failed_bookies(0.2, 5, None), 4)
    0.3996
    """
    if copying_years is None:
        return float((-math.expm1(-yearly_rate * years)) ** 2)
    # An entry has two bookies. Each failure of one costs it if the other fails while it is copied.
    first_failures = 2 * yearly_rate * years
    return -math.expm1(first_failures * math.expm1(-yearly_rate * copying_years))
