"""What a cluster must keep, as plain dicts and lists; the state machine's judge."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Config", "LedgerModel", "payload"]


def payload(ledger: int, entry: int, size: int) -> bytes:
    """Return bytes that no other entry of the run has."""
    return f"{ledger}/{entry}:".encode() + bytes(size)


@dataclass(frozen=True)
class Config:
    """E, W and A of every ledger of a run."""

    ensemble: int
    write: int
    ack: int

    def may_fail(self, bookies: int, down: int) -> bool:
        """Return whether an entry may find fewer than A bookies: too few to replace those down.

        Without a bookie to take their place, the write set has W - down bookies at worst.
        """
        return bookies - down < self.ensemble and self.write - down < self.ack


@dataclass
class LedgerModel:
    """One ledger: what was acknowledged, what was sent and failed, how it ended."""

    acknowledged: list[bytes] = field(default_factory=list)
    failed: list[bytes] = field(default_factory=list)
    """What the last append of a writer that ended had sent: it may be there, in this order."""
    fenced: bool = False
    broken: bool = False
    last: int | None = None
    """The last entry, once the ledger is closed."""

    @property
    def writable(self) -> bool:
        """Whether an append has to succeed."""
        return self.last is None and not self.fenced and not self.broken

    def fail(self, sent: list[bytes]) -> None:
        """Note that the writer's append of `sent` failed, which ends it."""
        if not self.broken:
            self.failed = list(sent)
        self.broken = True

    def may_end_at(self, last: int) -> bool:
        """Return whether a recovery may find this last entry."""
        least = len(self.acknowledged) - 1
        return least <= last <= least + len(self.failed)

    def content(self) -> list[bytes]:
        """Return what must be readable: all of a closed ledger, else what was acknowledged."""
        if self.last is None:
            return self.acknowledged
        return [*self.acknowledged, *self.failed][: self.last + 1]
