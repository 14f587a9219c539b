"""Clusters for audits over the wire: bookies that hold what a test says, and the command."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from bkstore.cli.main import main
from bkstore.cluster import ZooKeeperStore
from bkstore.formats.entry import Coder, master_key
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.network import RegisteredBookie
from bkstore.storage.bookie import Bookie
from tests.network.bookies_on_sockets import registered

__all__ = ["STORAGES", "audited", "cluster_of", "holds", "rows_of"]

STORAGES = ("sorted", "interleaved", "db")

_CODER = Coder("CRC32C", "pw")


def holds(bookie: Bookie, ledger: int | LedgerId, entries: Iterable[int]) -> None:
    """Have a bookie hold these entries of a ledger, and none other."""
    ids = sorted(entries)
    if ids:
        batch = _CODER.encode_batch(ledger, ids, [b"x"] * len(ids))
        bookie.add_batch(batch, master_key("pw"))


@contextmanager
def cluster_of(
    uri: str,
    top: Path,
    ledgers: Iterable[LedgerMetadata],
    held: Mapping[str, Mapping[LedgerId, Iterable[int]]],
    **options: Any,
) -> Iterator[dict[str, RegisteredBookie]]:
    """Yield the bookies of a new cluster, of all storages in turn, which hold what is said."""
    with ExitStack() as stack:
        store = stack.enter_context(ZooKeeperStore.format(uri))
        for metadata in ledgers:
            store.create(metadata)
        made = {}
        for name, storage in zip(held, cycle(STORAGES)):
            one = registered(uri, top, name, storage=storage, **options)
            stack.callback(one.close)
            for ledger, entries in held[name].items():
                holds(one.bookie, ledger, entries)
            made[name] = one
        yield made


def audited(
    capsys: pytest.CaptureFixture[str], *words: object
) -> tuple[int, list[dict[str, Any]], str]:
    """Run `bkstore audit`; return exit code, rows, and what went to stderr."""
    code = main(["audit", *map(str, words), "--format", "json"])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else [], err


def rows_of(rows: Iterable[Mapping[str, Any]]) -> set[tuple[Any, ...]]:
    """Return rows by category, ledger, first entry, bookie and ranges of missing entries."""
    return {
        (
            row["category"],
            row["qualified_name"],
            row["first_entry"],
            row["bookie"],
            str(row["missing"]),
        )
        for row in rows
    }
