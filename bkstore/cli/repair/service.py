"""`bkstore repair --every`: repairs at an interval, until a signal ends the command."""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bkstore.cli.terminal.standard_streams import print_stderr
from bkstore.files.user_outputs import write_output as write_file

if TYPE_CHECKING:
    from bkstore.errors import BkstoreError
    from bkstore.repair import Repairer, RepairPlan, RepairReport


class RepairResults:
    """Writes the metrics of each repair to a file, if there is one."""

    def __init__(self, textfile: Path | None) -> None:
        self._textfile = textfile
        if textfile is not None:
            from bkstore.repair.metrics import RepairMetrics

            self._metrics = RepairMetrics()

    def observe(self, report: RepairReport) -> None:
        """Count a repair that ended."""
        if self._textfile is not None:
            self._metrics.observe(report, time.time())
            write_file(self._textfile, self._metrics.textfile())

    def observe_error(self) -> None:
        """Count a repair that failed."""
        if self._textfile is not None:
            self._metrics.count_failure()
            write_file(self._textfile, self._metrics.textfile())


def run_service(
    args: argparse.Namespace,
    repairer: Repairer,
    write_plan: Callable[[argparse.Namespace, RepairPlan], None],
) -> int:
    """Repair every `args.every` seconds; each repair's rows are written as those of a single one.
    Ends by the exception of a signal, after the rows of the repair that it stops."""
    from bkstore.repair import RepairService

    service, results = RepairService(repairer, args.every), RepairResults(args.textfile)
    stop = threading.Event()

    def show_report(report: RepairReport) -> None:
        results.observe(report)
        write_plan(args, report)

    def show_error(error: BkstoreError) -> None:
        results.observe_error()
        print_stderr(f"the repair failed: {error}; the next one is in {args.every:g} s")

    try:
        service.run(stop, show_report, show_error)
    except (KeyboardInterrupt, SystemExit):
        stop.set()
        if repairer.report.stopped:
            write_plan(args, repairer.report)
        raise
    return 0
