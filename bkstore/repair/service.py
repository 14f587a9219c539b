"""RepairService: repairs a cluster at an interval, for as long as its process runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from bkstore.arguments import number
from bkstore.errors import BkstoreError
from bkstore.repair.repairer import Repairer, RepairReport

MAX_INTERVAL_SECONDS = 366 * 86400.0
_check_interval = number(0, MAX_INTERVAL_SECONDS, above=True)
_log = logging.getLogger(__name__)


class RepairService:
    """Runs a repair every `interval` seconds, at most a year, each an interval after the last end.

    A bookie is replaced only if it was not registered at the beginning of the last run either: one
    that is being restarted keeps its entries. So the first run replaces none. Runs of several
    services exclude each other in a store with locks; the one that comes second fails.
    """

    def __init__(self, repairer: Repairer, interval: float) -> None:
        self._repairer = repairer
        self._interval = _check_interval("interval", interval)
        self._registered_before: frozenset[str] | None = None
        self.failed_runs = 0
        """Runs that ended by an error."""

    def run(
        self,
        stop: threading.Event,
        on_report: Callable[[RepairReport], None],
        on_error: Callable[[BkstoreError], None] = lambda _: None,
    ) -> None:
        """Repair until `stop` is set, which also ends the current run. Each run's report, or the
        error that ended it, is given to `on_report` or `on_error`; the next run follows in any
        case."""
        while not stop.is_set():
            try:
                report = self.run_once(stop)
            except BkstoreError as error:
                self.failed_runs += 1
                _log.warning("a repair failed; the next one is in %g s: %s", self._interval, error)
                on_error(error)
            else:
                on_report(report)
            stop.wait(self._interval)

    def run_once(self, stop: threading.Event | None = None) -> RepairReport:
        """Plan and repair once, and return the report; raises as `Repairer.run`."""
        registered = self._repairer.context.store.registered_bookies()
        before, self._registered_before = self._registered_before, registered
        self._repairer.planner.is_spared = lambda bookie: before is None or bookie in before
        return self._repairer.run(stop=stop)
