"""bkstore rescue: ledgers from the disks of a cluster that no longer runs, from any sound copy."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from bkstore.cli.rescue.rescue_arguments import (
    add_rescue_arguments,
    ledger_choice,
    open_sources,
    secret_from_args,
)
from bkstore.cli.terminal.exit_codes import exit_code
from bkstore.cli.terminal.metadata_options import local_paths
from bkstore.cli.terminal.needed_packages import require_packages
from bkstore.cli.terminal.output_options import write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.progress import work_progress
from bkstore.cli.terminal.shared_options import report_findings
from bkstore.cli.terminal.standard_streams import print_stderr
from bkstore.counts import format_count
from bkstore.files.user_outputs import refuse_inputs
from bkstore.tables import RESCUE

if TYPE_CHECKING:
    from bkstore.cluster.store.api import MetadataStore
    from bkstore.ids import LedgerId
    from bkstore.ledger_metadata import LedgerMetadata
    from bkstore.rescue import LedgerSecret, RescueJob, SourceBookie, WantedLedgers


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    add_rescue_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Rescue, and print the account; return 0 if all is whole, 1 if something is lost, 3 if there
    is no ledger."""
    from bkstore.cluster.store.opening import opened_metadata
    from bkstore.rescue import RescueJob, account_tables, read_wanted_ledgers, summarize

    if args.form == "parquet" and not args.dry_run:
        require_packages("--as parquet", "pyarrow")
    is_wanted, secret = ledger_choice(args), secret_from_args(args)
    with ExitStack() as stack:
        sources = open_sources(args, stack)
        _refuse_outputs(args, sources)
        if args.without_metadata:
            wanted = _infer_wanted(sources, secret, is_wanted)
        else:
            with opened_metadata(args.metadata) as store:
                wanted = read_wanted_ledgers(store, is_wanted)
        with work_progress("copy", "copies") as show_progress:
            job = RescueJob(sources, wanted, secret, args.jobs, show_progress)
            if wanted.metadata:
                _rescue(args, job)
            else:
                job.check_sources()
        write_output(args, RESCUE, account_tables(job.account()))
        for bookie_id, finding in job.findings():
            report_findings([finding], f"{bookie_id}: " if bookie_id else "")
        if job.plans:
            print_stderr(summarize(job.plans))
    return exit_code(findings=not job.is_whole, checked=bool(job.plans))


def _infer_wanted(
    sources: list[SourceBookie],
    secret: LedgerSecret | None,
    is_wanted: Callable[[LedgerMetadata], bool],
) -> WantedLedgers:
    """Return the wanted ledgers on the disks; print what is inferred of each, and what assumed."""
    from bkstore.rescue import infer_metadata

    inferred = infer_metadata(sources, secret)
    ledgers = inferred.wanted.metadata
    for ledger_id in [each for each in ledgers if not is_wanted(ledgers[each])]:
        del ledgers[ledger_id]
    notes: dict[str, list[LedgerId]] = {}
    for ledger_id in ledgers:
        notes.setdefault(inferred.notes[ledger_id], []).append(ledger_id)
    for note, ledger_ids in notes.items():
        subject = f"ledger {ledger_ids[0]}"
        if len(ledger_ids) > 1:
            subject = f"{format_count(len(ledger_ids), 'ledger')}, from {ledger_ids[0]} on"
        print_stderr(f"{subject}: {note}")
    return inferred.wanted


def _refuse_outputs(args: argparse.Namespace, sources: list[SourceBookie]) -> None:
    """Raise `InvalidArgument` if OUT or -o is an input or lies in one."""
    targets = local_paths(args.out, args.output)
    for index, target in enumerate(targets):
        refuse_inputs(target, [*local_paths(args.metadata), *targets[:index]])
        for source in sources:
            if source.directory is not None:
                source.directory.refuse_output(target)
            else:
                refuse_inputs(target, [source.path])


def _rescue(args: argparse.Namespace, job: RescueJob) -> None:
    """Survey the disks, and write the output unless this is a dry run."""
    from bkstore.rescue import staged_output
    from bkstore.rescue.outputs import FolderOutput, ParquetOutput

    if args.out is None:
        job.run_without_output()
    elif isinstance(args.out, str):
        _write_to_cluster(args.out, job)
    elif args.form == "bookies":
        with _opened_store(args, job) as store:
            _write_bookies(args, job, store)
    else:
        with staged_output(args.out) as staging:
            job.survey(staging.surveys, staging.work)
            make_output = ParquetOutput if args.form == "parquet" else FolderOutput
            with make_output(staging.data) as output:
                job.write_to(output, staging.checkpoints)
            staging.finish()


def _write_to_cluster(uri: str, job: RescueJob) -> None:
    """Survey the disks, then write the ledgers to the bookies of a cluster that runs."""
    from bkstore.files.scratch import scratch_directory
    from bkstore.network import Client
    from bkstore.rescue.outputs import RunningClusterOutput

    with Client(uri) as client, scratch_directory("rescue") as scratch:
        job.survey(scratch / "surveys", scratch)
        with RunningClusterOutput(client) as output:
            job.write_to(output)


@contextmanager
def _opened_store(args: argparse.Namespace, job: RescueJob) -> Iterator[MetadataStore | None]:
    """Yield the store of --store, which has none of the ledgers, or those that an interrupted run
    has registered; None without the option."""
    from bkstore.cluster.store.opening import open_store
    from bkstore.rescue import registers_in
    from bkstore.rescue.outputs.registration import check_store

    if args.store is None:
        yield None
        return
    store = open_store(args.store)
    try:
        if not registers_in(args.out, str(args.store)):
            check_store(store, job.wanted.metadata)
        yield store
    finally:
        close = getattr(store, "close", None)
        if close is not None:
            close()


def _write_bookies(args: argparse.Namespace, job: RescueJob, store: MetadataStore | None) -> None:
    """Write the directories of bookies, make them known to the store, and publish them."""
    from bkstore.rescue import staged_output
    from bkstore.rescue.outputs import BookieDirectoriesOutput
    from bkstore.rescue.outputs.placement import old_bookies
    from bkstore.rescue.outputs.registration import register

    bookies = args.new_bookies
    if isinstance(bookies, int):  # so many of the bookies that the ledgers were on
        bookies = old_bookies(job.wanted.metadata.values())[:bookies]
    get_instance_id = getattr(store, "instance_id", lambda: None)
    with staged_output(args.out) as staging:
        job.survey(staging.surveys, staging.work)
        output = BookieDirectoriesOutput(
            staging.data,
            staging.out,
            bookies=bookies,
            storage=args.storage,
            instance_id=get_instance_id(),
        )
        with output:
            job.write_to(output, staging.checkpoints)
        if store is not None:
            # OUT comes last: if it exists, all is done; if not, the next run goes on.
            staging.record_registration(str(args.store))
            register(store, output.ledgers, output.cookies)
        staging.finish()
