"""bkstore repair: missing replicas of a running cluster: a plan, and with --apply their repair."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bkstore.cli.audit_settings import (
    announcing_sleep,
    placement_from_args,
    show_audit,
    tls_context_from_args,
)
from bkstore.cli.owners.owner_options import owner_filter_from_args
from bkstore.cli.repair.options import add_repair_options, repair_options_from_args
from bkstore.cli.repair.service import RepairResults, run_service
from bkstore.cli.terminal.exit_codes import exit_code
from bkstore.cli.terminal.metadata_options import local_paths
from bkstore.cli.terminal.needed_packages import require_packages
from bkstore.cli.terminal.output_options import add_output, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.progress import work_progress
from bkstore.cli.terminal.secrets import sasl_user_from_args
from bkstore.cli.terminal.standard_streams import print_stderr
from bkstore.cli.terminal.table_output import tables_of_rows
from bkstore.counts import size_text
from bkstore.errors import InvalidArgument
from bkstore.files.user_outputs import check_output, refuse_inputs
from bkstore.tables import REPAIRS

if TYPE_CHECKING:
    from bkstore.cluster.audit import Violation
    from bkstore.repair import Repairer, RepairPlan

_ROWS_PER_TABLE = 1000


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    add_repair_options(parser)
    add_output(parser, REPAIRS)


def run(args: argparse.Namespace) -> int:
    """Print the plan, with --apply what became of it, and a summary to stderr; return 1 if there is
    something left to repair, or something could not be judged, 3 if nothing was judged."""
    _refuse_metadata_file(args.metadata)
    _refuse_outputs(args)
    if args.textfile is not None:
        require_packages("--textfile", "prometheus_client")
    with opened_repairer(args) as repairer:
        if args.every is not None:
            return run_service(args, repairer, _write_plan)
        reported = [] if args.report is None else read_reported(args.report)
        plan = make_plan(args, repairer, reported)
        if args.apply:
            plan = _apply_plan(args, repairer, plan, reported)
            RepairResults(args.textfile).observe(repairer.report)
    _write_plan(args, plan)
    return exit_code(findings=not plan.is_clean, checked=not plan.checked_nothing)


def _refuse_metadata_file(metadata: str) -> None:
    """Raise `InvalidArgument` for a file of metadata, which no bookie is registered in."""
    for path in local_paths(metadata):
        if path.is_file():
            raise InvalidArgument(
                f"{path}: is a file of metadata; a repair needs the service URI of a running "
                "cluster, such as zk+hierarchical://host:2181/ledgers"
            )


def _refuse_outputs(args: argparse.Namespace) -> None:
    """Raise for an output that is an input or the other output, or that cannot be written."""
    inputs = local_paths(args.metadata, args.report, args.places)
    targets = [path for path in (args.output, args.textfile) if path is not None]
    for index, target in enumerate(targets):
        refuse_inputs(target, [*inputs, *targets[:index]])
        check_output(target)


def _write_plan(args: argparse.Namespace, plan: RepairPlan) -> None:
    rows = (repair.row() for repair in plan.repairs)
    write_output(args, REPAIRS, tables_of_rows(REPAIRS, rows, _ROWS_PER_TABLE))
    for line in plan.summary():
        print_stderr(line)


@contextmanager
def opened_repairer(args: argparse.Namespace) -> Iterator[Repairer]:
    """Yield the repairer of the cluster; without --apply its store is opened for reading."""
    from bkstore.cluster.store.opening import opened_metadata, opened_store
    from bkstore.network import AuditedBookies, Client
    from bkstore.repair import Repairer

    options, placement = repair_options_from_args(args), placement_from_args(args)
    connection = {
        "timeout": args.timeout,
        "tls": tls_context_from_args(args),
        "sasl": sasl_user_from_args(args),
    }
    open_cluster = opened_store if args.apply else opened_metadata
    with ExitStack() as stack:
        store = stack.enter_context(open_cluster(args.metadata))
        client = stack.enter_context(Client(store, placement=placement, **connection))
        sources = stack.enter_context(AuditedBookies(store, **connection))
        wait = announcing_sleep(options.audit.recheck_delay)
        yield Repairer(client.context, sources, options=options, wait=wait)


def read_reported(path: Path) -> list[Violation]:
    """Return the violations of the file of --from."""
    from bkstore.repair import read_violations

    return read_violations(path)


def make_plan(
    args: argparse.Namespace, repairer: Repairer, reported: list[Violation]
) -> RepairPlan:
    """Audit the cluster, or take the audit's output, and plan for the chosen owners."""
    if args.report is not None:
        plan = repairer.planner.plan_reported(reported)
    else:
        with work_progress("ledger") as show_progress:
            plan = repairer.planner.plan(
                progress=show_progress and partial(show_audit, show_progress)
            )
    owner_filter = owner_filter_from_args(args)
    plan.repairs = [repair for repair in plan.repairs if owner_filter.matches(repair.owner)]
    return plan


def _apply_plan(
    args: argparse.Namespace, repairer: Repairer, plan: RepairPlan, reported: list[Violation]
) -> RepairPlan:
    """Repair what is planned. If that is interrupted, what was done until then is printed first."""
    # Underreplicated marks of other ledgers are removed only if all ledgers were looked at.
    chooses_ledgers = args.report is not None or bool(owner_filter_from_args(args))
    with work_progress("replica") as show_progress:
        try:
            return repairer.run(
                plan,
                reported=reported,
                remove_marks=not chooses_ledgers,
                progress=show_progress and partial(_show_repair, show_progress),
            )
        except (KeyboardInterrupt, SystemExit):
            _write_plan(args, repairer.report)
            raise


def _show_repair(
    show: Callable[[str, int, int, int], None], done: int, total: int, byte_count: int
) -> None:
    show(f"repair, {size_text(byte_count)}", done, total, done)
