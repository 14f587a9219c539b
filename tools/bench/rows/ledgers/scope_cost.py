"""Row: what a ledger scope costs in journal, entry log and index of a ledger storage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from bkstore.ids import LedgerId
from bkstore.index.rocks import RocksIndex
from bkstore.storage.journal.writer import JournalWriter
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.storage.options import Storage
from tools.bench.inputs.entry_ids import SCOPE_0, SCOPED, new_directory
from tools.bench.inputs.records import STORAGES, empty_storage, records_of, remove_storage
from tools.bench.measure import Case, Context, Fact, Figures, Row, Side

_HELD, ASKED, PAYLOAD = 20_000, 1000, 100


@contextmanager
def _scopes(context: Context) -> Iterator[Iterator[Case | Figures]]:
    yield _cases(context)


def _cases(context: Context) -> Iterator[Case | Figures]:
    held = context.scaled(_HELD)
    records = {name: records_of(context, held, PAYLOAD, name) for name in (SCOPE_0, SCOPED)}
    for storage in STORAGES:
        yield _adding(context, storage, records)
        with ExitStack() as stack:
            opened = {name: _filled(context, storage, name, records, stack) for name in records}
            yield _reading(storage, opened, range(min(ASKED, held)))
    shape = f"{held} entries of {PAYLOAD} bytes"
    yield Figures("bytes an entry", held, shape, lambda: _more_bytes(context, records))


def _filled(
    context: Context,
    storage: Storage,
    name: LedgerId,
    records: dict[LedgerId, list[bytes]],
    stack: ExitStack,
) -> LedgerStorage:
    opened = empty_storage(context, storage, name)
    stack.callback(remove_storage, opened)
    opened.add_entries(records[name])
    opened.flush()
    return opened


def _adding(context: Context, storage: Storage, records: dict[LedgerId, list[bytes]]) -> Case:
    def side(name: LedgerId) -> Side:
        def run(opened: LedgerStorage) -> None:
            opened.add_entries(records[name])
            opened.flush()

        label = f"add_entries, flush, {_label(name)}"
        return Side(label, run, lambda: empty_storage(context, storage, name), remove_storage)

    count = len(records[SCOPE_0])
    shape = f"{count} entries of {PAYLOAD} bytes"
    return Case(f"add, {storage}", count, shape, side(SCOPE_0), (side(SCOPED),))


def _reading(storage: Storage, opened: dict[LedgerId, LedgerStorage], asked: range) -> Case:
    def side(name: LedgerId) -> Side:
        read = opened[name].read_entry
        run: Callable[[], object] = lambda: [read(name, entry) for entry in asked]  # noqa: E731
        return Side(f"read_entry, {_label(name)}", run)

    shape = f"{len(asked)} entries of {PAYLOAD} bytes, flushed"
    return Case(f"read, {storage}", len(asked), shape, side(SCOPE_0), (side(SCOPED),))


def _label(name: LedgerId) -> str:
    return "scoped" if name.scope else "scope 0"


def _more_bytes(context: Context, records: dict[LedgerId, list[bytes]]) -> list[Fact]:
    """Return how many bytes more a scoped entry takes, by the files that were written."""
    logs, journals, keys = {}, {}, {}
    for name, found in records.items():
        with ExitStack() as stack:
            opened = _filled(context, "db", name, records, stack)
            logger = opened.paths[0].logger
            logs[name] = logger.path(logger.log_ids[0]).stat().st_size
            index = opened.paths[0].index
            assert isinstance(index, RocksIndex)
            keys[name] = len(index._open["locations", bool(name.scope)].ends()[0][0])
        with JournalWriter(new_directory(context)) as journal:
            before = journal.position.position
            journals[name] = journal.append_many(found).position - before
    count = len(records[SCOPE_0])
    return [
        Fact("entry log, bytes an entry, scope 0", round(logs[SCOPE_0] / count, 2)),
        _more("entry log, bytes an entry, more for a scope", logs, count, 9),
        _more("journal, bytes an entry, more for a scope", journals, count, 9),
        _more("index key, bytes, more for a scope", keys, 1, 8),
    ]


def _more(what: str, found: dict[LedgerId, int], count: int, wanted: int) -> Fact:
    more = (found[SCOPED] - found[SCOPE_0]) / count
    return Fact(what, more, str(wanted), more == wanted)


ROWS = (
    Row(
        "ledger-scope",
        "a ledger of another scope: adding, reading, bytes (informative)",
        "The same entries of a ledger of scope 0 beside those of a scoped one, each in a storage "
        "of its own: the ratio tells how much longer the scoped one takes. Bytes: by the sizes of "
        "the entry logs, the journal's positions and the keys in the index.",
        _scopes,
    ),
)
