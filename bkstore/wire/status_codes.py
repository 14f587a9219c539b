"""Status codes of both protocols, and the bkstore error of each.

Sources: `BookieProtocol` (v2), `StatusCode` of `BookkeeperProtocol.proto` (v3). Do not renumber.
"""

from __future__ import annotations

import enum

from bkstore.errors import (
    BkstoreError,
    CorruptionError,
    DataUnknown,
    IllegalOperation,
    InvalidArgument,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedger,
    ReadFailed,
    ReadOnlyError,
    TooManyRequests,
    UnauthorizedAccess,
    UnsupportedLayout,
)
from bkstore.files.os_errors import is_transient


class Status(enum.Enum):
    """A status code: its number in v2 and in v3, and the error that a client raises for it.

    >>> Status.EFENCED.v2, Status.EFENCED.v3, Status.EFENCED.error.__name__
    (104, 504, 'LedgerFenced')
    """

    EOK = (0, 0, None)
    ENOLEDGER = (1, 402, NoSuchLedger)
    ENOENTRY = (2, 403, NoSuchEntry)
    EBADREQ = (100, 404, IllegalOperation)
    EIO = (101, 501, CorruptionError)
    EUA = (102, 502, UnauthorizedAccess)
    EBADVERSION = (103, 503, UnsupportedLayout)
    EFENCED = (104, 504, LedgerFenced)
    EREADONLY = (105, 505, ReadOnlyError)
    ETOOMANYREQUESTS = (106, 506, TooManyRequests)
    EUNKNOWNLEDGERSTATE = (107, 507, DataUnknown)

    def __init__(self, v2: int, v3: int, error: type[BkstoreError] | None) -> None:
        self.v2 = v2
        self.v3 = v3
        self.error = error

    @classmethod
    def from_v2(cls, code: int, offset: int | None = None) -> Status:
        """Return the status of a v2 code. Raises `CorruptionError` at `offset` if it is unknown."""
        status = _BY_V2_CODE.get(code)
        if status is None:
            raise CorruptionError(None, offset, f"{code} is not a status code of v2")
        return status

    @classmethod
    def from_v3(cls, code: int) -> Status:
        """Return the status of a v3 code. Raises `CorruptionError` if it is unknown."""
        status = _BY_V3_CODE.get(code)
        if status is None:
            raise CorruptionError(None, None, f"{code} is not a status code of v3")
        return status

    def raise_if_error(self, context: str) -> None:
        """Raise the error of this status, as the answer to `context`; do nothing for EOK.

        >>> Status.ENOENTRY.raise_if_error("entry 3 of ledger 7")
        Traceback (most recent call last):
        bkstore.errors.NoSuchEntry: entry 3 of ledger 7: the bookie answered ENOENTRY
        """
        text = f"{context}: the bookie answered {self.name}"
        if self.error is CorruptionError:
            raise CorruptionError(None, None, text)
        if self.error is not None:
            raise self.error(text)


_BY_V2_CODE = {status.v2: status for status in Status}
_BY_V3_CODE = {status.v3: status for status in Status}


def status_for_error(error: BkstoreError | OSError) -> Status:
    """Return the status that a bookie answers when a request raised `error`.

    That is the one for which a client raises the same error; EBADREQ for `InvalidArgument`;
    ETOOMANYREQUESTS for a read that lacks a descriptor or memory, as EIO means damage; else EIO.

    >>> status_for_error(NoSuchLedger("ledger 7")).name
    'ENOLEDGER'
    """
    if isinstance(error, InvalidArgument):
        return Status.EBADREQ
    if isinstance(error, ReadFailed) and is_transient(error):
        return Status.ETOOMANYREQUESTS
    for status in Status:
        if status.error is not None and isinstance(error, status.error):
            return status
    return Status.EIO
