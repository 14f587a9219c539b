"""Options of `bkstore audit` and `repair`: rules, pace, and how running bookies are asked."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.secrets import add_sasl_user
from bkstore.cli.terminal.standard_streams import print_stderr
from bkstore.errors import InvalidArgument

if TYPE_CHECKING:
    import ssl

    from bkstore.cluster.audit import AuditOptions
    from bkstore.cluster.placement.policies import PlacementPolicy

_LIVE_CONCURRENCY = 64
_DEFAULT_TIMEOUT = 5.0
_DEFAULT_RECHECK_DELAY = 30.0


def add_rule_options(parser: Parser) -> None:
    """Add the options of the rules."""
    parser.add_argument(
        "--grace-period",
        metavar="SECONDS",
        type=float,
        help="report underreplicated marks older than this (default: not judged)",
    )
    add_placement_options(parser)
    parser.add_argument(
        "--compat",
        choices=("bookkeeper",),
        help="report as the real auditor does, with its false alarms",
    )


def add_placement_options(parser: Parser) -> None:
    """Add the placement policy."""
    parser.add_argument(
        "--placement",
        choices=("default", "rack", "region"),
        default="default",
        help="placement policy of the ensembles (default: any distinct bookies)",
    )
    parser.add_argument(
        "--places",
        metavar="FILE",
        type=Path,
        help="locations of bookies: lines with a bookie id and /rack or /region/rack",
    )
    parser.add_argument(
        "--spread",
        metavar="N",
        type=int,
        default=2,
        help="minimum of racks or regions per write set (default 2)",
    )
    parser.add_argument(
        "--enforce-places",
        action="store_true",
        help="report bookies in /default-rack or /default-region as violations",
    )


def add_live_options(parser: Parser) -> None:
    """Add the options for audits of running bookies, and for the pace."""
    live = parser.add_argument_group("bookies queried at their registered addresses")
    live.add_argument(
        "--offline", action="store_true", help="query no bookie; read only the given directories"
    )
    _add_connection_options(parser, live)


def add_connection_options(parser: Parser) -> None:
    """Add the options for connections to bookies, and for the pace of an audit."""
    _add_connection_options(parser, parser.add_argument_group("connections to bookies"))


def _add_connection_options(parser: Parser, live: argparse._ArgumentGroup) -> None:
    """Add the options of connections to the group `live`, and that of the pace to the others."""
    add = live.add_argument
    add(
        "--timeout",
        metavar="SECONDS",
        type=float,
        default=_DEFAULT_TIMEOUT,
        help=f"timeout of connecting and of each answer ({_DEFAULT_TIMEOUT:g})",
    )
    add(
        "--retries",
        "--looks",
        dest="looks",
        metavar="N",
        type=int,
        help="retries for a bookie that does not answer (1, and 0 offline)",
    )
    add(
        "--retry-delay",
        "--look-delay",
        dest="look_delay",
        metavar="SECONDS",
        type=float,
        default=_DEFAULT_RECHECK_DELAY,
        help=f"delay before each retry ({_DEFAULT_RECHECK_DELAY:g})",
    )
    add("--tls", action="store_true", help="use TLS; bookies must present certificates")
    add(
        "--tls-ca",
        metavar="FILE",
        type=Path,
        help="PEM file of trusted certificates (the system's)",
    )
    add("--tls-any-host", action="store_true", help="accept certificates for other hosts")
    add("--tls-certificate", metavar="FILE", type=Path, help="PEM, for bookies that require one")
    add("--tls-key", metavar="FILE", type=Path, help="PEM, without a password (the same file)")
    add_sasl_user(live)
    parser.add_argument(
        "--rate", metavar="N", type=float, help="maximum of ledgers per second (default: no limit)"
    )


def is_live(args: argparse.Namespace) -> bool:
    """Return whether bookies without a given directory are asked over the network."""
    return isinstance(args.metadata, str) and not args.offline


def check_audit_arguments(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Exit with a usage error if there is no bookie to ask or a TLS option has no effect."""
    check_tls_arguments(parser, args)
    if args.bookies or is_live(args):
        return
    if args.offline:
        parser.error("--offline needs directories: BOOKIE=DIR")
    parser.error(f"{args.metadata}: only a service URI has bookies' addresses; give BOOKIE=DIR")


def check_tls_arguments(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Exit with a usage error if a TLS option has no effect."""
    if args.tls_key is not None and args.tls_certificate is None:
        parser.error("--tls-key needs --tls-certificate")
    if not args.tls and (args.tls_ca or args.tls_any_host or args.tls_certificate):
        parser.error("--tls-ca, --tls-any-host and --tls-certificate need --tls")


def tls_context_from_args(args: argparse.Namespace) -> ssl.SSLContext | None:
    """Return the TLS context for connections to bookies, or None without --tls."""
    if not args.tls:
        return None
    from bkstore.wire.client import client_tls

    files = (args.tls_ca, args.tls_certificate, args.tls_key)
    return client_tls(*files, check_host=not args.tls_any_host)


def audit_options_from_args(args: argparse.Namespace, live: bool) -> AuditOptions:
    """Return the options of an audit; rechecks default to 1 if `live` and without --compat. For a
    command without the options of the rules, these rules are not set."""
    from bkstore.arguments import integer, number
    from bkstore.cluster.audit.options import MAX_DELAY_SECONDS, AuditOptions

    compat = getattr(args, "compat", None)
    retries = args.looks if args.looks is not None else int(live and compat is None)
    return AuditOptions(
        grace_period=getattr(args, "grace_period", None),
        rechecks=integer(0)("retries", retries),  # an error names the option
        recheck_delay=number(0, MAX_DELAY_SECONDS)("retry_delay", args.look_delay),
        concurrency=_LIVE_CONCURRENCY if live else AuditOptions().concurrency,
        rate=args.rate,
        compat=compat,
    )


def announcing_sleep(recheck_delay: float) -> Callable[[float], None]:
    """Return a sleep that announces rechecks; the auditor also sleeps to keep to --rate."""

    def wait(seconds: float) -> None:
        if seconds == recheck_delay:
            print_stderr(f"some bookies did not answer: retrying in {seconds:g} s")
        time.sleep(seconds)

    return wait


def show_audit(show: Callable[[str, int, int, int], None], done: int, total: int) -> None:
    """Show the progress of an audit."""
    show("audit", done, total, done)


def placement_from_args(args: argparse.Namespace) -> PlacementPolicy:
    """Return the policy that judges ensembles; raises `InvalidArgument` for misuse of --places."""
    from bkstore.cluster.placement.network_locations import read_network_locations
    from bkstore.cluster.placement.policies import DefaultPlacement, RackPlacement, RegionPlacement

    if args.placement == "default":
        if args.places is not None or args.enforce_places:
            raise InvalidArgument("--places requires --placement rack or region")
        return DefaultPlacement()
    if args.places is None:
        raise InvalidArgument(f"--placement {args.placement} needs --places FILE")
    places = read_network_locations(args.places)
    if args.placement == "rack":
        return RackPlacement(places, min_racks=args.spread, enforce=args.enforce_places)
    return RegionPlacement(places, min_regions=args.spread, enforce=args.enforce_places)
