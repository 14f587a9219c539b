"""bkstore serve: serve a bookie's directory on a port, for clients of BookKeeper."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bkstore.cli.serve_admin import (
    add_admin,
    admin_settings_from_args,
    attach_server,
    mark_stopping,
    open_admin,
)
from bkstore.cli.server_conf.checkpoint_and_garbage_options import (
    add_checkpoint_and_garbage_options,
    garbage_options_from_args,
)
from bkstore.cli.server_conf.serve_arguments import complete_arguments, print_not_honored
from bkstore.cli.server_process import (
    FORCED_READ_ONLY_REASON,
    StandaloneBookie,
    StateChanges,
    checkpoint_until_stopped,
    print_garbage_problem,
    wait_for_end,
)
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.secrets import add_sasl_users, sasl_users_from_args
from bkstore.cli.terminal.signals import kill_on_second_signal
from bkstore.cli.terminal.standard_streams import print_stderr
from bkstore.errors import InvalidArgument

if TYPE_CHECKING:
    import ssl

    from bkstore.cluster.garbage import BackgroundCollector
    from bkstore.cluster.store.zookeeper.store import ZooKeeperStore
    from bkstore.network.checkpoints import CheckpointRunner
    from bkstore.network.registered_bookie import RegisteredBookie
    from bkstore.network.settings import ServerSettings
    from bkstore.storage.bookie import Bookie
    from bkstore.testing.ensemble.faulty_process import ProcessFaults
    from bkstore.wire.admin import AdminServer
    from bkstore.wire.server import BookieServer

_STORAGES = ("sorted", "interleaved", "db")
_MAX_CHECKPOINT_INTERVAL = 30 * 86400
_ZOOKEEPER_EXIT_SECONDS = 2.0
"""Seconds for which the command waits for ZooKeeper as it ends."""


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add(
        "directory",
        metavar="DIR",
        type=Path,
        help="a bookie's directory, or its bk_server.conf; is written to",
    )
    add("--create", action="store_true", help="create a bookie if DIR is missing or empty")
    add(
        "--storage",
        choices=_STORAGES,
        help="the storage (default: db if the index is RocksDB, else sorted)",
    )
    add("--host", help="where to listen (127.0.0.1)")
    add("--port", type=int, help="0 for a free one (3181)")
    add(
        "--extended",
        action="store_true",
        help="add scopes and batch reads to v3, which real bookies and clients do not support",
    )
    _add_security(parser)
    add(
        "--metadata",
        metavar="URI",
        help="service URI of a cluster in ZooKeeper: register the bookie there; none = no "
        "cluster, whatever the bk_server.conf says",
    )
    add("--bookie-id", metavar="ID", help="with --metadata (default: the cookie's, else HOST:PORT)")
    add("--advertise", metavar="HOST", help="with --metadata: the address for clients (--host)")
    add(
        "--session-timeout",
        metavar="SECONDS",
        type=float,
        help="with --metadata: how long a killed bookie stays registered (10; ZooKeeper "
        "has its own limits)",
    )
    add_checkpoint_and_garbage_options(parser)
    add_admin(parser)
    add("--faults", metavar="FILE", type=Path, help=argparse.SUPPRESS)  # of `bkstore ensemble`


def _add_security(parser: Parser) -> None:
    """Add the options for TLS and authentication."""
    add = parser.add_argument
    add("--tls-certificate", metavar="FILE", type=Path, help="PEM; enables START_TLS")
    add("--tls-key", metavar="FILE", type=Path, help="PEM, without a password (the same file)")
    add(
        "--tls-client-ca",
        metavar="FILE",
        type=Path,
        help="PEM; TLS clients must present a certificate signed by it",
    )
    add_sasl_users(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until an interrupt or SIGTERM, then answer the received requests and stop."""
    from bkstore.arguments import integer, number
    from bkstore.cluster.garbage import BackgroundCollector
    from bkstore.network.checkpoints import CheckpointRunner
    from bkstore.wire.server import BookieServer

    # Validate all settings, before a bookie is made or a port opened.
    conf = complete_arguments(args)
    check_interval = number(0, _MAX_CHECKPOINT_INTERVAL, above=True)
    interval = check_interval("--checkpoint-interval", args.checkpoint_interval)
    integer(0, 65535)("--port", args.port)
    tls, admin_settings = _server_tls_context(args), admin_settings_from_args(args)
    users = sasl_users_from_args(args, conf)
    garbage_options = garbage_options_from_args(args, conf)
    print_not_honored(args, conf)
    faults = _process_faults(args)
    # On exit these are closed in reverse order: the port first, the store last.
    state_changes = StateChanges(conf)
    with (
        kill_on_second_signal() as begin_stop,
        _open_store(args) as store,
        _open_bookie(args, store, conf, faults) as bookie,
        BackgroundCollector(bookie, store, garbage_options) as collector,
        open_admin(admin_settings, bookie, store, collector) as admin,
        BookieServer(
            bookie,
            args.host,
            args.port,
            extended=args.extended,
            tls=tls,
            sasl=users,
            observer=None if admin is None else admin.counters,
            options=conf.server,
            is_partitioned=None if faults is None else faults.is_partitioned,
        ) as server,
    ):
        checkpoints, collector.on_problem_changed = CheckpointRunner(bookie), print_garbage_problem
        registration = _register_bookie(
            args, store, server, checkpoints, collector, conf, state_changes, faults
        )
        with registration as registered:
            set_read_only = state_changes.guard_set_read_only(registered.set_read_only)
            attach_server(admin, server, set_read_only, store, args.metadata, conf, users)
            try:
                served = f"{args.directory} ({bookie.storage.storage} storage)"
                print_stderr(f"bkstore: serving {served} on {server.address}")
                _print_notes(args, server, admin)
                has_ended = partial(wait_for_end, server, state_changes)
                checkpoint_until_stopped(has_ended, checkpoints, admin, interval)
            except (KeyboardInterrupt, SystemExit):
                begin_stop()
                collector.on_problem_changed = bool  # no-op: stopping may interrupt a pass
                mark_stopping(admin)
                print_stderr("bkstore: stopping (a second signal ends it at once)")
    return 2 if state_changes.must_stop else 0


