"""Rescued ledgers as the directories of a new set of bookies, on which a real cluster starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.os_errors import convert_write_errors
from bkstore.formats import cookie as cookie_format
from bkstore.formats.cookie import Cookie
from bkstore.formats.entry import RecordBatch, master_key
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.rescue.ledger_plans import LedgerPlan
from bkstore.rescue.outputs.folders import write_metadata
from bkstore.rescue.outputs.placement import (
    folder_names,
    old_bookies,
    place_on,
    rows_of_bookies,
)
from bkstore.rescue.rescue_job import RescueJob, RescueOutput, closed_metadata
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.storage.options import StorageKind, StorageOptions

_ALL_WRITE_CACHES = 256 << 20
_MIN_WRITE_CACHE = 4 << 20
_MAX_IDX_ENTRY = (1 << 30) - 1
"""The highest entry that index files hold."""

_UNKNOWN_KEY = bytes(20)
"""An unknown master key: a bookie replaces it by the first one that a client sends."""


class BookieDirectoriesOutput(RescueOutput):
    """A folder for each bookie in `folder`, with `ledgers` and `journal`; ``metadata.json`` beside
    them has the ledgers' metadata with passwords.

    `out` is the path that `folder` gets when the rescue is complete: cookies name the directories
    by it. `bookies`
    are the ids of the new bookies; None places each ledger as it was. `storage` is that of all
    bookies; None keeps that of each old bookie's disk. `instance_id` is the cluster's, None takes
    that of the old cookies. Each entry is written to its whole write set; ledgers that were not
    closed, or fenced on any disk, are fenced. Memory: 256 MiB of write caches.
    """

    def __init__(
        self,
        folder: Path,
        out: Path,
        *,
        bookies: Sequence[str] | None = None,
        storage: StorageKind | None = None,
        instance_id: str | None = None,
        files: Files = OS_FILES,
    ) -> None:
        self._folder = folder
        self._out = out
        self._given_bookies = bookies
        self._storage = storage
        self._files = files
        self._stack = ExitStack()
        self._storages: dict[str, LedgerStorage] = {}
        self.instance_id = instance_id
        self.cookies: dict[str, Cookie] = {}
        """The new bookies' cookies, after `begin`."""
        self.ledgers: dict[LedgerId, LedgerMetadata] = {}
        """The metadata of all ledgers in their new places, after `finish`."""

    @property
    def description(self) -> str:
        """See `RescueOutput`."""
        bookies = None if self._given_bookies is None else tuple(self._given_bookies)
        return repr(("bookies", str(self._out), bookies, self._storage, self.instance_id))

    def begin(self, job: RescueJob, state: Any = None) -> None:
        """Open a storage for each bookie, and create all ledgers in it. A storage that a killed
        process leaves has all that was flushed, and perhaps more: that is written once more."""
        self._job = job
        self._keys = job.master_keys
        self._placed = {
            ledger_id: self._place(closed_metadata(plan, 0))
            for ledger_id, plan in job.plans.items()
        }
        bookies = list(self._given_bookies or old_bookies(self._placed.values()))
        names = folder_names(bookies)
        kinds = self._choose_storages(bookies)
        if self.instance_id is None:
            self.instance_id = _old_instance_id(job)
        write_cache = max(_ALL_WRITE_CACHES // max(len(bookies), 1), _MIN_WRITE_CACHE)
        options = StorageOptions(write_cache=write_cache, max_entry_size=(1 << 31) - 1)
        for bookie in bookies:
            root, out = self._folder / names[bookie], self._out / names[bookie]
            self.cookies[bookie] = Cookie(
                cookie_format.NEWEST_VERSION,
                bookie,
                journal_dirs=(str(out / "journal"),),
                ledger_dirs=(str(out / "ledgers"),),
                instance_id=self.instance_id,
            )
            storage = LedgerStorage.open(
                root / "ledgers", kinds[bookie], options=options, files=self._files
            )
            self._storages[bookie] = self._stack.enter_context(storage)
            self._write_cookie(root, self.cookies[bookie])
        for ledger_id, metadata in self._placed.items():
            for bookie in sorted(metadata.bookies):
                self._storages[bookie].set_master_key(ledger_id, self._key_of(ledger_id))

    def _place(self, metadata: LedgerMetadata) -> LedgerMetadata:
        if self._given_bookies is None:
            return metadata
        return place_on(metadata, self._given_bookies)

    def _choose_storages(self, bookies: Sequence[str]) -> Mapping[str, StorageKind]:
        """Return the storage of each bookie: as given, else that of its disk, or of most disks."""
        old_kinds: dict[str, StorageKind] = {
            source.bookie_id: "db" if source.directory.layout == "rocksdb" else "sorted"
            for source in self._job.bookies
            if source.directory is not None
        }
        most_common = Counter(old_kinds.values()).most_common(1)
        default: StorageKind = most_common[0][0] if most_common else "sorted"
        kinds = {bookie: self._storage or old_kinds.get(bookie, default) for bookie in bookies}
        highest_entry = max((plan.last_entry for plan in self._job.plans.values()), default=-1)
        if highest_entry > _MAX_IDX_ENTRY:
            kinds = dict.fromkeys(kinds, "db")  # index files cannot hold such entries
        return kinds

    def _write_cookie(self, root: Path, cookie: Cookie) -> None:
        data = cookie_format.encode(cookie)
        for role in ("ledgers", "journal"):
            current = root / role / "current"
            with convert_write_errors(current):
                self._files.makedirs(current)
                self._files.write_file(current / cookie_format.FILE_NAME, data)

    def _key_of(self, ledger_id: LedgerId) -> bytes:
        """Return a ledger's master key: by its password, else as the old disks have it."""
        password = self._job.secrets.secret_of(ledger_id).password
        if password is not None:
            return master_key(password)
        return self._keys.get(ledger_id, _UNKNOWN_KEY)

    def add(self, plan: LedgerPlan, records: RecordBatch) -> None:
        """Write each record to the bookies of its write set."""
        ledger_id = plan.metadata.ledger
        key = self._key_of(ledger_id)
        for bookie, rows in rows_of_bookies(self._placed[ledger_id], records.entries):
            share = records.take(rows).framed()
            self._storages[bookie].add_batch(share, master_key=key, recovery=True)

    def checkpoint(self) -> Any:
        """Flush all storages."""
        for storage in self._storages.values():
            storage.flush()
        return {}

    def finish(self, ledgers: dict[LedgerId, LedgerMetadata]) -> None:
        """Fence ledgers, flush and close all bookies, and write the metadata."""
        fenced = self._job.fenced_ledgers
        self.ledgers = {
            ledger_id: replace(self._placed[ledger_id], length=metadata.length)
            for ledger_id, metadata in ledgers.items()
        }
        for ledger_id, metadata in self._placed.items():
            if ledger_id in fenced:
                for bookie in sorted(metadata.bookies):
                    self._storages[bookie].fence(ledger_id)
        self._stack.close()
        write_metadata(self._folder, self.ledgers, self._files)

    def close(self) -> None:
        """Close the storages; after an error they are not flushed."""
        for storage in self._storages.values():
            storage.close(flush=False)


def _old_instance_id(job: RescueJob) -> str | None:
    """Return the instance id that the old cookies have, None if they have none, or several."""
    folders = [source.directory.folders for source in job.bookies if source.directory is not None]
    instance_ids = {each.cookie.instance_id for each in folders if each.cookie is not None}
    return instance_ids.pop() if len(instance_ids) == 1 else None
