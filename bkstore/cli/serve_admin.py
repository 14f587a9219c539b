"""The HTTP admin of `bkstore serve`: its options, and the server that they configure."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bkstore.errors import InvalidArgument

if TYPE_CHECKING:
    from bkstore.cluster.garbage import BackgroundCollector
    from bkstore.cluster.store.api import MetadataStore
    from bkstore.network.settings import ServerSettings
    from bkstore.storage.bookie import Bookie
    from bkstore.wire.admin import AdminServer
    from bkstore.wire.sasl import SaslUser, SaslUsers
    from bkstore.wire.server import BookieServer

_HOST_AND_PORT = re.compile(r"(?:(?:\[(?P<ipv6>[^\]]+)\]|(?P<name>[^:]+)):)?(?P<port>[0-9]{1,5})")


class AdminSettings(NamedTuple):
    """The admin's address, the token that permits changes (None: nobody may), its host names."""

    host: str
    port: int
    token: str | None
    host_names: tuple[str, ...] = ()


def add_admin(parser: argparse.ArgumentParser) -> None:
    """Add the options of the admin."""
    parser.add_argument(
        "--http",
        metavar="[HOST:]PORT",
        help="also serve the HTTP admin here (default host 127.0.0.1); port 0 for a free one",
    )
    parser.add_argument(
        "--http-token-file",
        metavar="FILE",
        type=Path,
        help="let the admin delete ledgers and collect garbage for requests with the token "
        "in FILE (default: never)",
    )
    parser.add_argument(
        "--http-name",
        metavar="NAME",
        action="append",
        help="a further host name of the admin if it does not listen on "
        "loopback, besides addresses and the machine's name; may be repeated",
    )


def admin_settings_from_args(args: argparse.Namespace) -> AdminSettings | None:
    """Return the admin's settings, None without --http. Raises `InvalidArgument`,
    `MissingDependency`, and `OSError` for an unreadable token file, before anything is opened."""
    if args.http is None:
        options = {"--http-token-file": args.http_token_file, "--http-name": args.http_name}
        for option, value in options.items():
            if value is not None:
                raise InvalidArgument(f"{option} requires --http")
        return None
    from bkstore.arguments import host_name
    from bkstore.cli.terminal.needed_packages import require_packages

    require_packages("serve --http", "aiohttp", "prometheus_client")
    match = _HOST_AND_PORT.fullmatch(args.http)
    if match is None or int(match["port"]) > 65535:
        raise InvalidArgument(f"--http {args.http[:60]!r} is not [HOST:]PORT")
    host = match["ipv6"] or match["name"] or "127.0.0.1"
    names = [host_name("--http-name", name) for name in args.http_name or ()]
    return AdminSettings(host, int(match["port"]), _read_token(args.http_token_file), tuple(names))


def _read_token(path: Path | None) -> str | None:
    """Return the token in a file, None without a file; raises `InvalidArgument` for a bad one."""
    if path is None:
        return None
    from bkstore.cli.terminal.secrets import read_secret
    from bkstore.wire.admin.access_control import check_token

    try:  # a byte outside ASCII becomes U+FFFD, which check_token refuses
        return check_token(read_secret(path).strip().decode("ascii", "replace"))
    except InvalidArgument as error:
        raise InvalidArgument(f"{path}: {error}") from None


def open_admin(
    settings: AdminSettings | None,
    bookie: Bookie,
    metadata: MetadataStore | None = None,
    collector: BackgroundCollector | None = None,
) -> AbstractContextManager[AdminServer | None]:
    """Return a context manager that runs the bookie's admin and yields it, None without `settings`.
    `metadata` is the store of its cluster, which determines the garbage that `collector` removes.
    The admin reports the stage "starting" until `attach_server`."""
    if settings is None:
        return nullcontext()
    from bkstore.wire.admin import AdminServer

    admin = AdminServer(
        bookie,
        settings.host,
        settings.port,
        metadata=metadata,
        collector=collector,
        token=settings.token,
        names=settings.host_names,
    )
    admin.controls.stage = "starting"
    return admin


def attach_server(
    admin: AdminServer | None,
    server: BookieServer,
    set_read_only: Callable[[bool], object],
    store: MetadataStore | None,
    uri: str | None,
    conf_settings: ServerSettings,
    users: SaslUsers | None,
) -> None:
    """Let the admin report on and control a running server; no-op if `admin` is None.

    `store` with its `uri` is the cluster that the server is registered in, `conf_settings` are its
    settings, `users` the SASL users that the cluster's bookies accept.
    """
    if admin is None:
        return
    controls = admin.controls
    controls.read_only = lambda: server.read_only
    controls.set_read_only = set_read_only
    controls.settings = {
        **conf_settings.list_option_texts(),
        "bookiePort": server.address.port,
        "httpServerEnabled": True,
        "httpServerHost": admin.address[0],
        "httpServerPort": admin.address[1],
    }
    if store is not None:
        controls.sasl = None if users is None else users.first_allowed_user()
        controls.check_sanity = partial(_check_sanity, store, server, controls.sasl)
        controls.settings |= {"metadataServiceUri": uri}
    controls.stage = "running"


def _check_sanity(store: MetadataStore, server: BookieServer, user: SaslUser | None) -> None:
    from bkstore.network.sanity_test import check_sanity  # loads a client

    check_sanity(store, server, sasl=user)


def mark_stopping(admin: AdminServer | None) -> None:
    """Let the admin report that the bookie is stopping; no-op if it is None."""
    if admin is not None:
        admin.controls.stage = "stopping"
