"""bkstore repair: missing replicas of a running cluster: a plan, and with --apply their repair."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from bkstore.cli.audit_settings import placement_from_args, tls_context_from_args
from bkstore.cli.owners.owner_options import owner_filter_from_args
from bkstore.cli.repair.repair_options import add_repair_options, repair_options_from_args
from bkstore.cli.terminal.exit_codes import exit_code
from bkstore.cli.terminal.metadata_options import local_paths
from bkstore.cli.terminal.output_options import add_output, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.progress import work_progress
from bkstore.cli.terminal.secrets import sasl_user_from_args
from bkstore.cli.terminal.standard_streams import print_stderr
from bkstore.cli.terminal.table_output import tables_of_rows
from bkstore.files.user_outputs import check_output, refuse_inputs
from bkstore.tables import REPAIRS

if TYPE_CHECKING:
    from bkstore.repair import RepairPlan, ReplicaRepair

_ROWS_PER_TABLE = 1000


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    add_repair_options(parser)
    add_output(parser, REPAIRS)


def run(args: argparse.Namespace) -> int:
    """Print the plan, a summary to stderr; return 1 if there is something to repair, or something
    could not be judged, 3 if nothing was judged."""
    if args.output is not None:
        refuse_inputs(args.output, local_paths(args.metadata, args.report, args.places))
        check_output(args.output)
    plan = _make_plan(args)
    _choose_owners(args, plan)
    write_output(args, REPAIRS, tables_of_rows(REPAIRS, _rows(plan.repairs), _ROWS_PER_TABLE))
    for line in plan.summary():
        print_stderr(line)
    return exit_code(findings=not plan.is_clean, checked=not plan.checked_nothing)


def _make_plan(args: argparse.Namespace) -> RepairPlan:
    """Audit the cluster, or read the audit's output, and plan."""
    from bkstore.cluster.store.opening import opened_metadata
    from bkstore.network import AuditedBookies
    from bkstore.repair import RepairPlanner, read_violations

    options, placement = repair_options_from_args(args), placement_from_args(args)
    tls, sasl_user = tls_context_from_args(args), sasl_user_from_args(args)
    with ExitStack() as stack:
        store = stack.enter_context(opened_metadata(args.metadata))
        audited = AuditedBookies(store, timeout=args.timeout, tls=tls, sasl=sasl_user)
        bookies = stack.enter_context(audited)
        wait = _announcing_sleep(options.audit.recheck_delay)
        planner = RepairPlanner(store, bookies, placement=placement, options=options, wait=wait)
        if args.report is not None:
            return planner.plan_reported(read_violations(args.report))
        with work_progress("ledgers") as show_progress:
            return planner.plan(progress=show_progress and partial(_show_audit, show_progress))


def _announcing_sleep(recheck_delay: float) -> Callable[[float], None]:
    """Return a sleep that announces rechecks; the auditor also sleeps to keep to --rate."""

    def wait(seconds: float) -> None:
        if seconds == recheck_delay:
            print_stderr(f"some bookies did not answer: retrying in {seconds:g} s")
        time.sleep(seconds)

    return wait


def _show_audit(show: Callable[[str, int, int, int], None], done: int, total: int) -> None:
    show("audit", done, total, done)


def _choose_owners(args: argparse.Namespace, plan: RepairPlan) -> None:
    """Keep the repairs of the ledgers that the options choose by their owners."""
    owner_filter = owner_filter_from_args(args)
    plan.repairs = [repair for repair in plan.repairs if owner_filter.matches(repair.owner)]


def _rows(repairs: list[ReplicaRepair]) -> list[tuple[object, ...]]:
    return [repair.row() for repair in repairs]
