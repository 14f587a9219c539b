"""bkstore ensemble: a ZooKeeper and bookies on loopback, for trials and tests, with faults."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bkstore.cli.screen.column_choice import RequestedColumns
from bkstore.cli.terminal.needed_packages import require_packages
from bkstore.cli.terminal.output_options import add_output, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.standard_streams import print_stderr, print_text, redirect_to_null
from bkstore.cli.terminal.table_output import write_tables
from bkstore.errors import BkstoreError, InvalidArgument
from bkstore.tables import ENSEMBLE_BOOKIES, Table

if TYPE_CHECKING:
    from bkstore.testing.ensemble import Ensemble
    from bkstore.testing.ensemble.bookie_process import BookieProcess
    from bkstore.testing.ensemble.state_file import BookieState
    from bkstore.testing.ensemble.stop_and_remove import EnsembleStatus

_STORAGES = ("sorted", "interleaved", "db")
_FAULTS = ("failing-disk", "frozen", "full-disk", "partitioned", "read-only", "slow-disk")
_POLL_SECONDS = 0.2  # between two looks at the processes
_STOP_TIMEOUT = 90.0  # seconds for `down`
_ZOOKEEPER_TIMEOUT = 5.0  # seconds for `status`
_SHOWN_COLUMNS = ["bookie", "address", "pid", "storage", "log"]


def add_arguments(parser: Parser) -> None:
    """Declare the subcommands and their arguments."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True, dest="ensemble_command")
    what = "start an ensemble, print its service URI, and run until Ctrl-C or SIGTERM; then stop it"
    up = commands.add_parser("up", help=what, description=what)
    _add_up(up)
    what = "the bookies of an ensemble, one row each; exit code 1 unless all work"
    status = commands.add_parser("status", help=what, description=what)
    _add_dir(status, "an ensemble's directory", required=True)
    add_output(status, ENSEMBLE_BOOKIES)
    _add_faults(commands)
    what = "stop a running ensemble"
    down = commands.add_parser("down", help=what, description=what)
    _add_dir(down, "an ensemble's directory", required=True)
    down.add_argument(
        "--remove", action="store_true", help="then remove the ensemble's files in DIR, and DIR"
    )


def _add_up(up: Parser) -> None:
    """Add the arguments of ``ensemble up``."""
    up.intermixed = True
    up.add_argument(
        "bookies",
        metavar="N",
        nargs="?",
        type=int,
        help="number of bookies (3 in a new DIR, else as before; more are added)",
    )
    _add_dir(up, "a new or empty directory, or an earlier ensemble's (default: a temporary one)")
    up.add_argument(
        "--storage",
        metavar="KIND[,KIND]",
        type=_storages,
        default="sorted",
        help=f"storage of new bookies, several in turn: {', '.join(_STORAGES)} (sorted)",
    )
    up.add_argument(
        "--port",
        type=int,
        default=0,
        help="ZooKeeper's port (default: the last one, or a free one)",
    )
    up.add_argument(
        "--gc-wait",
        metavar="SECONDS",
        type=float,
        help="time between two passes of garbage collection of a bookie (600)",
    )
    up.add_argument(
        "--zookeeper-home",
        metavar="DIR",
        type=Path,
        help="the ZooKeeper to run (default: ZOOKEEPER_HOME, libzookeeper-java's, or pyspark's)",
    )
    up.add_argument(
        "--metadata",
        metavar="URI",
        help="use a ZooKeeper that runs: a service URI whose root does not exist yet",
    )
    up.add_argument("--detach", action="store_true", help="return when all are up; requires --dir")
    up.add_argument("--detached", action="store_true", help=argparse.SUPPRESS)


def _add_faults(commands: Any) -> None:
    """Add the subcommands `fault` and `heal`."""
    what = "give a bookie a fault: " + ", ".join(_FAULTS)
    fault = commands.add_parser(
        "fault",
        help=what,
        description=f"{what}. It stays until bkstore ensemble heal, through a restart too.",
    )
    fault.intermixed = True
    fault.add_argument("bookie", metavar="BOOKIE", help="the bookie's id")
    fault.add_argument("fault", metavar="FAULT", choices=_FAULTS, help=", ".join(_FAULTS))
    fault.add_argument("--seconds", type=float, help="by how much a slow disk delays each sync (1)")
    _add_dir(fault, "an ensemble's directory", required=True)
    what = "end the faults of a bookie, or of all bookies"
    heal = commands.add_parser(
        "heal",
        help=what,
        description=what,
    )
    heal.intermixed = True
    heal.add_argument("bookie", metavar="BOOKIE", nargs="?", help="the bookie's id (all bookies)")
    heal.add_argument(
        "fault", metavar="FAULT", nargs="?", choices=_FAULTS, help="one fault only (all faults)"
    )
    _add_dir(heal, "an ensemble's directory", required=True)


