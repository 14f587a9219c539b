"""Every error bkstore raises on purpose, under one base.

Two rules hold everywhere: *not found* (`NoSuchLedger`, `NoSuchEntry`) is never said of bytes
that could not be read, and a `CorruptionError` always names the file, the offset and the reason.
Leaves that match a built-in exception inherit it too, so that ``except ValueError`` works.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from bkstore.counts import in_words


class BkstoreError(Exception):
    """Base of every error that bkstore raises on purpose.

    `stored` is set by adds of many records: how many of them, those before the one that was
    refused, are stored.
    """

    stored: int | None = None


class NoSuchLedger(BkstoreError, LookupError):
    """The ledger is not known here (its index could be read, and says so)."""


class NoSuchEntry(BkstoreError, LookupError):
    """The entry is not stored here (the index could be read, and says so)."""


class CorruptionError(BkstoreError, ValueError):
    """Bytes that cannot be what they should be.

    >>> str(CorruptionError("/b/current/0/7/7.idx", 8, "master key length -3 is negative"))
    '/b/current/0/7/7.idx: offset 8: master key length -3 is negative'
    """

    def __init__(
        self, file: str | os.PathLike[str] | None, offset: int | None, reason: str
    ) -> None:
        self.file = None if file is None else os.fspath(file)
        self.offset = offset
        self.reason = reason
        where = [] if self.file is None else [self.file]
        if offset is not None:
            where.append(f"offset {offset}")
        super().__init__(": ".join([*where, reason]))

    def __reduce__(self) -> tuple[type[CorruptionError], tuple[str | None, int | None, str]]:
        return CorruptionError, (self.file, self.offset, self.reason)

    def within(self, file: str | os.PathLike[str], base: int = 0) -> CorruptionError:
        """Return the same finding, placed in `file` with `base` added to its offset."""
        offset = None if self.offset is None else self.offset + base
        return CorruptionError(file, offset, self.reason)


class DataUnknown(BkstoreError):
    """The ledger is in limbo: what is not here may have been lost, so "no" is no answer."""


class LedgerFenced(BkstoreError):
    """The ledger is fenced: it takes no more adds except recovery adds."""


class UnauthorizedAccess(BkstoreError):
    """The master key given is not the ledger's, or an access list forbids what was asked."""


class ReadOnlyError(BkstoreError):
    """A write was asked of something that was opened for reading."""


class TooManyRequests(BkstoreError):
    """A cache is full and may not be flushed now; nothing was stored, try again later."""


class UnsupportedLayout(BkstoreError):
    """The directory, file version or ability is not one that bkstore (or this backend) has."""


class InvalidArgument(BkstoreError, ValueError):
    """The caller's value is outside what the operation takes."""


class IllegalOperation(BkstoreError):
    """The operation is not allowed in this state or by this protocol."""


class LedgerExists(BkstoreError):
    """A ledger of this id is in the metadata store already; nothing was written."""


class BadVersion(BkstoreError):
    """Another has changed it since it was read; nothing was written, read it again."""


class BookieUnavailable(BkstoreError):
    """No answer came from a bookie: it is down, cut off, or too slow. It says nothing of data."""


class NoListOfEntries(BkstoreError):
    """The bookie is there, and lists no entries, as real ones with db storage; it holds some or
    none, which its directories would tell."""


class MetadataUnavailable(BkstoreError):
    """No answer came from the metadata service in time; whether a change was made is not known."""


class NotEnoughBookies(BkstoreError):
    """There are too few bookies for an ensemble, a quorum or a recovery; nothing was decided."""


class DirectoryInUse(BkstoreError):
    """Another process holds the directory, or its files changed while they were read."""


class SystemRefused(BkstoreError):
    """The machine lacks what a call needs: space, permission, descriptors, memory.

    It says nothing about stored data, so it never becomes a finding: work stops, nothing is
    published, and the same call succeeds once the machine has what it lacked. `file` is the place
    that was refused, `errno` the system's number, None if it gave none.

    >>> str(ReadFailed("/b/current/0.log", OSError(13, "Permission denied")))
    '/b/current/0.log: cannot be read: Permission denied'
    """

    _what = "refused by the system"

    def __init__(self, file: str | os.PathLike[str], error: OSError) -> None:
        self.file = os.fspath(file)
        self.errno = error.errno
        self.reason = str(error.strerror or error)
        super().__init__(f"{self.file}: {self._what}: {self.reason}")

    def __reduce__(self) -> tuple[type[SystemRefused], tuple[str, OSError]]:
        return type(self), (self.file, OSError(self.errno, self.reason))


class ReadFailed(SystemRefused):
    """The system refused a read, for want of permission, descriptors or memory; or a temporary
    file of bkstore's own cannot be read back."""

    _what = "cannot be read"


class WriteFailed(SystemRefused):
    """The system refused a write (a full disk, say); what was stored before is safe."""

    _what = "cannot be written"


class SyncFailed(WriteFailed):
    """The system could not make written data durable, and may have dropped it.

    Asking again proves nothing (the second fsync succeeds over lost pages), so whoever wrote
    takes no more writes: open it again, and let the journal replay.
    """


class LoadFailed(BkstoreError):
    """The ranges of a stream set object could not be loaded; a later look-up tries again."""


class MissingDependency(BkstoreError, ImportError):
    """An optional package is needed; the message has the command that installs it.

    The command names packages of a public index, not bkstore: so it is right for an installation
    from a clone and from a wheel.

    >>> str(MissingDependency.of("pyarrow", "arrow", "Parquet output"))
    "Parquet output needs pyarrow: pip install 'pyarrow>=18'"
    """

    @classmethod
    def of(cls, package: str, extra: str, purpose: str) -> MissingDependency:
        """Return the error for `package`, which comes with `extra` and serves `purpose`."""
        return cls.of_all([(package, extra)], purpose)

    @classmethod
    def of_all(cls, missing: Sequence[tuple[str, str]], purpose: str) -> MissingDependency:
        """Return the error for several packages, each with its extra; one command for all."""
        names = [package for package, _ in missing]
        return cls(f"{purpose} needs {in_words(names)}: {pip_install(missing)}", name=names[0])


def pip_install(missing: Sequence[tuple[str, str]]) -> str:
    """Return the command that installs packages, and what else their extras bring.

    `missing` are packages with the extra of bkstore that each comes with. The versions are those
    of bkstore's metadata; without metadata (a source tree on the path), any.

    >>> pip_install([("duckdb", "local"), ("pyarrow", "arrow")])
    "pip install 'duckdb>=1.4' 'pyarrow>=18'"
    """
    wanted: dict[str, None] = {}
    for package, extra in missing:
        wanted.update(dict.fromkeys(_requirements(extra) or [package]))
    return "pip install " + " ".join(f"'{requirement}'" for requirement in wanted)


def _requirements(extra: str) -> list[str]:
    from importlib import metadata  # loads what reads mail

    try:
        lines = metadata.requires("bkstore") or []
    except metadata.PackageNotFoundError:
        return []
    pairs = (line.partition(";") for line in lines)
    return [
        what.strip()
        for what, _, marker in pairs
        if re.search(f"""extra == ['"]{extra}['"]""", marker)
    ]