def _print_notes(args: argparse.Namespace, server: BookieServer, admin: AdminServer | None) -> None:
    """Print what the operator should know: limits, the admin's URL, and who can connect."""
    from bkstore.network.advertised_endpoint import is_wildcard_host

    possible, wanted = server.max_connections, server.options.max_connections
    if possible < wanted:
        print_stderr(
            f"bkstore: at most {possible} clients can connect, not {wanted}: raise the limit of "
            "open files (ulimit -n)"
        )
    if admin is not None:
        print_stderr(f"bkstore: HTTP admin on {admin.url}")
    if admin is not None and not admin.is_on_loopback:
        print_stderr(
            "bkstore: the HTTP admin is not on loopback: anyone who reaches it can read all "
            "payloads, unencrypted"
        )
    if is_wildcard_host(args.host):
        print_stderr(
            f"bkstore: {args.host} means all addresses of this machine: anyone who reaches one "
            "can read and write" + ("" if args.jaas is None else " after authenticating")
        )


@contextmanager
def _open_store(args: argparse.Namespace) -> Iterator[ZooKeeperStore | None]:
    """Open the cluster's metadata, None without --metadata; closing does not wait for ZooKeeper."""
    if args.metadata is None:
        options = (args.bookie_id, args.advertise, args.session_timeout)
        if any(value is not None for value in options):
            raise InvalidArgument("--bookie-id, --advertise and --session-timeout need --metadata")
        yield None
        return
    from bkstore.arguments import number
    from bkstore.cluster.store.zookeeper.store import SESSION_TIMEOUT_SECONDS, ZooKeeperStore
    from bkstore.network.advertised_endpoint import check_advertised_host

    check_advertised_host(args.advertise or args.host)
    seconds = SESSION_TIMEOUT_SECONDS if args.session_timeout is None else args.session_timeout
    session_timeout = number(0, 3600, above=True)("--session-timeout", seconds)
    with ZooKeeperStore(args.metadata, session_timeout=session_timeout) as store:
        try:
            yield store
        finally:
            store.finish_within(_ZOOKEEPER_EXIT_SECONDS)


