"""Bookies on sockets in this process, which end as killed ones do; clusters of them for audits."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
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
from bkstore.storage.options import JournalOptions
from bkstore.wire.server import BookieServer, SaslUsers, ServerOptions

__all__ = [
    "STORAGES",
    "Served",
    "audited",
    "cluster_of",
    "holds",
    "registered",
    "rows_of",
    "serving",
]

STORAGES = ("sorted", "interleaved", "db")

_CODER = Coder("CRC32C", "pw")

JOURNAL = JournalOptions(preallocate=64 << 10)
ABRUPT = ServerOptions(stop_timeout=0)  # what has no answer gets none


class Served:
    """Bookies without registrations: their ids are their addresses."""

    def __init__(self, top: Path, count: int, *, extended: bool = True) -> None:
        self.running: dict[str, tuple[Bookie, BookieServer]] = {}
        for number in range(count):
            bookie = Bookie.open(top / f"bookie-{number}", "sorted", journal=JOURNAL)
            server = BookieServer(bookie, extended=extended, options=ABRUPT).start()
            self.running[str(server.address)] = (bookie, server)

    def kill(self, name: str) -> None:
        """End a bookie's server at once, and the bookie without a checkpoint."""
        bookie, server = self.running.pop(name)
        server.close()
        bookie.close(checkpoint=False)

    def close(self) -> None:
        """End all."""
        for name in list(self.running):
            self.kill(name)


def registered(
    uri: str,
    top: Path,
    name: str,
    tls: ssl.SSLContext | None = None,
    sasl: SaslUsers | None = None,
    **options: Any,
) -> RegisteredBookie:
    """Return a bookie of a cluster, in the directory of its name."""
    served = {"options": ABRUPT, "tls": tls, "sasl": sasl}
    return RegisteredBookie.open(
        uri, top / name, bookie_id=name, journal=JOURNAL, server=served, **options
    )


def serving(folder: Path, uri: str, *words: str) -> subprocess.Popen[str]:
    """Return a process of `bkstore serve` once its bookie, b1, is registered."""
    command = [sys.executable, "-m", "bkstore", "serve", str(folder), "--port", "0"]
    process = subprocess.Popen(
        [*command, "--metadata", uri, *words], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    told = [process.stderr.readline(), process.stderr.readline()]

    assert f"bkstore: bookie b1 is registered at {uri}\n" in told
    return process


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
