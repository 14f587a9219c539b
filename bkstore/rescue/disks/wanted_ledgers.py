"""WantedLedgers: the ledgers to rescue, with what verifies their records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from bkstore.cluster.store.api import MetadataStore
from bkstore.errors import CorruptionError
from bkstore.ids import LedgerId
from bkstore.index.api import Finding
from bkstore.ledger_metadata import LedgerMetadata


class LedgerSecret(NamedTuple):
    """The digest type of a ledger's records, None if it is unknown, and the password, None if it is
    unknown: only HMAC needs it."""

    digest_type: str | None
    password: bytes | None

    @property
    def is_verifiable(self) -> bool:
        """Whether a digest of this type can be compared."""
        if self.digest_type is None:
            return True  # by trial
        return self.digest_type != "DUMMY" and (
            self.digest_type != "HMAC" or self.password is not None
        )


@dataclass
class WantedLedgers:
    """The metadata of the ledgers to rescue, in order of id, and findings on damaged metadata."""

    metadata: dict[LedgerId, LedgerMetadata]
    findings: list[Finding] = field(default_factory=list)

    def secrets(self, given: LedgerSecret | None = None) -> LedgerSecrets:
        """Return what verifies their records: a digest type and password that are given count for
        ledgers whose metadata have none."""
        return LedgerSecrets.of(self.metadata, given)

    @property
    def open_ledgers(self) -> frozenset[LedgerId]:
        """The ledgers whose metadata do not say where they end."""
        return frozenset(ledger for ledger, each in self.metadata.items() if not each.closed)


@dataclass(frozen=True)
class LedgerSecrets:
    """The distinct secrets of ledgers, and for each ledger the number of its own. Picklable."""

    secrets: list[LedgerSecret] = field(repr=False)
    numbers: dict[LedgerId, int]
    open_ledgers: frozenset[LedgerId]

    @classmethod
    def of(
        cls, ledgers: Mapping[LedgerId, LedgerMetadata], given: LedgerSecret | None = None
    ) -> LedgerSecrets:
        """Return the secrets in the ledgers' metadata, or the given one where they have none."""
        distinct: dict[LedgerSecret, int] = {}
        numbers = {}
        for ledger_id, metadata in ledgers.items():
            digest_type, password = metadata.digest_type, metadata.password
            if given is not None:
                digest_type = given.digest_type if digest_type is None else digest_type
                password = given.password if password is None else password
            secret = LedgerSecret(digest_type, password)
            numbers[ledger_id] = distinct.setdefault(secret, len(distinct))
        open_ledgers = frozenset(each for each, metadata in ledgers.items() if not metadata.closed)
        return cls(list(distinct), numbers, open_ledgers)

    def secret_of(self, ledger_id: LedgerId) -> LedgerSecret:
        """Return the secret of a wanted ledger."""
        return self.secrets[self.numbers[ledger_id]]


def read_wanted_ledgers(
    store: MetadataStore, is_wanted: Callable[[LedgerMetadata], bool] = lambda _: True
) -> WantedLedgers:
    """Return the ledgers of a store for which `is_wanted` is true. Metadata that cannot be read
    are findings. Memory: some 500 bytes a ledger.

    >>> from bkstore.cluster import MemoryStore
    >>> store = MemoryStore()
    >>> store.create(LedgerMetadata(7, 1, 1, 1, [(0, ["b1"])]))
    0
    >>> list(read_wanted_ledgers(store).metadata)
    [LedgerId(scope=0, ledger=7)]
    """
    wanted = WantedLedgers({})
    for ledger_id, versioned in store.read_many(store.ledgers()):
        if isinstance(versioned, CorruptionError):
            wanted.findings.append(Finding.of(versioned, ledger_id))
            continue
        problems = versioned.metadata.problems()
        if problems:
            detail = f"its metadata are invalid: {'; '.join(problems)}"
            wanted.findings.append(Finding("damage", detail, None, None, ledger_id))
        elif is_wanted(versioned.metadata):
            wanted.metadata[ledger_id] = versioned.metadata
    return wanted
