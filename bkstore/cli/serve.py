"""bkstore serve: a bookie's directory on a port, for clients of BookKeeper."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bkstore.cli.serve_admin import add_admin, admin_of, chosen_admin, show_server, show_stop
from bkstore.cli.server_conf.choices import complete, tell_not_honored
from bkstore.cli.server_conf.upkeep import add_upkeep, chosen_garbage
from bkstore.cli.serving import (
    FORCED,
    LoneBookie,
    StateChanges,
    ending_at_once,
    tell_garbage,
    until_stopped,
    waited,
)
from bkstore.cli.terminal.messages import tell
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.secrets import add_sasl_users, chosen_sasl_users
from bkstore.errors import InvalidArgument

if TYPE_CHECKING:
    import ssl

    from bkstore.cluster.garbage import BackgroundCollector
    from bkstore.cluster.store.zookeeper.store import ZooKeeperStore
    from bkstore.network.checkpoints import Checkpoints
    from bkstore.network.registered_bookie import RegisteredBookie
    from bkstore.network.settings import ServerSettings
    from bkstore.storage.bookie import Bookie
    from bkstore.wire.admin import AdminServer
    from bkstore.wire.server import BookieServer

_STORAGES = ("sorted", "interleaved", "db")
_MONTH = 30 * 86400
_LAST_WORDS = 2.0
"""Seconds in which ZooKeeper is to answer once the command ends."""


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "directory",
        metavar="DIR",
        type=Path,
        help="a bookie's directory, or its bk_server.conf; unlike elsewhere it is written to",
    )
    parser.add_argument(
        "--create", action="store_true", help="make a new bookie where DIR is missing or empty"
    )
    parser.add_argument(
        "--storage",
        choices=_STORAGES,
        help="how to write (default: db where the index is RocksDB, else sorted)",
    )
    parser.add_argument("--host", help="where to listen (127.0.0.1)")
    parser.add_argument("--port", type=int, help="0 takes a free one (3181)")
    parser.add_argument(
        "--extended",
        action="store_true",
        help="let v3 have scopes and batch reads, which real bookies and clients do not know",
    )
    _add_security(parser)
    parser.add_argument(
        "--metadata",
        metavar="URI",
        help="service URI of a cluster in ZooKeeper: the bookie is registered there; none = in "
        "none, whatever the bk_server.conf says",
    )
    parser.add_argument(
        "--bookie-id", metavar="ID", help="with --metadata (default: the cookie's, else HOST:PORT)"
    )
    parser.add_argument(
        "--advertise", metavar="HOST", help="with --metadata: where clients find it (--host)"
    )
    parser.add_argument(
        "--session-timeout",
        metavar="SECONDS",
        type=float,
        help="with --metadata: how long the bookie stays registered after it was killed (10; the "
        "ZooKeeper has limits of its own)",
    )
    add_upkeep(parser)
    add_admin(parser)


def _add_security(parser: Parser) -> None:
    """Declare who may connect, and how."""
    parser.add_argument(
        "--tls-certificate", metavar="FILE", type=Path, help="PEM; lets clients START_TLS"
    )
    parser.add_argument(
        "--tls-key", metavar="FILE", type=Path, help="PEM, without a password (the same file)"
    )
    parser.add_argument(
        "--tls-client-ca",
        metavar="FILE",
        type=Path,
        help="PEM; clients that START_TLS must show a certificate of it",
    )
    add_sasl_users(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until an interrupt or SIGTERM, then answer what has come in, and stop."""
    from bkstore.arguments import number, whole
    from bkstore.cluster.garbage import BackgroundCollector
    from bkstore.network.checkpoints import Checkpoints
    from bkstore.wire.server import BookieServer

    asked = complete(args)
    interval = number(0, _MONTH, above=True)("--checkpoint-interval", args.checkpoint_interval)
    whole(0, 65535)("--port", args.port)  # before a new bookie is made
    tls, settings, users = _tls(args), chosen_admin(args), chosen_sasl_users(args, asked)
    garbage = chosen_garbage(args, asked)
    tell_not_honored(args, asked)
    changed = StateChanges(asked)
    with (
        ending_at_once() as stopping,
        _store(args) as store,
        _bookie(args, store, asked) as bookie,
        BackgroundCollector(bookie, store, garbage) as collector,
        admin_of(settings, bookie, store, collector) as admin,
        BookieServer(
            bookie,
            args.host,
            args.port,
            extended=args.extended,
            tls=tls,
            sasl=users,
            observer=None if admin is None else admin.counters,
            options=asked.server,
        ) as server,
    ):
        checkpoints, collector.changed = Checkpoints(bookie), tell_garbage
        with _registered(args, store, server, checkpoints, collector, asked, changed) as state:
            by_order = changed.allowed(state.set_read_only)
            show_server(admin, server, by_order, store, args.metadata, asked, users)
            try:
                kind = bookie.storage.storage
                tell(f"bkstore: serving {args.directory} ({kind} storage) on {server.address}")
                _tell_more(args, server, admin)
                until_stopped(partial(waited, server, changed), checkpoints, admin, interval)
            except (KeyboardInterrupt, SystemExit):
                stopping()
                collector.changed = bool
                show_stop(admin)
                tell("bkstore: stopping (a second signal ends it at once)")
    return 2 if changed.stops else 0


