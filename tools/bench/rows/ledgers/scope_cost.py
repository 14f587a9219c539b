"""Row: the cost of a ledger scope in journal, entry log and index of a ledger storage."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from bkstore.ids import LedgerId
from bkstore.index.rocks import RocksIndex
from bkstore.storage.journal.writer import JournalWriter
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.storage.options import StorageKind
from tools.bench.cases import BenchmarkRow, Case, Cases, Context, Fact, FactCase, TimedSide
from tools.bench.inputs.entry_ids import SCOPE_0, SCOPED, new_directory
from tools.bench.inputs.records import STORAGES, empty_storage, records_of, remove_storage

_ENTRY_COUNT, READ_COUNT, PAYLOAD = 20_000, 1000, 100


Records = dict[LedgerId, list[bytes]]
"""The records of each ledger."""


def _scope_cases(context: Context) -> Cases:
    count = context.scaled(_ENTRY_COUNT)
    records = {ledger: records_of(context, count, PAYLOAD, ledger) for ledger in (SCOPE_0, SCOPED)}
    for storage in STORAGES:
        yield _add_case(context, storage, records)
        with ExitStack() as stack:
            storages = {
                ledger_id: _fill_storage(context, storage, ledger_id, records, stack)
                for ledger_id in records
            }
            yield _read_case(storage, storages, range(min(READ_COUNT, count)))
    shape = f"{count} entries of {PAYLOAD} bytes"
    yield FactCase("bytes an entry", count, shape, lambda: _byte_facts(context, records))


def _fill_storage(
    context: Context, storage: StorageKind, ledger_id: LedgerId, records: Records, stack: ExitStack
) -> LedgerStorage:
    ledger_storage = empty_storage(context, storage, ledger_id)
    stack.callback(remove_storage, ledger_storage)
    ledger_storage.add_entries(records[ledger_id])
    ledger_storage.flush()
    return ledger_storage


def _add_case(context: Context, storage: StorageKind, records: Records) -> Case:
    def side(ledger_id: LedgerId) -> TimedSide:
        def run(ledger_storage: LedgerStorage) -> None:
            ledger_storage.add_entries(records[ledger_id])
            ledger_storage.flush()

        label = f"add_entries, flush, {_scope_label(ledger_id)}"
        set_up = partial(empty_storage, context, storage, ledger_id)
        return TimedSide(label, run, set_up, remove_storage)

    count = len(records[SCOPE_0])
    shape = f"{count} entries of {PAYLOAD} bytes"
    return Case(f"add, {storage}", count, shape, side(SCOPE_0), (side(SCOPED),))


def _read_case(kind: StorageKind, storages: dict[LedgerId, LedgerStorage], ids: range) -> Case:
    def side(ledger_id: LedgerId) -> TimedSide:
        read = storages[ledger_id].read_entry
        run: Callable[[], object] = lambda: [read(ledger_id, entry_id) for entry_id in ids]  # noqa: E731
        return TimedSide(f"read_entry, {_scope_label(ledger_id)}", run)

    shape = f"{len(ids)} entries of {PAYLOAD} bytes, flushed"
    return Case(f"read, {kind}", len(ids), shape, side(SCOPE_0), (side(SCOPED),))


def _scope_label(ledger_id: LedgerId) -> str:
    return "scoped" if ledger_id.scope else "scope 0"


def _byte_facts(context: Context, records: Records) -> list[Fact]:
    """Return how many more bytes a scoped entry takes, by the sizes of the written files."""
    log_bytes, journal_bytes, key_bytes = {}, {}, {}
    for ledger_id, ledger_records in records.items():
        with ExitStack() as stack:
            path = _fill_storage(context, "db", ledger_id, records, stack).write_paths[0]
            log_bytes[ledger_id] = path.logger.path(path.logger.log_ids[0]).stat().st_size
            assert isinstance(path.index, RocksIndex)
            database = path.index._databases["locations", bool(ledger_id.scope)]
            first_row, _ = database.end_rows(None)
            key_bytes[ledger_id] = len(first_row[0])
        with JournalWriter(new_directory(context)) as journal:
            start = journal.position.position
            journal_bytes[ledger_id] = journal.append_many(ledger_records).position - start
    count = len(records[SCOPE_0])
    return [
        Fact("entry log, bytes an entry, scope 0", round(log_bytes[SCOPE_0] / count, 2)),
        # A record has a scope and the byte that tells it, a key the scope alone.
        _difference_fact("entry log, bytes an entry", log_bytes, count, target=9),
        _difference_fact("journal, bytes an entry", journal_bytes, count, target=9),
        _difference_fact("index key, bytes", key_bytes, 1, target=8),
    ]


def _difference_fact(label: str, sizes: dict[LedgerId, int], count: int, target: int) -> Fact:
    difference = (sizes[SCOPED] - sizes[SCOPE_0]) / count
    return Fact(f"{label}, more for a scope", difference, str(target), difference == target)


ROWS = (
    BenchmarkRow(
        "ledger-scope",
        "a ledger of another scope: adding, reading, bytes (informative)",
        "The same entries of a ledger of scope 0 beside those of a scoped one, each in a storage "
        "of its own: the ratio tells how much longer the scoped one takes. Bytes: by the sizes of "
        "the entry logs, the journal's positions and the keys in the index.",
        _scope_cases,
    ),
)
