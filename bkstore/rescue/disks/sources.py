"""The bookies whose disks are surveyed, and their files with the numbers that rows refer to."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from bkstore.counts import format_count
from bkstore.errors import (
    BkstoreError,
    CorruptionError,
    DirectoryInUse,
    InvalidArgument,
)
from bkstore.formats.entry import decode_explicit_lac
from bkstore.formats.entrylog import log_name
from bkstore.ids import LedgerId
from bkstore.index.api import Closeable, Finding, IndexBatch, LedgerState
from bkstore.index.damage_runs import add_unreported
from bkstore.offline.spilled_rows.rows_by_log import RowsByLog
from bkstore.rescue.disks.file_survey import SourceFile
from bkstore.rescue.disks.missing_parts import find_missing_parts
from bkstore.rescue.disks.wanted_ledgers import LedgerSecrets
from bkstore.storage.directories.layout import Layout
from bkstore.storage.read_only.bookie_dir import BookieDir

_UNNUMBERED = -1  # a file's number, until `list_files` gives it one


@dataclass
class SourceBookie(Closeable):
    """A bookie's directories, open for reading; `directory` is None if they cannot be read at all.

    `may_hide_records` is True if a part of the bookie is missing or could not be read, so that an
    entry that is not found may have been stored. `states` are the states of wanted ledgers in
    its index.
    """

    bookie_id: str
    path: Path
    directory: BookieDir | None
    findings: list[Finding] = field(default_factory=list)
    may_hide_records: bool = False
    states: dict[LedgerId, LedgerState] = field(default_factory=dict)

    def close(self) -> None:
        """Close the directories."""
        if self.directory is not None:
            self.directory.close()

    def add_damage(self, error: BkstoreError) -> None:
        """Add a finding on something that cannot be read. Raises `SystemRefused`."""
        add_unreported(self.findings, [Finding.of(error)])
        self.may_hide_records = True


def open_source(
    path: str | os.PathLike[str],
    bookie_id: str | None = None,
    *,
    live: bool = False,
    layout: Layout | None = None,
    root: str | os.PathLike[str] | None = None,
) -> SourceBookie:
    """Open a bookie's directories for a rescue; `bookie_id` None takes the cookie's.

    A disk that fails is a finding, and so is a damaged cookie. Raises as `BookieDir` if the path is
    no bookie's, and `InvalidArgument` if neither the argument nor a cookie names the bookie, or
    they differ.
    """
    try:
        directory = BookieDir(path, live=live, layout=layout, root=root, needs_index=False)
    except CorruptionError as error:
        if bookie_id is None:
            raise
        finding = Finding.of(error)
        return SourceBookie(bookie_id, Path(path), None, [finding], may_hide_records=True)
    try:
        cookie = directory.folders.cookie
        cookie_id = None if cookie is None else cookie.bookie_id
        if bookie_id is None and cookie_id is None:
            reason = f"no cookie identifies the bookie: give BOOKIE={path}"
            raise InvalidArgument(f"{path}: {reason}")
        if bookie_id is not None and cookie_id not in (None, bookie_id):
            raise InvalidArgument(f"{path}: according to its cookie this is bookie {cookie_id}")
        findings = list(directory.cookie_damage)
        return SourceBookie(bookie_id or str(cookie_id), Path(path), directory, findings)
    except BaseException:
        directory.close()
        raise


def list_files(
    bookies: Iterable[SourceBookie], secrets: LedgerSecrets, work: Path
) -> tuple[list[SourceFile], list[str]]:
    """Return the files of all bookies, numbered, with the index rows that point into them, and for
    each file what its survey depends on beside its content. Index rows are spilled below `work`.

    Damage of an index is a finding of its bookie. Cost: a pass over each index, 1 us a row.
    """
    files: list[SourceFile] = []
    fingerprints: list[str] = []
    for number, bookie in enumerate(bookies):
        if bookie.directory is None:
            continue
        _add_missing_parts(bookie, bookie.directory)
        rows = RowsByLog(work / f"index-{number}")
        digest = _read_index(bookie, secrets, rows)
        for source in _bookie_files(bookie, number, rows):
            files.append(replace(source, number=len(files)))
            fingerprints.append(digest)
    return files, fingerprints


def _add_missing_parts(bookie: SourceBookie, directory: BookieDir) -> None:
    """Add a finding for each directory and journal of the bookie that is not here."""
    try:
        missing = list(find_missing_parts(directory))
    except CorruptionError as error:
        bookie.add_damage(error)
        return
    add_unreported(bookie.findings, missing)
    bookie.may_hide_records |= bool(missing)


def _read_index(bookie: SourceBookie, secrets: LedgerSecrets, rows: RowsByLog) -> str:
    """Add the index rows of wanted ledgers to `rows`, read their states; return a digest of the
    rows."""
    digest = hashlib.blake2b(digest_size=16)
    findings: list[Finding] = []
    assert bookie.directory is not None
    try:
        for batch in bookie.directory.scan(findings=findings):
            wanted = _wanted_rows(batch, secrets)
            if wanted.entry_id.size:
                rows.add(wanted)
                for column in wanted:
                    digest.update(np.ascontiguousarray(column).data)
        _read_states(bookie, secrets)
    except DirectoryInUse:
        raise
    except BkstoreError as error:
        bookie.add_damage(error)
    rows.finish()
    add_unreported(bookie.findings, findings)
    if any(finding.severity == "damage" for finding in findings):
        bookie.may_hide_records = True
    return digest.hexdigest()


def _wanted_rows(batch: IndexBatch, secrets: LedgerSecrets) -> IndexBatch:
    """Return the rows of a batch whose ledgers are wanted."""
    is_wanted = np.zeros(batch.entry_id.size, np.bool_)
    start = 0
    for ledger_id, entries, _ in batch.by_ledger():
        is_wanted[start : start + entries.size] = ledger_id in secrets.numbers
        start += entries.size
    return batch if is_wanted.all() else IndexBatch(*(column[is_wanted] for column in batch))


def _read_states(bookie: SourceBookie, secrets: LedgerSecrets) -> None:
    """Read the states of wanted ledgers; a state that cannot be read is a finding."""
    assert bookie.directory is not None
    index = bookie.directory.index
    listing = index.list_readable_ledgers()
    add_unreported(bookie.findings, listing.findings)
    for ledger_id in listing.ledgers:
        if ledger_id not in secrets.numbers:
            continue
        try:
            bookie.states[ledger_id] = index.state(ledger_id)
        except CorruptionError as error:
            add_unreported(bookie.findings, [Finding.of(error, ledger_id)])


def _bookie_files(bookie: SourceBookie, number: int, rows: RowsByLog) -> list[SourceFile]:
    """Return a bookie's logs and its journals. Logs that are gone, but have index rows, are among
    them, so that the survey reports the entries of these rows as damaged."""
    assert bookie.directory is not None
    directory, sources = bookie.directory, []
    try:
        logs = directory.entry_logs
    except CorruptionError as error:
        bookie.add_damage(error)
        logs = []
    for log in logs:
        index_rows = (rows.path, rows.segments(log.dir_index, log.log_id))
        source = SourceFile(_UNNUMBERED, number, "log", log.path, log.bytes)
        sources.append(replace(source, index_rows=index_rows) if index_rows[1] else source)
    present_logs = {(log.dir_index, log.log_id) for log in logs}
    for dir_index, log_id in rows.logs():
        if (dir_index, log_id) not in present_logs:
            path = str(directory.folders.ledger[max(dir_index, 0)] / log_name(log_id))
            index_rows = (rows.path, rows.segments(dir_index, log_id))
            sources.append(SourceFile(_UNNUMBERED, number, "log", path, 0, index_rows))
    try:
        sources += [
            SourceFile(_UNNUMBERED, number, "journal", str(journal), _stored_bytes(journal))
            for journal in directory.journals
        ]
    except CorruptionError as error:
        bookie.add_damage(error)
    return sources


def _stored_bytes(path: Path) -> int:
    """Return how many bytes of a file are on the disk: journals end in preallocated holes."""
    try:
        status = path.stat()
    except OSError:  # reading it reports that
        return 0
    return min(status.st_size, 512 * status.st_blocks)


def highest_explicit_lacs(
    bookies: Iterable[SourceBookie], secrets: LedgerSecrets
) -> dict[LedgerId, int]:
    """Return the highest explicit LAC in the indexes, of each ledger that is not closed; those
    whose digest does not match are findings of their bookie."""
    lacs: dict[LedgerId, int] = {}
    for bookie in bookies:
        for ledger_id, state in bookie.states.items():
            if state.explicit_lac is None or ledger_id not in secrets.open_ledgers:
                continue
            secret = secrets.secret_of(ledger_id)
            digest_type = secret.digest_type if secret.is_verifiable else None
            try:
                owner, lac = decode_explicit_lac(state.explicit_lac, digest_type, secret.password)
            except CorruptionError as error:
                bookie.findings.append(Finding.of(error, ledger_id))
                continue
            if owner == ledger_id:
                lacs[ledger_id] = max(lac, lacs.get(ledger_id, -1))
    return lacs


def describe_passed_over(bookies: Iterable[SourceBookie]) -> list[str]:
    """Return a sentence for each bookie that could not be read at all."""
    return [
        f"{bookie.bookie_id}: passed over: {bookie.findings[0].detail} "
        f"({format_count(len(bookie.findings), 'finding')})"
        for bookie in bookies
        if bookie.directory is None
    ]
