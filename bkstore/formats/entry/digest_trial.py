"""Digest types found by trial: only records with a scope carry theirs, and it decides where the
payload begins. CRC32 and CRC32C are verified. HMAC and DUMMY are told by the length field, which
counts the ledger's payload bytes: the rest of a record, without header and payload, is its digest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from bkstore.errors import CorruptionError
from bkstore.formats.entry.coder import Coder, matching_checksum
from bkstore.formats.entry.digest import DIGEST_SIZES, digest_name
from bkstore.formats.entry.header import RecordHeader, record_header
from bkstore.ids import LedgerId

_MAX_TRIED = 16  # records

_TYPE_OF_SIZE = {DIGEST_SIZES["HMAC"]: "HMAC", DIGEST_SIZES["DUMMY"]: "DUMMY"}
"""The types that no trial without a password can verify, by the size of their digests."""


class DigestTrial(NamedTuple):
    """A digest type, and whether a record was verified by it (else the sizes of records tell)."""

    digest_type: str
    is_verified: bool

    @property
    def digest_size(self) -> int:
        """The size of a digest in bytes."""
        return DIGEST_SIZES[self.digest_type]


def find_digest_type(
    records: Iterable[bytes], password: bytes | str | None = None
) -> DigestTrial | None:
    """Return the digest type of records of one ledger in ascending order, None if it is not clear.
    It is the first of CRC32, CRC32C and, with the `password`, HMAC that verifies one of the first
    16 records: a wrong one does so by chance once in 2^32 times. HMAC without the password, and
    DUMMY, are recognized by the size of the digest. Cost: three digests a record.

    >>> coder = Coder("CRC32C")
    >>> find_digest_type(coder.encode_many(7, range(3), [b"hello"] * 3))
    DigestTrial(digest_type='CRC32C', is_verified=True)
    >>> find_digest_type(Coder("HMAC", "pw").encode_many(7, range(3), [b"hello"] * 3))
    DigestTrial(digest_type='HMAC', is_verified=False)
    """
    tried = [record for record, _ in zip(records, range(_MAX_TRIED))]
    for record in tried:
        verified_type = matching_checksum(record)
        if verified_type is None and password is not None and _verifies_hmac(record, password):
            verified_type = "HMAC"
        if verified_type is not None:
            return DigestTrial(verified_type, is_verified=True)
    # No digest verifies: use the number of the digest type that headers of version 2 have.
    headers = list(_readable_headers(tried))
    for header, _ in headers:
        if header.digest is not None:
            return DigestTrial(digest_name(header.digest), is_verified=False)
    # Otherwise the most frequent size of a digest decides.
    sizes = Counter(_digest_sizes(headers))
    if not sizes:
        return None
    ((size, _),) = sizes.most_common(1)
    digest_type = _TYPE_OF_SIZE.get(size)
    return None if digest_type is None else DigestTrial(digest_type, is_verified=False)


class DigestTypes:
    """The digest types of ledgers, each found once, by `find_type` (such as a look-up in metadata)
    or by trying the types on records. `trials` has those found so far, `untold` the ledgers whose
    type is not clear. Memory: a few words a ledger.

    >>> types, coder = DigestTypes(), Coder("CRC32")
    >>> types.payloads(LedgerId(0, 7), coder.encode_many(7, range(2), [b"hello", b"you"]))
    [b'hello', b'you']
    """

    def __init__(self, find_type: Callable[[LedgerId], str | None] = lambda _: None) -> None:
        self._find_type = find_type
        self.trials: dict[LedgerId, DigestTrial] = {}
        self.untold: set[LedgerId] = set()

    def payloads(self, ledger: LedgerId, records: Sequence[bytes]) -> list[bytes]:
        """Return the payloads of a ledger's records, which are in ascending order. While the digest
        type of the ledger is not known, a payload has its digest before it. Raises
        `CorruptionError` as `record_header`."""
        trial = self.trials.get(ledger)
        if trial is None:
            trial = self._find(ledger, records)
        size = 0 if trial is None else trial.digest_size
        return [record[record_header(record).size + size :] for record in records]

    def _find(self, ledger: LedgerId, records: Sequence[bytes]) -> DigestTrial | None:
        """Return the digest type of a ledger from `find_type`, else by a trial of these records. A
        type that was found is kept; otherwise the next records, which may be undamaged, are tried.
        """
        # A ledger in `untold` had a trial before, which means that `find_type` knows no type of it.
        known = None if ledger in self.untold else self._find_type(ledger)
        trial = (
            find_digest_type(records) if known is None else DigestTrial(known, is_verified=False)
        )
        if trial is None:
            self.untold.add(ledger)
            return None
        self.untold.discard(ledger)
        self.trials[ledger] = trial
        return trial


def _verifies_hmac(record: bytes, password: bytes | str) -> bool:
    """Return whether the record's digest is that of HMAC with this password."""
    with suppress(CorruptionError):
        Coder("HMAC", password).decode(record)
        return True
    return False


def _readable_headers(records: Iterable[bytes]) -> Iterator[tuple[RecordHeader, int]]:
    """Yield (header, size of the record) of those whose header can be read."""
    for record in records:
        with suppress(CorruptionError):
            yield record_header(record), len(record)


def _digest_sizes(headers: list[tuple[RecordHeader, int]]) -> Iterator[int]:
    """Yield the size of the digest of each record for which it can be computed, given headers and
    sizes of records. A header has the payload bytes of the ledger up to its entry, so the size of a
    payload is known if the entry before it, or none, is there."""
    previous: RecordHeader | None = None
    for header, size in headers:
        length_before = None
        if header.entry_id == 0:
            length_before = 0
        elif previous is not None and previous.entry_id == header.entry_id - 1:
            length_before = previous.length
        if length_before is not None:
            yield size - header.size - (header.length - length_before)
        previous = header
