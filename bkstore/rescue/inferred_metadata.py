"""Ledger metadata inferred from the disks of bookies, if the metadata store is lost too.

The ensemble follows from which bookies hold which entries: with W of E bookies, bookie i has entry
e if ``(i - e) mod E < W``. What no disk shows is assumed, and noted: the ack quorum, and the order
of an ensemble in which every bookie has every entry. Times, custom metadata and passwords are lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bkstore.availability import Availability
from bkstore.counts import format_count
from bkstore.errors import BkstoreError, CorruptionError, DirectoryInUse, SystemRefused
from bkstore.formats.entry import find_digest_type, read_batch_ids, rows_of_ledgers
from bkstore.formats.journal import JournalRecord
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata, Segment
from bkstore.offline.rewrite.recovered_ledger_states import read_source_ledgers
from bkstore.rescue.disks.sources import SourceBookie
from bkstore.rescue.disks.wanted_ledgers import LedgerSecret, WantedLedgers
from bkstore.schedule import expected
from bkstore.storage.entry_log.contents import scan_contents
from bkstore.storage.journal import scan_journal
from bkstore.storage.read_only.bookie_dir import BookieDir

_MAX_MISSING_BOOKIES = 2
_MAX_BACKTRACKED = 12  # bookies of an ensemble
_TRIED_RECORDS = 3

EntriesByBookie = dict[str, Availability]


class EnsembleShape(NamedTuple):
    """An inferred ensemble: bookies by index, and the smallest write quorum that fits."""

    ensemble: tuple[str, ...]
    write_quorum_size: int


@dataclass
class InferredLedgers:
    """The metadata of all ledgers on the disks, and for each what is inferred and what assumed."""

    wanted: WantedLedgers
    notes: dict[LedgerId, str] = field(default_factory=dict)


def infer_metadata(
    bookies: Sequence[SourceBookie], given: LedgerSecret | None = None
) -> InferredLedgers:
    """Return metadata of the ledgers that the bookies know: those in their indexes, those in their
    journals after the last mark, and all in the logs of a bookie whose index is lost.

    Ledgers are OPEN: a rescue ends them where recovery would. `given` has the digest type and
    password to note down. Damage is a finding of its bookie. Cost: a pass over indexes and
    journals, and over the logs of bookies without an index.
    """
    entries_of: dict[LedgerId, EntriesByBookie] = {}
    for bookie in bookies:
        if bookie.directory is not None:
            for ledger_id, entries in _read_entries(bookie, bookie.directory):
                entries_of.setdefault(ledger_id, {})[bookie.bookie_id] = entries
    inferred = InferredLedgers(WantedLedgers({}))
    directories = {each.bookie_id: each.directory for each in bookies}
    for ledger_id in sorted(entries_of):
        held = {bookie: entries for bookie, entries in entries_of[ledger_id].items() if entries}
        if not held:
            continue
        digest_type = _find_digest(ledger_id, held, directories)
        metadata, note = _infer_ledger(ledger_id, held, digest_type, given)
        inferred.wanted.metadata[ledger_id] = metadata
        inferred.notes[ledger_id] = note
    return inferred


def infer_shape(held: Mapping[str, Availability]) -> EnsembleShape | None:
    """Return the ensemble in which each bookie has only entries that it should have, and lacks the
    fewest of these; of equal ones the smallest. None if there is none in which bookies have two
    thirds of what they should, after a change of ensembles for example. Up to two bookies, called
    ``unknown-1`` and so on, may be missing.

    >>> stripes = {f"b{i}": expected(0, 8, i, 3, 2) for i in (2, 0, 1)}
    >>> infer_shape(stripes)
    EnsembleShape(ensemble=('b0', 'b1', 'b2'), write_quorum_size=2)
    """
    union = Availability()
    for entries in held.values():
        union |= entries
    copies, last = sum(map(len, held.values())), union.last_entry
    if last is None or len(held) > _MAX_BACKTRACKED:
        return None
    # Each entry has at most W copies, so W is at least the mean number of copies, rounded up.
    fewest_replicas = -(-copies // len(union))
    best: EnsembleShape | None = None
    fewest_lacking = 0
    for size in range(len(held), len(held) + 1 + _MAX_MISSING_BOOKIES):
        for write in range(fewest_replicas, size + 1):
            # A bookie can be at an index if all entries that it has are expected there.
            expected_entries = [expected(0, last, index, size, write) for index in range(size)]
            choices = {
                bookie: [index for index in range(size) if not entries - expected_entries[index]]
                for bookie, entries in sorted(held.items())
            }
            indexes = next(_assign(choices, frozenset()), None)
            if indexes is not None:
                lacking = sum(len(expected_entries[index]) for index in indexes) - copies
                # The bookies must have two thirds of what is expected: copies / (copies + lacking).
                if 2 * lacking <= copies and (best is None or lacking < fewest_lacking):
                    best, fewest_lacking = EnsembleShape(_name_all(indexes, size), write), lacking
    return best


def _assign(
    choices: Mapping[str, Sequence[int]], taken: frozenset[int]
) -> Iterator[dict[int, str]]:
    """Yield assignments of different indexes to bookies, each one of its choices."""
    if not choices:
        yield {}
        return
    bookie = min(choices, key=lambda each: (len(choices[each]), each))
    others = {each: indexes for each, indexes in choices.items() if each != bookie}
    for index in choices[bookie]:
        if index not in taken:
            for assignment in _assign(others, taken | {index}):
                yield {index: bookie, **assignment}


def _name_all(indexes: Mapping[int, str], size: int) -> tuple[str, ...]:
    missing = [index for index in range(size) if index not in indexes]
    unknown = {index: f"unknown-{number}" for number, index in enumerate(missing, start=1)}
    return tuple(indexes.get(index) or unknown[index] for index in range(size))


def _infer_ledger(
    ledger_id: LedgerId,
    held: Mapping[str, Availability],
    digest_type: str | None,
    given: LedgerSecret | None,
) -> tuple[LedgerMetadata, str]:
    """Return a ledger's metadata, and what of them is inferred."""
    shape = infer_shape(held)
    if shape is None:
        ensemble, write = tuple(sorted(held)), len(held)
        bookies = format_count(len(held), "bookie")
        note = f"no ensemble fits: taken as {bookies} with every entry"
    else:
        ensemble, write = shape
        note = f"ensemble of {len(ensemble)} and write quorum of {write} inferred"
        if write == len(ensemble) > 1:
            note += ", the order of its bookies is unknown"
    ack = write // 2 + 1
    note += f"; ack quorum of {ack} assumed"
    password = None
    if given is not None:
        digest_type, password = digest_type or given.digest_type, given.password
    note += f"; digest {digest_type}" if digest_type else "; digest type unknown"
    metadata = LedgerMetadata(
        ledger_id,
        ensemble_size=len(ensemble),
        write_quorum_size=write,
        ack_quorum_size=ack,
        segments=(Segment(0, ensemble),),
        digest_type=digest_type,
        password=None if digest_type is None else password,
    )
    return metadata, note


