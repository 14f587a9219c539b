"""The real auditor, replication worker and marks of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from tests.interop.bookies import QUIET, Cluster

GRACE = 1.0
"""Seconds that an open ledger with a lost bookie is left to its writer."""

_names = map(str, count())

SETTINGS = {
    **QUIET,
    "lostBookieRecoveryDelay": "0",
    "openLedgerRereplicationGracePeriod": str(int(GRACE * 1000)),
    "rwRereplicateBackoffMs": "100",
    "lockReleaseOfFailedLedgerGracePeriod": "500",
    "auditorPeriodicBookieCheckInterval": "0",
    "auditorPeriodicCheckInterval": "0",
    "auditorPeriodicPlacementPolicyCheckInterval": "0",
    "auditorPeriodicReplicasCheckInterval": "0",
}


@contextmanager
def replication(cluster: Cluster, kind: str, **settings: str) -> Iterator[None]:
    """Run an "auditor", a "worker", or both as "autorecovery", for as long as the block lasts."""
    name = next(_names)
    own = {"metadataServiceUri": cluster.uri, "bookieId": f"recovery-{name}"}
    conf = {**SETTINGS, **own, **settings}
    cluster.real.call(f"{kind}_start", name=name, conf=conf)
    try:
        yield
    finally:
        cluster.real.call("replication_stop", name=name)


class RealMarks:
    """The marks as the real classes read and write them."""

    def __init__(self, cluster: Cluster) -> None:
        self._real = cluster.real
        self._name = next(_names)
        self._call("marks_open", conf={"metadataServiceUri": cluster.uri})

    def _call(self, what: str, **arguments: Any) -> Any:
        return self._real.call(what, name=self._name, **arguments)

    def close(self) -> None:
        """Close it; its locks go."""
        self._call("marks_close")

    def all(self) -> dict[int, list[str]]:
        """Return the missing replicas by ledger."""
        return {int(ledger): names for ledger, names in self._call("marks").items()}

    def mark(self, ledger: int, bookies: list[str]) -> None:
        """Mark a ledger."""
        self._call("mark", ledger=ledger, bookies=bookies)

    def take(self) -> int:
        """Lock a marked ledger and return it, -1 if none is free."""
        return int(self._call("marks_take"))

    def done(self, ledger: int) -> None:
        """Remove the mark of a ledger that was taken, and its lock."""
        self._call("marks_done", ledger=ledger)

    def release(self, ledger: int) -> None:
        """Give a ledger back."""
        self._call("marks_release", ledger=ledger)

    def locked(self, ledger: int) -> bool:
        """Return whether somebody has a ledger."""
        return bool(self._call("marks_locked", ledger=ledger))

    def enabled(self) -> bool:
        """Return whether workers may copy."""
        return bool(self._call("marks_enabled"))

    def enable(self, value: bool) -> None:
        """Let workers copy, or none."""
        self._call("marks_enable", enabled=value)
