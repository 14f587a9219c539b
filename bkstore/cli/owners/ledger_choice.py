"""LedgerChoice: the ledgers in the metadata of a command, and which of them the filters choose."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from bkstore.cli.owners.owner_options import describe_filters, owner_filter_from_args
from bkstore.cli.terminal.exit_codes import FINDINGS, NOTHING_CHECKED
from bkstore.cli.terminal.standard_streams import print_stderr
from bkstore.counts import format_count
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerOwners


@dataclass(frozen=True)
class LedgerChoice:
    """The `owners` of all ledgers in `metadata`, and the ledgers that the filters have `chosen`:
    None without filters, which `filters` describes. `unreadable` are ledgers whose metadata cannot
    be read, so that it is not known whether they match. Can be sent to processes."""

    metadata: str | Path
    owners: LedgerOwners = field(repr=False)
    chosen: LedgerOwners | None = field(repr=False, default=None)
    filters: str = ""
    unreadable: tuple[str, ...] = ()

    @cached_property
    def ledgers(self) -> frozenset[LedgerId] | None:
        """The chosen ledgers, None = all."""
        return None if self.chosen is None else frozenset(self.chosen.ledgers())

    def report(self, code: int, *, is_empty: bool) -> int:
        """Print the ledgers whose metadata cannot be read, and with `is_empty` (the command had
        nothing to show) whether the filters match no ledger, or only ledgers that are not here.

        Return the command's exit code: `code`, or if that is 0, 1 for metadata that cannot be read,
        else 3 if filters were given and there was nothing to show.
        """
        for line in self.unreadable:
            print_stderr(line)
        if self.unreadable and not code:
            code = FINDINGS
        if self.chosen is None or not is_empty:
            return code
        if not len(self.chosen):
            print_stderr(f"no ledger in {self.metadata} matches {self.filters}")
        else:
            matches = format_count(len(self.chosen), "ledger")
            print_stderr(f"not here: {matches} in {self.metadata} that match {self.filters}")
        return code or NOTHING_CHECKED


def read_ledger_choice(args: argparse.Namespace) -> LedgerChoice | None:
    """Read the owners of all ledgers in --metadata, and choose by the filters; None without
    metadata. Raises what the store raises."""
    if args.metadata is None:
        return None
    from bkstore.cluster.store.opening import opened_metadata
    from bkstore.cluster.store.owners import read_owners
    from bkstore.errors import CorruptionError

    unreadable: list[tuple[LedgerId, CorruptionError]] = []
    with opened_metadata(args.metadata) as store:
        owners = read_owners(store, unreadable=unreadable)
    owner_filter = owner_filter_from_args(args)
    return LedgerChoice(
        args.metadata,
        owners,
        owners.choose(owner_filter) if owner_filter else None,
        describe_filters(args),
        tuple(f"ledger {ledger_id}: {error}" for ledger_id, error in unreadable),
    )
