"""The options of `bkstore serve` about its upkeep: checkpoints and garbage collection."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bkstore.errors import InvalidArgument

if TYPE_CHECKING:
    from bkstore.cluster.garbage import GarbageOptions
    from bkstore.network.settings import ServerSettings


def add_checkpoint_and_garbage_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of checkpoints and of garbage collection, with a bookie's own defaults."""
    parser.add_argument(
        "--checkpoint-interval",
        metavar="SECONDS",
        type=float,
        help="interval of checkpoints, after which old journals are removed (60)",
    )
    parser.add_argument(
        "--gc-wait",
        metavar="SECONDS",
        type=float,
        help="with --metadata: time between passes of garbage collection; 0 = only "
        "on request (600)",
    )
    for kind, default in (("minor", "0.2:3600"), ("major", "0.8:86400")):
        parser.add_argument(
            f"--{kind}-compaction",
            metavar="SHARE:SECONDS",
            help="with --metadata: compact entry logs with a live part below SHARE, at least "
            f"SECONDS after the last {kind} compaction; 0:0 = never ({default})",
        )
    parser.add_argument(
        "--compaction-rate",
        metavar="ENTRIES",
        type=int,
        help="with --metadata: entries per second that a compaction copies (1000)",
    )


def garbage_options_from_args(args: argparse.Namespace, settings: ServerSettings) -> GarbageOptions:
    """Return the given settings, else the conf's; `InvalidArgument` for any without --metadata."""
    values: dict[str, Any] = {"gc_wait_time": args.gc_wait}
    values["compaction_rate_by_entries"] = args.compaction_rate
    for kind in ("minor", "major"):
        threshold, interval = _share_and_seconds(kind, getattr(args, f"{kind}_compaction"))
        values[f"{kind}_compaction_threshold"] = threshold
        values[f"{kind}_compaction_interval"] = interval
    given = {name: value for name, value in values.items() if value is not None}
    if given and args.metadata is None:
        raise InvalidArgument(
            "--gc-wait, --minor-compaction, --major-compaction and --compaction-rate need "
            "--metadata: without it garbage is not collected"
        )
    return replace(settings.garbage, **given)


def _share_and_seconds(kind: str, text: str | None) -> tuple[float | None, float | None]:
    """Return the two numbers of --`kind`-compaction, None for both if it is not given."""
    if text is None:
        return None, None
    try:
        share, seconds = map(float, text.split(":"))
    except ValueError:
        raise InvalidArgument(f"--{kind}-compaction {text[:60]!r} is not SHARE:SECONDS") from None
    return share, seconds
