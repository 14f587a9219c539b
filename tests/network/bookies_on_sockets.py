"""Bookies on sockets in this process, which end as killed ones do."""

from __future__ import annotations

import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

from bkstore.network import RegisteredBookie
from bkstore.storage.bookie import Bookie
from bkstore.storage.options import JournalOptions
from bkstore.wire.server import BookieServer, SaslUsers, ServerOptions

__all__ = ["Served", "registered", "serving"]

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
