"""The state that a MANIFEST describes: the sum of its edits, in order.

An edit of an atomic group counts when the last of the group was read; a group that the file does
not complete is dropped, as by RocksDB. Source: `db/version_builder.cc` and
`db/version_edit_handler.cc` of RocksDB.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from bkstore.errors import CorruptionError
from bkstore.formats.rocksdb.manifest.table_file import TableFileMetadata
from bkstore.formats.rocksdb.manifest.version_edit import VersionEdit


@dataclass(slots=True)
class Version:
    """The live files of a database, and its counters.

    `tables` are the live table files by number, `all_tables` the numbers of those that are or ever
    were live in this manifest. Rows of write-ahead logs with numbers below `log_number` are all in
    tables. `last_sequence` is the sequence number of the last write that is in a table.
    `tracked_logs` are the numbers of the write-ahead logs that must exist, if the database was
    written with `track_and_verify_wals_in_manifest`.

    >>> version = Version()
    >>> version.apply(VersionEdit(log_number=8, last_sequence=50))
    >>> version.log_number, version.last_sequence, list(version.tables)
    (8, 50, [])
    """

    tables: dict[int, TableFileMetadata] = field(default_factory=dict)
    all_tables: set[int] = field(default_factory=set)
    identity: str = ""
    comparator: str = ""
    log_number: int = 0
    min_log_number: int = 0
    next_file_number: int = 0
    last_sequence: int = 0
    tracked_logs: set[int] = field(default_factory=set)
    _group: list[VersionEdit] = field(default_factory=list)

    def apply(self, edit: VersionEdit) -> None:
        """Apply an edit. Edits of an atomic group are kept until the last one, and then applied
        together. Raises `CorruptionError`, without file and offset, for an edit that contradicts
        those before it."""
        if edit.edits_left_in_group is None:
            if self._group:
                raise CorruptionError(None, None, "an edit inside an atomic group of others")
            self._apply(edit)
            return
        if self._group and edit.edits_left_in_group != self._edits_left() - 1:
            raise CorruptionError(None, None, "an edit of an atomic group is missing")
        self._group.append(edit)
        if edit.edits_left_in_group == 0:
            group, self._group = self._group, []
            for grouped_edit in group:
                self._apply(grouped_edit)

    def _edits_left(self) -> int:
        return self._group[-1].edits_left_in_group or 0

    def _apply(self, edit: VersionEdit) -> None:
        """Apply one edit of the manifest: first the tables that it removes, then those that it
        adds, then its fields. A field that it does not have stays; counters never decrease."""
        for level, number in edit.removed:
            table = self.tables.pop(number, None)
            if table is None or table.level != level:
                reason = f"removes table file {number} from level {level}, where it is not"
                raise CorruptionError(None, None, reason)
        for table in edit.added:
            if table.number in self.tables:
                raise CorruptionError(None, None, f"adds table file {table.number} again")
            self.tables[table.number] = table
            self.all_tables.add(table.number)
        self.identity = edit.identity or self.identity
        self.comparator = edit.comparator or self.comparator
        self.log_number = max(self.log_number, edit.log_number or 0)
        self.min_log_number = max(self.min_log_number, edit.min_log_number or 0)
        self.next_file_number = max(self.next_file_number, edit.next_file_number or 0)
        self.last_sequence = max(self.last_sequence, edit.last_sequence or 0)
        self.apply_tracking(edit)

    def apply_tracking(self, edit: VersionEdit) -> None:
        """Add or remove the tracked logs of an edit. Such edits concern all column families."""
        if edit.tracked_log is not None:
            self.tracked_logs.add(edit.tracked_log)
        if edit.untracked_before is not None:
            before = edit.untracked_before
            self.tracked_logs = {number for number in self.tracked_logs if number >= before}

    def levels(self) -> dict[int, list[TableFileMetadata]]:
        """Return the live table files by level. Files of level 0 may overlap and are sorted newest
        first, as a reader asks them; those of any other level by their smallest keys. Levels
        without files are left out."""
        by_level: dict[int, list[TableFileMetadata]] = {}
        for table in self.tables.values():
            by_level.setdefault(table.level, []).append(table)
        for level, tables in by_level.items():
            if level == 0:
                tables.sort(key=lambda table: (table.epoch_number, table.number), reverse=True)
            else:
                tables.sort(key=lambda table: (table.smallest_key, table.number))
        return dict(sorted(by_level.items()))


def sum_edits(edits: Iterable[VersionEdit]) -> Version:
    """Return the version that the edits add up to."""
    version = Version()
    for edit in edits:
        version.apply(edit)
    return version