# -- reading


def _read_entries(
    bookie: SourceBookie, directory: BookieDir
) -> Iterator[tuple[LedgerId, Availability]]:
    """Yield the ledgers that a bookie knows, with their entries in index, logs and journals."""
    known = read_source_ledgers(directory, bookie.findings)
    entries_of: dict[LedgerId, Availability] = dict.fromkeys(
        [*known.indexed, *known.unreadable], Availability()
    )
    pending = [ledger_id for ledger_id, state in known.journaled.items() if state.pending]
    for ledger_id in pending:
        entries_of.setdefault(ledger_id, Availability())
    unlisted = _add_indexed(bookie, directory, entries_of) if known.has_listing else set()
    if not known.has_listing or known.unknown or unlisted:
        for ledger_id, entries in _read_logs(bookie, directory):
            if not known.has_listing or ledger_id in unlisted or known.is_hidden(ledger_id):
                entries_of[ledger_id] = entries_of.get(ledger_id, Availability()) | entries
    for ledger_id, entries in _read_journals(directory):
        if ledger_id in entries_of or not known.has_listing or known.is_hidden(ledger_id):
            entries_of[ledger_id] = entries_of.get(ledger_id, Availability()) | entries
    yield from entries_of.items()


def _add_indexed(
    bookie: SourceBookie, directory: BookieDir, entries_of: dict[LedgerId, Availability]
) -> set[LedgerId]:
    """Add the entries in a bookie's index to those of its ledgers; return the ledgers whose entries
    it cannot list."""
    errors: dict[LedgerId, BkstoreError] = {}
    listed: set[LedgerId] = set()
    try:
        for ledger_id, entries in directory.index.availability_many(sorted(entries_of), errors):
            entries_of[ledger_id] |= entries
            listed.add(ledger_id)
    except (DirectoryInUse, SystemRefused):
        raise
    except BkstoreError as error:
        bookie.add_damage(error)
        return entries_of.keys() - listed
    for each in errors.values():
        if isinstance(each, (DirectoryInUse, SystemRefused)):
            raise each
    return set(errors)


def _read_logs(
    bookie: SourceBookie, directory: BookieDir
) -> Iterator[tuple[LedgerId, Availability]]:
    for log in directory.entry_logs:
        try:
            contents = scan_contents(log.path)
        except SystemRefused:
            raise
        except BkstoreError as error:
            bookie.add_damage(error)
            continue
        for scope, ledger in contents.ledgers.tolist():
            ledger_id = LedgerId.from_signed(scope, ledger)
            yield ledger_id, contents.entries(ledger_id)


def _read_journals(directory: BookieDir) -> Iterator[tuple[LedgerId, Availability]]:
    """Yield the entries in journals. Damage there is not reported: the survey reads the journals
    again, and reports it."""
    for path in directory.journals:
        try:
            for _, records in scan_journal(path, skip_invalid=True, skip_torn=True).batches():
                if isinstance(records, JournalRecord):
                    continue
                ids = read_batch_ids(records)
                for ledger_id, rows in rows_of_ledgers(ids.scopes, ids.ledgers):
                    yield ledger_id, Availability.from_entries(ids.entries[rows])
        except CorruptionError:
            continue


def _find_digest(
    ledger_id: LedgerId,
    held: Iterable[str],
    directories: Mapping[str, BookieDir | None],
) -> str | None:
    """Return the digest type of a ledger by trial on some records, None if it cannot be told."""
    for bookie in held:
        directory = directories[bookie]
        records: list[bytes] = []
        try:
            assert directory is not None  # it has entries
            entries = directory.index.entries(ledger_id)[:_TRIED_RECORDS]
            records = [directory.read_entry(ledger_id, entry) for entry in entries.tolist()]
        except (DirectoryInUse, SystemRefused):
            raise
        except BkstoreError:
            continue  # the survey reports it; another bookie's records may tell
        trial = find_digest_type(records)
        if trial is not None:
            return trial.digest_type
    return None