@contextmanager
def _register_bookie(
    args: argparse.Namespace,
    store: ZooKeeperStore | None,
    server: BookieServer,
    checkpoints: CheckpointRunner,
    collector: BackgroundCollector,
    conf: ServerSettings,
    state_changes: StateChanges,
    faults: ProcessFaults | None,
) -> Iterator[RegisteredBookie | StandaloneBookie]:
    """Register the bookie in the cluster of `store`, if it has one. The bookie becomes read-only if
    a setting forces that, a fault demands it, or checkpoints fail."""

    def read_only_reason() -> str | None:
        fault = None if faults is None else faults.read_only_reason()
        return FORCED_READ_ONLY_REASON if conf.read_only else fault or checkpoints.problem

    if store is None:
        # Disks are watched only by the limits of a bk_server.conf.
        limits = conf.disks if args.directory.is_file() else None
        standalone = StandaloneBookie(server, checkpoints, limits, read_only_reason, state_changes)
        with closing(standalone):
            yield standalone
        return
    from bkstore.network.registered_bookie import RegisteredBookie

    with ExitStack() as exit_stack:
        # An exit must not wait for a stalled ZooKeeper: neither after a failed registration, nor to
        # unregister, before which the second callback runs.
        exit_stack.callback(store.finish_within, _ZOOKEEPER_EXIT_SECONDS)
        registered_bookie = RegisteredBookie(
            store,
            server,
            advertise=args.advertise,
            extended=args.extended,
            tls=args.tls_certificate is not None,
            **({"disk_options": conf.disks} if faults is None else faults.disk_checks(conf.disks)),
            collector=collector,
            find_problem=read_only_reason,
            on_read_only_change=state_changes,
        )
        exit_stack.enter_context(registered_bookie)
        exit_stack.callback(store.finish_within, _ZOOKEEPER_EXIT_SECONDS)
        checkpoints.on_problem_changed = registered_bookie.check_disks
        print_stderr(f"bkstore: bookie {server.bookie.bookie_id} is registered at {args.metadata}")
        yield registered_bookie


def _process_faults(args: argparse.Namespace) -> ProcessFaults | None:
    """Return the faults of a bookie that an ensemble has started, None of any other."""
    if args.faults is None:
        return None
    from bkstore.testing.ensemble.faulty_process import ProcessFaults

    return ProcessFaults(args.faults)


def _open_bookie(
    args: argparse.Namespace,
    store: ZooKeeperStore | None,
    conf: ServerSettings,
    faults: ProcessFaults | None,
) -> Bookie:
    """Open the bookie in DIR, or create one with --create. Raises `InvalidArgument` if there is
    none without --create, or if the directory holds other files."""
    from bkstore.storage.bookie import Bookie
    from bkstore.storage.directories.directory_cookies import OwnedDirectories

    path = args.directory
    directories = OwnedDirectories.of_path(path)
    exists = any(current.is_dir() for current in directories.ledger)
    if not exists and not args.create and path.is_file():
        missing = f"none of its directories exists, such as {directories.ledger[0].parent}"
        raise InvalidArgument(f"{path}: {missing}; --create makes a new bookie")
    if not exists and not args.create:
        raise InvalidArgument(f"{path}: not a bookie's directory; --create makes a new one")
    if not exists and path.is_dir() and any(path.iterdir()):
        raise InvalidArgument(f"{path}: is not empty and not a bookie's directory")
    storage_options = conf.storage_options(directories.choose_storage(args.storage))
    options: Any = {"options": storage_options, "journal": conf.journal}
    options |= {} if faults is None else {"files": faults.files}
    if store is None:
        return Bookie.open(path, args.storage, bookie_id=conf.bookie_id, **options)
    from bkstore.network.registered_bookie import cluster_bookie

    # A new bookie is called by its address, unless the system still has to choose its port.
    new_id = f"{args.advertise or args.host}:{args.port}" if args.port else None
    ids = {"bookie_id": args.bookie_id, "new_id": new_id}
    return cluster_bookie(store, path, args.storage, **ids, **options)


def _server_tls_context(args: argparse.Namespace) -> ssl.SSLContext | None:
    """Return the TLS context of the server's options, None without a certificate."""
    from bkstore.wire.server import server_tls

    if args.tls_certificate is None:
        if args.tls_key is not None or args.tls_client_ca is not None:
            raise InvalidArgument("--tls-key and --tls-client-ca need --tls-certificate")
        return None
    return server_tls(args.tls_certificate, args.tls_key, args.tls_client_ca)