def _tell_more(args: argparse.Namespace, server: BookieServer, admin: AdminServer | None) -> None:
    from bkstore.network.advertised import means_any

    if server.max_connections < server.options.max_connections:
        tell(
            f"bkstore: at most {server.max_connections} clients are taken, not "
            f"{server.options.max_connections}: raise the limit of open files (ulimit -n) for more"
        )
    if admin is not None:
        tell(f"bkstore: HTTP admin on {admin.url}")
        if not admin.is_on_loopback:
            tell(
                "bkstore: the HTTP admin is not on loopback: whoever reaches it can read all "
                "payloads, in the clear"
            )
    if means_any(args.host):
        tell(
            f"bkstore: {args.host} is every address of this machine: whoever reaches one of them "
            "can read and write" + ("" if args.jaas is None else ", once it has authenticated")
        )


@contextmanager
def _store(args: argparse.Namespace) -> Iterator[ZooKeeperStore | None]:
    """Open the cluster's metadata; where ZooKeeper is stalled, the end does not wait for it."""
    if args.metadata is None:
        given = (args.bookie_id, args.advertise, args.session_timeout)
        if any(value is not None for value in given):
            raise InvalidArgument("--bookie-id, --advertise and --session-timeout need --metadata")
        yield None
        return
    from bkstore.arguments import number
    from bkstore.cluster.store.zookeeper.store import SESSION_TIMEOUT, ZooKeeperStore
    from bkstore.network.advertised import check_advertised

    check_advertised(args.advertise or args.host)
    seconds = SESSION_TIMEOUT if args.session_timeout is None else args.session_timeout
    session = number(0, 3600, above=True)("--session-timeout", seconds)
    with ZooKeeperStore(args.metadata, session_timeout=session) as store:
        try:
            yield store
        finally:
            store.finish_within(_LAST_WORDS)


@contextmanager
def _registered(
    args: argparse.Namespace,
    store: ZooKeeperStore | None,
    server: BookieServer,
    checkpoints: Checkpoints,
    collector: BackgroundCollector,
    asked: ServerSettings,
    changed: StateChanges,
) -> Iterator[RegisteredBookie | LoneBookie]:
    """Register the bookie for as long as it serves, where that is wanted; have it be read-only
    while its checkpoints fail."""

    def problem() -> str | None:
        return FORCED if asked.read_only else checkpoints.problem

    if store is None:
        limits = asked.disks if args.directory.is_file() else None
        with closing(LoneBookie(server, checkpoints, limits, problem, changed)) as lone:
            yield lone
        return
    from bkstore.network.registered_bookie import RegisteredBookie

    with ExitStack() as undo:
        undo.callback(store.finish_within, _LAST_WORDS)  # where registering fails
        made = RegisteredBookie(
            store,
            server,
            advertise=args.advertise,
            extended=args.extended,
            tls=args.tls_certificate is not None,
            limits=asked.disks,
            collector=collector,
            problem=problem,
            changed=changed,
        )
        undo.enter_context(made)
        undo.callback(store.finish_within, _LAST_WORDS)  # before all else that ends
        checkpoints.changed = made.check_disks
        tell(f"bkstore: bookie {server.bookie.bookie_id} is registered at {args.metadata}")
        yield made


def _bookie(
    args: argparse.Namespace, store: ZooKeeperStore | None, asked: ServerSettings
) -> Bookie:
    """Open the bookie; a new one only if that was asked for."""
    from bkstore.storage.bookie import Bookie
    from bkstore.storage.directories.ownership import OwnedDirectories

    path = args.directory
    place = OwnedDirectories.of_path(path)
    there = any(current.is_dir() for current in place.ledger)
    if not there and not args.create and path.is_file():
        raise InvalidArgument(
            f"{path}: none of its directories is here, as {place.ledger[0].parent}; --create "
            "makes a new bookie there"
        )
    if not there and not args.create:
        raise InvalidArgument(f"{path}: no bookie's directory; --create makes a new one")
    if not there and path.is_dir() and any(path.iterdir()):
        raise InvalidArgument(f"{path}: is not empty, and no bookie's directory")
    options, journal = asked.storage_options(place.storage(args.storage)), asked.journal
    if store is None:
        name = asked.bookie_id
        return Bookie.open(path, args.storage, bookie_id=name, options=options, journal=journal)
    from bkstore.network.registered_bookie import cluster_bookie

    new_id = f"{args.advertise or args.host}:{args.port}" if args.port else None
    return cluster_bookie(
        store,
        path,
        args.storage,
        bookie_id=args.bookie_id,
        new_id=new_id,
        options=options,
        journal=journal,
    )


def _tls(args: argparse.Namespace) -> ssl.SSLContext | None:
    from bkstore.wire.server import server_tls

    if args.tls_certificate is None:
        if args.tls_key is not None or args.tls_client_ca is not None:
            raise InvalidArgument("--tls-key and --tls-client-ca need --tls-certificate")
        return None
    return server_tls(args.tls_certificate, args.tls_key, args.tls_client_ca)
