"""bkstore ensemble: a ZooKeeper and bookies on loopback, for trials and tests: up, status, down."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bkstore.cli.screen.column_choice import Shown
from bkstore.cli.terminal.messages import print_text, silence, tell
from bkstore.cli.terminal.needed_packages import require_packages
from bkstore.cli.terminal.output_options import add_output, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.table_output import write_tables
from bkstore.errors import BkstoreError, InvalidArgument
from bkstore.tables import ENSEMBLE_BOOKIES, Table

if TYPE_CHECKING:
    from bkstore.testing.ensemble import Ensemble
    from bkstore.testing.ensemble.from_outside import Seen

_STORAGES = ("sorted", "interleaved", "db")
_PAUSE = 0.2
_PATIENCE = 90.0
_ANSWER = 5.0
_COLUMNS = ["bookie", "address", "pid", "storage", "log"]


def add_arguments(parser: Parser) -> None:
    """Declare the three commands and their arguments."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True, dest="ensemble_command")
    what = "start them, print the service URI, and run until Ctrl-C or SIGTERM, then stop all"
    up = commands.add_parser("up", help=what, description=what)
    up.intermixed = True
    up.add_argument(
        "bookies",
        metavar="N",
        nargs="?",
        type=int,
        help="how many bookies (3 in a new DIR, else those that it has; more are added)",
    )
    _add_place(up, "what is new, empty, or an ensemble's from before (default: a temporary one)")
    up.add_argument(
        "--storage",
        metavar="KIND[,KIND]",
        type=_storages,
        default="sorted",
        help=f"of new bookies, several in turns: {', '.join(_STORAGES)} (sorted)",
    )
    up.add_argument(
        "--port", type=int, default=0, help="ZooKeeper's (default: the last one, or a free one)"
    )
    up.add_argument(
        "--gc-wait",
        metavar="SECONDS",
        type=float,
        help="how long after a pass of garbage collection a bookie begins the next (600)",
    )
    up.add_argument(
        "--detach", action="store_true", help="return when all are up; needs --dir, as down does"
    )
    up.add_argument("--detached", action="store_true", help=argparse.SUPPRESS)
    what = "the bookies of an ensemble, a row each; exit code 1 unless all are writable"
    status = commands.add_parser("status", help=what, description=what)
    _add_place(status, "an ensemble's directory", required=True)
    add_output(status, ENSEMBLE_BOOKIES)
    what = "stop an ensemble that up runs, in the background or not"
    down = commands.add_parser("down", help=what, description=what)
    _add_place(down, "an ensemble's directory", required=True)
    down.add_argument(
        "--remove", action="store_true", help="then remove what is the ensemble's in DIR, and DIR"
    )


def _add_place(parser: Parser, what: str, **more: Any) -> None:
    parser.add_argument("--dir", metavar="DIR", type=Path, help=what, **more)


def _storages(text: str) -> list[str]:
    kinds = [word.strip() for word in text.split(",")]
    for kind in kinds:
        if kind not in _STORAGES:
            raise argparse.ArgumentTypeError(
                f"there is no storage {kind[:60]!r}: there are {', '.join(_STORAGES)}"
            )
    return kinds


def run(args: argparse.Namespace) -> int:
    """Run the command that was named."""
    commands = {"up": _up, "status": _status, "down": _down}
    return commands[args.ensemble_command](args)


# -- up


def _up(args: argparse.Namespace) -> int:
    """Run it until an interrupt or SIGTERM, or in the background."""
    require_packages("ensemble up", "kazoo", "pyspark")
    if args.detach:
        return _detach(args)
    from bkstore.testing.ensemble import Ensemble
    from bkstore.testing.ensemble.background import let_go
    from bkstore.testing.ensemble.from_outside import LOG_NAME

    lasts = args.dir is not None
    with Ensemble(
        args.dir,
        args.bookies,
        args.storage,
        port=args.port,
        sync=lasts,
        gc_wait=args.gc_wait,
        command=True,
    ) as ensemble:
        try:  # whoever reads the URI may end it before the rest is printed
            _print(ensemble)
            if args.detached:
                let_go(ensemble.path / LOG_NAME)
            else:
                end = "its data stay" if lasts else "its data go"
                tell(f"bkstore: the ensemble runs in {ensemble.path} until Ctrl-C, then {end}")
            _watch(ensemble)
        except (KeyboardInterrupt, SystemExit):
            tell("bkstore: stopping")
    return 0