def _add_dir(parser: Parser, help_text: str, **options: Any) -> None:
    parser.add_argument("--dir", metavar="DIR", type=Path, help=help_text, **options)


def _storages(text: str) -> list[str]:
    storages = [word.strip() for word in text.split(",")]
    for name in storages:
        if name not in _STORAGES:
            known = ", ".join(_STORAGES)
            raise argparse.ArgumentTypeError(f"unknown storage {name[:60]!r}; known are {known}")
    return storages


def run(args: argparse.Namespace) -> int:
    """Run the subcommand that was named."""
    commands = {"up": _up, "status": _status, "fault": _fault, "heal": _heal, "down": _down}
    return commands[args.ensemble_command](args)


def _up(args: argparse.Namespace) -> int:
    """Run an ensemble until an interrupt or SIGTERM, or with --detach in the background."""
    require_packages("ensemble up", "kazoo")
    if args.detach:
        return _detach(args)
    from bkstore.testing.ensemble import Ensemble
    from bkstore.testing.ensemble.background import redirect_output
    from bkstore.testing.ensemble.stop_and_remove import LOG_NAME

    is_permanent = args.dir is not None
    with Ensemble(
        args.dir,
        args.bookies,
        args.storage,
        port=args.port,
        sync=is_permanent,  # temporary data need not survive a crash
        gc_wait=args.gc_wait,
        zookeeper_home=args.zookeeper_home,
        metadata=args.metadata,
        command=True,  # so that `ensemble down` may stop this process
    ) as ensemble:
        try:  # a reader of the URI may already end the ensemble while the rest is printed
            print_stderr(f"bkstore: ZooKeeper: {ensemble.zookeeper_origin}")
            _print_ensemble(ensemble)
            if args.detached:
                redirect_output(ensemble.path / LOG_NAME)
            else:
                end = "then its data are " + ("kept" if is_permanent else "removed")
                print_stderr(f"bkstore: the ensemble runs in {ensemble.path} until Ctrl-C, {end}")
            _watch_processes(ensemble)
        except (KeyboardInterrupt, SystemExit):
            print_stderr("bkstore: stopping")
    return 0


def _detach(args: argparse.Namespace) -> int:
    """Start `ensemble up --detached` as a background process; return once all are up."""
    from bkstore.testing.ensemble.background import start_detached

    if args.dir is None:
        raise InvalidArgument("--detach needs --dir: status and down find the ensemble by it")
    command_line = ["ensemble", "up", "--detached", "--dir", str(args.dir)]
    command_line += ["--port", str(args.port), "--storage", ",".join(args.storage)]
    home, metadata = args.zookeeper_home, args.metadata
    command_line += [] if home is None else ["--zookeeper-home", str(home)]
    command_line += [] if metadata is None else ["--metadata", metadata]
    command_line += [] if args.gc_wait is None else ["--gc-wait", str(args.gc_wait)]
    command_line += [] if args.bookies is None else [str(args.bookies)]
    started = start_detached(command_line)
    for line in started.errors.splitlines():
        print_stderr(line)
    if started.exit_code is not None:  # it ended before all were up, which is a failure in any case
        return started.exit_code or 2
    print_text(started.output)
    print_stderr(f"bkstore: the ensemble runs; bkstore ensemble down --dir {args.dir} stops it")
    return 0


def _print_ensemble(ensemble: Ensemble) -> None:
    """Print the service URI, then the bookies; a closed pipe is ignored."""
    rows = [
        _bookie_row(
            ensemble.uri,
            ensemble.path,
            bookie,
            None,  # no state: ZooKeeper is not asked
            bookie.faults,
            bookie.address,
            bookie.pid,
        )
        for bookie in ensemble.bookies.values()
    ]
    try:
        print_text(f"{ensemble.uri}\n")
        tables = [Table.from_rows(ENSEMBLE_BOOKIES, rows)]
        write_tables(ENSEMBLE_BOOKIES, tables, "table", requested=RequestedColumns(_SHOWN_COLUMNS))
        sys.stdout.flush()
    except BrokenPipeError:
        redirect_to_null(sys.stdout)


def _bookie_row(
    uri: str,
    top: Path,
    bookie: BookieProcess | BookieState,
    state: str | None,
    faults: Mapping[str, float],
    address: tuple[str, int],
    pid: int | None,
) -> tuple[Any, ...]:
    """Return the row of a bookie, whose files are below `top`, in the table `ENSEMBLE_BOOKIES`.
    `faults` maps each active fault to its delay in seconds, 0 if it is no delay; port 0: there is
    no address yet."""
    host, port = address
    address_text = f"{host}:{port}" if port else None
    texts = (f"{fault} {seconds:g} s" if seconds else fault for fault, seconds in faults.items())
    paths = (str(top / bookie.id), str(top / f"{bookie.id}.log"))
    faults_text = ", ".join(sorted(texts))
    return (uri, bookie.id, state, faults_text, address_text, pid, bookie.storage, *paths)


