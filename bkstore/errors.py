"""The errors that bkstore raises deliberately, with one base class.

Two rules hold everywhere: *not found* (`NoSuchLedger`, `NoSuchEntry`) is never raised for bytes
that could not be read, and a `CorruptionError` has the file, the offset and the reason. Classes
that match a built-in exception inherit it too, so that ``except ValueError`` works.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from bkstore.counts import join_words


class BkstoreError(Exception):
    """Base of all errors that bkstore raises deliberately. Adds of many records set `stored`: how
    many records before the refused one are stored."""

    stored: int | None = None


class NoSuchLedger(BkstoreError, LookupError):
    """The ledger does not exist here, according to an index that could be read."""


class NoSuchEntry(BkstoreError, LookupError):
    """The entry is not stored here, according to an index that could be read."""


class CorruptionError(BkstoreError, ValueError):
    """Stored bytes are invalid.

    >>> str(CorruptionError("/b/current/0/7/7.idx", 8, "master key length -3 is negative"))
    '/b/current/0/7/7.idx: offset 8: master key length -3 is negative'
    """

    def __init__(
        self, file: str | os.PathLike[str] | None, offset: int | None, reason: str
    ) -> None:
        self.file = None if file is None else os.fspath(file)
        self.offset = offset
        self.reason = reason
        parts = [] if self.file is None else [self.file]
        if offset is not None:
            parts.append(f"offset {offset}")
        super().__init__(": ".join([*parts, reason]))

    def __reduce__(self) -> tuple[type[CorruptionError], tuple[str | None, int | None, str]]:
        return CorruptionError, (self.file, self.offset, self.reason)

    def relocate(self, file: str | os.PathLike[str], base: int = 0) -> CorruptionError:
        """Return the same error for `file`, with `base` added to its offset."""
        offset = None if self.offset is None else self.offset + base
        return CorruptionError(file, offset, self.reason)


class DataUnknown(BkstoreError):
    """The ledger is in limbo: an entry that is not here may be lost, so its absence is unknown."""


class LedgerFenced(BkstoreError):
    """The ledger is fenced: it accepts recovery adds only."""


class UnauthorizedAccess(BkstoreError):
    """The master key is not that of the ledger, or an access list forbids the request."""


class ReadOnlyError(BkstoreError):
    """A write to something that is open for reading only."""


class TooManyRequests(BkstoreError):
    """A cache is full and may not be flushed now. Nothing was stored; try again later."""


class UnsupportedLayout(BkstoreError):
    """bkstore (or this backend) does not support the directory, file version or feature."""


class InvalidArgument(BkstoreError, ValueError):
    """An argument is invalid for the operation."""


class IllegalOperation(BkstoreError):
    """The operation is not allowed in this state or by this protocol."""


class LedgerExists(BkstoreError):
    """The metadata store already has a ledger of this id; nothing was written."""


class BadVersion(BkstoreError):
    """The value was changed by others since it was read. Nothing was written; read it again."""


class BookieUnavailable(BkstoreError):
    """A bookie did not answer: it is down, unreachable or too slow. Its data are unknown."""


class ListingUnsupported(BkstoreError):
    """The bookie answers, but does not list entries, like real ones with db storage."""


class MetadataUnavailable(BkstoreError):
    """The metadata service did not answer in time; whether a change was made is unknown."""


class NotEnoughBookies(BkstoreError):
    """There are too few bookies for an ensemble, a quorum or a recovery; nothing was decided."""


class DirectoryInUse(BkstoreError):
    """Another process has locked the directory, or its files changed while they were read."""


class SystemRefused(BkstoreError):
    """The machine lacks what a call needs: space, permission, descriptors, memory.

    It says nothing about stored data, so it is never a finding: work stops, nothing is published,
    and the same call succeeds once the machine has what it lacked. `file` is the path that was
    refused, `errno` the system's error number, or None.

    >>> str(ReadFailed("/b/current/0.log", OSError(13, "Permission denied")))
    '/b/current/0.log: cannot be read: Permission denied'
    """

    _failure = "refused by the system"

    def __init__(self, file: str | os.PathLike[str], error: OSError) -> None:
        self.file = os.fspath(file)
        self.errno = error.errno
        self.reason = str(error.strerror or error)
        super().__init__(f"{self.file}: {self._failure}: {self.reason}")

    def __reduce__(self) -> tuple[type[SystemRefused], tuple[str, OSError]]:
        return type(self), (self.file, OSError(self.errno, self.reason))


class ReadFailed(SystemRefused):
    """The system refused a read, or a temporary file of bkstore cannot be read back."""

    _failure = "cannot be read"


class WriteFailed(SystemRefused):
    """The system refused a write (a full disk, say); data stored before are safe."""

    _failure = "cannot be written"


class SyncFailed(WriteFailed):
    """The system could not make written data durable, and may have dropped it. A second fsync
    proves nothing: it succeeds after pages were lost. Reopen the writer to replay the journal."""


class LoadFailed(BkstoreError):
    """The ranges of a stream set object could not be loaded; a later look-up tries again."""


class MissingDependency(BkstoreError, ImportError):
    """An optional package is missing; the message has the command that installs it. The command
    names packages of a public index, not bkstore, so it works for a clone and for a wheel.

    >>> str(MissingDependency.of("pyarrow", "arrow", "Parquet output"))
    "Parquet output needs pyarrow: pip install 'pyarrow>=18'"
    """

    @classmethod
    def of(cls, package: str, extra: str, purpose: str) -> MissingDependency:
        """Return the error for `package`, which `extra` installs and `purpose` needs."""
        return cls.of_all([(package, extra)], purpose)

    @classmethod
    def of_all(cls, missing: Sequence[tuple[str, str]], purpose: str) -> MissingDependency:
        """Return the error for several (package, extra) pairs, with one command for all."""
        names = [package for package, _ in missing]
        what = f"{join_words(names)}: {pip_install_command(missing)}"
        return cls(f"{purpose} needs {what}", name=names[0])


def pip_install_command(missing: Sequence[tuple[str, str]]) -> str:
    """Return the command that installs packages, and everything else of their extras. `missing` are
    (package, extra of bkstore) pairs. Versions are those of bkstore's metadata, if it has any.

    >>> pip_install_command([("duckdb", "local"), ("pyarrow", "arrow")])
    "pip install 'duckdb>=1.4' 'pyarrow>=18'"
    """
    requirements: dict[str, None] = {}
    for package, extra in missing:
        requirements.update(dict.fromkeys(_requirements_of_extra(extra) or [package]))
    return "pip install " + " ".join(f"'{requirement}'" for requirement in requirements)


def _requirements_of_extra(extra: str) -> list[str]:
    """Return what pip installs for an extra of bkstore, such as "pyarrow>=18"; nothing if bkstore
    runs from a clone, without package metadata."""
    from importlib import metadata  # imported here, because it imports the email package

    try:
        lines = metadata.requires("bkstore") or []
    except metadata.PackageNotFoundError:
        return []
    # Such as: pyarrow>=18; extra == "arrow"
    pairs = (line.partition(";") for line in lines)
    return [
        requirement.strip()
        for requirement, _, marker in pairs
        if re.search(f"""extra == ['"]{extra}['"]""", marker)
    ]