def _detach(args: argparse.Namespace) -> int:
    from bkstore.testing.ensemble.background import start

    if args.dir is None:
        raise InvalidArgument("--detach needs --dir: status and down find the ensemble by it")
    words = ["ensemble", "up", "--detached", "--dir", str(args.dir), "--port", str(args.port)]
    words += ["--storage", ",".join(args.storage)]
    words += [] if args.gc_wait is None else ["--gc-wait", str(args.gc_wait)]
    words += [] if args.bookies is None else [str(args.bookies)]
    started = start(words)
    if started.exit_code is not None:
        for line in started.errors.splitlines():
            tell(line)
        return started.exit_code or 2
    print_text(started.output)
    tell(f"bkstore: the ensemble runs; bkstore ensemble down --dir {args.dir} stops it")
    return 0


def _print(ensemble: Ensemble) -> None:
    """Print the service URI, then the bookies; nobody has to read it."""
    rows = [
        _row(ensemble.uri, one.id, "writable", one.address, one.pid, one.storage, ensemble.path)
        for one in ensemble.bookies.values()
    ]
    try:
        print_text(f"{ensemble.uri}\n")
        _write(rows)
        sys.stdout.flush()
    except BrokenPipeError:
        silence(sys.stdout)


def _write(rows: Iterable[tuple[Any, ...]]) -> None:
    tables = [Table.from_rows(ENSEMBLE_BOOKIES, rows)]
    write_tables(ENSEMBLE_BOOKIES, tables, "table", shown=Shown(_COLUMNS))


def _row(
    uri: str,
    name: str,
    state: str | None,
    address: tuple[str, int],
    pid: int | None,
    storage: str,
    top: Path,
) -> tuple[Any, ...]:
    host, port = address
    where = f"{host}:{port}" if port else None
    return uri, name, state, where, pid, storage, str(top / name), str(top / f"{name}.log")


def _watch(ensemble: Ensemble) -> None:
    """Say when a process ends that nobody stopped, and keep the state file true."""
    running = {one.id: one.running for one in ensemble.bookies.values()}
    zookeeper = True
    while True:
        time.sleep(_PAUSE)
        for one in ensemble.bookies.values():
            if running[one.id] and not one.running:
                running[one.id] = False
                tell(f"bkstore: bookie {one.id} ended ({one.exit_code}); {one.log} may say why")
        if zookeeper and ensemble.zookeeper_pid is None:
            zookeeper = False
            tell(f"bkstore: ZooKeeper ended; {ensemble.zookeeper_log} may say why")
        ensemble.note()


# -- from outside


def _status(args: argparse.Namespace) -> int:
    require_packages("ensemble status", "kazoo")
    from bkstore.testing.ensemble.from_outside import look

    seen = look(args.dir)
    known = _registered(seen)
    uri, rows = seen.state.uri, []
    for one in seen.state.bookies:
        state, address = known.get(one.id, (None, ("127.0.0.1", one.port)))
        pid = one.pid if seen.running else None
        rows.append(_row(uri, one.id, state, address, pid, one.storage, seen.path))
    write_output(args, ENSEMBLE_BOOKIES, [Table.from_rows(ENSEMBLE_BOOKIES, rows)])
    return 0 if all(row[2] == "writable" for row in rows) else 1


def _registered(seen: Seen) -> dict[str, tuple[str, tuple[str, int]]]:
    """Return what ZooKeeper says of each bookie; nothing if it cannot be asked, which is told."""
    if not seen.running:
        tell(f"bkstore: the ensemble in {seen.path} does not run")
        return {}
    from bkstore.cluster.store.zookeeper.store import ZooKeeperStore

    found = {}
    try:
        with ZooKeeperStore(seen.state.uri, timeout=_ANSWER, make_layout=False) as store:
            writable, read_only = store.writable_bookies(), store.read_only_bookies()
            for one in seen.state.bookies:
                state = "read-only" if one.id in read_only else "unregistered"
                info = store.service_info(one.id)
                address = None if info is None else info.address
                found[one.id] = (
                    "writable" if one.id in writable else state,
                    address or ("127.0.0.1", one.port),
                )
    except BkstoreError as error:
        tell(f"bkstore: {error}")
        return {}
    return found


def _down(args: argparse.Namespace) -> int:
    from bkstore.testing.ensemble.from_outside import look, remove, stop

    place = look(args.dir).path
    stopped = stop(place, _PATIENCE)
    tell(f"bkstore: the ensemble in {place} {'is stopped' if stopped else 'did not run'}")
    if args.remove:
        left = remove(place)
        if left:
            tell(f"bkstore: {place} stays, with what is not the ensemble's: {', '.join(left)}")
    return 0