def _watch_processes(ensemble: Ensemble) -> None:
    """Report processes that end unexpectedly, and keep the state file current; never returns."""
    running = {bookie.id: bookie.running for bookie in ensemble.bookies.values()}
    zookeeper_runs = ensemble.zookeeper_pid is not None
    while True:
        time.sleep(_POLL_SECONDS)
        for bookie in ensemble.bookies.values():
            if running[bookie.id] and not bookie.running:
                running[bookie.id] = False
                end = f"ended ({bookie.exit_code}); see {bookie.log}"
                print_stderr(f"bkstore: bookie {bookie.id} {end}")
        if zookeeper_runs and ensemble.zookeeper_pid is None:
            zookeeper_runs = False
            print_stderr(f"bkstore: ZooKeeper ended; see {ensemble.zookeeper_log}")
        ensemble.save_state()


def _status(args: argparse.Namespace) -> int:
    """Print a row for each bookie; return 0 if all are writable and have no fault, else 1."""
    require_packages("ensemble status", "kazoo")
    from bkstore.testing.ensemble.bookies_elsewhere import inspect_bookie
    from bkstore.testing.ensemble.stop_and_remove import read_status

    ensemble = read_status(args.dir)
    registered = _registered_bookies(ensemble)
    uri, rows, all_work = ensemble.state.uri, [], True
    for bookie in ensemble.state.bookies:
        state, address = registered.get(bookie.id, (None, ("127.0.0.1", bookie.port)))
        condition = inspect_bookie(ensemble, bookie)  # after ZooKeeper, which notices an end late
        if condition.process in ("ended", "frozen"):
            state = condition.process
        all_work &= state == "writable" and not condition.faults
        pid, faults = condition.pid, condition.faults
        rows.append(_bookie_row(uri, ensemble.path, bookie, state, faults, address, pid))
    write_output(args, ENSEMBLE_BOOKIES, [Table.from_rows(ENSEMBLE_BOOKIES, rows)])
    return 0 if all_work else 1


def _registered_bookies(ensemble: EnsembleStatus) -> dict[str, tuple[str, tuple[str, int]]]:
    """Return (state, address) of each bookie from ZooKeeper, by bookie id; if the ensemble does not
    run or ZooKeeper cannot be asked, prints that and returns nothing."""
    if not ensemble.running:
        print_stderr(f"bkstore: the ensemble in {ensemble.path} is not running")
        return {}
    from bkstore.cluster.store.zookeeper.store import ZooKeeperStore

    registered = {}
    try:
        uri = ensemble.state.uri
        with ZooKeeperStore(uri, timeout=_ZOOKEEPER_TIMEOUT, make_layout=False) as store:
            writable, read_only = store.writable_bookies(), store.read_only_bookies()
            for bookie in ensemble.state.bookies:
                if bookie.id in writable:
                    state = "writable"
                else:
                    state = "read-only" if bookie.id in read_only else "unregistered"
                info = store.service_info(bookie.id)
                address = None if info is None else info.address
                registered[bookie.id] = (state, address or ("127.0.0.1", bookie.port))
    except BkstoreError as error:
        print_stderr(f"bkstore: {error}")
        return {}
    return registered


def _fault(args: argparse.Namespace) -> int:
    """Give a bookie a fault."""
    require_packages("ensemble fault", "kazoo")
    from bkstore.testing.ensemble.bookies_elsewhere import set_fault

    set_fault(args.dir, args.bookie, args.fault, args.seconds)
    print_stderr(
        f"bkstore: {args.bookie}: {args.fault}, until bkstore ensemble heal {args.bookie} "
        f"--dir {args.dir}"
    )
    return 0


def _heal(args: argparse.Namespace) -> int:
    """End faults of one bookie or of all bookies."""
    require_packages("ensemble heal", "kazoo")
    from bkstore.testing.ensemble.bookies_elsewhere import heal

    heal(args.dir, args.bookie, args.fault)
    bookies = "all bookies" if args.bookie is None else args.bookie
    print_stderr(f"bkstore: {bookies}: {args.fault or 'all faults'} ended")
    return 0


def _down(args: argparse.Namespace) -> int:
    """Stop the ensemble, if it runs; with --remove, delete its files too."""
    from bkstore.testing.ensemble.stop_and_remove import read_status, remove, stop

    path = read_status(args.dir).path
    stopped = stop(path, _STOP_TIMEOUT)
    outcome = "is stopped" if stopped else "was not running"
    print_stderr(f"bkstore: the ensemble in {path} {outcome}")
    other_files = ", ".join(remove(path)) if args.remove else ""
    if other_files:
        print_stderr(f"bkstore: {path} is kept, as it has other files: {other_files}")
    return 0
