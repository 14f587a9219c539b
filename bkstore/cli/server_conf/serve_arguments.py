"""The arguments of `bkstore serve`, completed by the `bk_server.conf` that it serves."""

from __future__ import annotations

import argparse
import textwrap
from typing import TYPE_CHECKING, Any

from bkstore.cli.terminal.standard_streams import print_stderr

if TYPE_CHECKING:
    from bkstore.network.settings import ServerSettings

_DEFAULTS = {"host": "127.0.0.1", "port": 3181, "checkpoint_interval": 60.0}
"""The command's defaults."""
_NONE = "none"
_WIDTH = 80


def complete_arguments(args: argparse.Namespace) -> ServerSettings:
    """Set the arguments that were not given from the conf, else to the command's defaults; return
    the conf's settings, none for a directory. ``none`` turns off the conf's metadata or admin."""
    from bkstore.network.settings import ServerSettings

    settings = ServerSettings()  # of no conf
    if args.directory.is_file():
        settings = ServerSettings.read(args.directory)
    for name in ("storage", "host", "port", "checkpoint_interval", "metadata"):
        _set_if_absent(args, name, getattr(settings, name))
    for name, default in _DEFAULTS.items():
        _set_if_absent(args, name, default)
    if settings.http is not None:
        host, port = settings.http
        _set_if_absent(args, "http", f"[{host}]:{port}")
    for name in ("metadata", "http"):
        if getattr(args, name) == _NONE:
            setattr(args, name, None)
    if args.metadata is not None:
        for name in ("bookie_id", "advertise", "session_timeout"):
            _set_if_absent(args, name, getattr(settings, name))
    if settings.tls is not None and args.tls_certificate is None:
        args.tls_certificate, key, client_ca = settings.tls
        _set_if_absent(args, "tls_key", key)
        _set_if_absent(args, "tls_client_ca", client_ca)
    return settings


def _set_if_absent(args: argparse.Namespace, name: str, value: Any) -> None:
    if getattr(args, name) is None:
        setattr(args, name, value)


def print_not_honored(args: argparse.Namespace, settings: ServerSettings) -> None:
    """Print which keys of the conf would change what the bookie does, but are not honored."""
    if settings.ignored_keys:
        keys = ", ".join(settings.ignored_keys)
        text = f"bkstore: {args.directory.name}: not honored: {keys}"
        for line in textwrap.wrap(text, _WIDTH, subsequent_indent="  ", break_on_hyphens=False):
            print_stderr(line)
