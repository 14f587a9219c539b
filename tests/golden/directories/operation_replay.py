"""Replays the operations of a golden tree through `LedgerStorage`, and asks what it then says.

The operations are those that were done to the real storage; the README of the golden data says
what each is, and how the bytes of an entry are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal
from zlib import crc32

from bkstore.errors import DataUnknown, NoSuchEntry, NoSuchLedger
from bkstore.formats.entry import Coder, Entry, record_header
from bkstore.ids import LedgerId
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.storage.ledgers.write_paths.cached import CachedWritePath
from bkstore.storage.options import StorageOptions

Compat = Literal["bookkeeper"] | None
Answers = dict[str, Any]

EXCEPTIONS = {
    NoSuchLedger: "!NoLedgerException",
    NoSuchEntry: "!NoEntryException",
    DataUnknown: "!DataUnknownException",
}


def ids_of(runs: Iterable[list[int]]) -> Iterator[int]:
    """Yield the entry ids of [first, last, step] runs."""
    for first, last, step in runs:
        yield from range(first, last + (1 if step > 0 else -1), step)


def asked(question: Callable[[], Any]) -> Any:
    """Return an answer, or the name of the exception that the real storage would throw."""
    try:
        return question()
    except tuple(EXCEPTIONS) as error:
        return EXCEPTIONS[type(error)]


CODER = Coder("CRC32C", "golden")


class Writer:
    """Makes the records of a golden tree: payload rule, LAC and length as its README says."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._highest: dict[int, int] = {}
        self._length: dict[int, int] = {}

    def record(self, ledger: int, entry: int) -> bytes:
        """Return the next record, which is that of `entry`."""
        lac = self._highest.get(ledger, -1)
        self._highest[ledger] = max(lac, entry)
        length = self._length.get(ledger, 0) + payload_size(ledger, entry)
        self._length[ledger] = length
        return _encoded(self._seed, ledger, entry, lac, length)


@cache
def _encoded(seed: int, ledger: int, entry: int, lac: int, length: int) -> bytes:
    """Return a record; a tree's are asked for by each of its tests."""
    body = payload(ledger, entry, seed, payload_size(ledger, entry))
    return CODER.encode(Entry(ledger, entry, lac, length, body))


def payload_size(ledger: int, entry: int) -> int:
    """Return the size that the payload rule gives an entry."""
    return 20 + (7 * entry + ledger) % 61


def payload(ledger: int, entry: int, seed: int, size: int) -> bytes:
    """Return the bytes that the payload rule gives an entry; they repeat after 256."""
    rule = _RULES[(31 * ledger + 17 * entry + seed) & 0xFF]
    return (rule * (size // 256 + 1))[:size]


_RULES = [bytes((base + 7 * i) & 0xFF for i in range(256)) for base in range(256)]


class Replay:
    """One golden tree done again in `folder`; `run` yields at each snapshot and each probe."""

    def __init__(self, document: dict[str, Any], folder: Path, compat: Compat) -> None:
        self.document = document
        self.options: dict[str, Any] = document["options"]
        self.folder = folder
        self.compat = compat
        self.writer = Writer(document["payload_seed"])
        self.dropped: set[int] = set()
        self.header_version = 0 if "v0_header" in document["tree"] else 1
        self.storage = self._open()

    def _open(self) -> LedgerStorage:
        count = self.options.get("ledger_dirs", 1)
        names = [f"ledgers{n}" for n in range(count)] if count > 1 else ["ledgers"]
        options = StorageOptions(
            entry_log_size=self.options.get("entry_log_size_limit", 1 << 30),
            entry_log_per_ledger=self.options.get("entry_log_per_ledger", False),
            index_header_version=self.header_version,
            choose=lambda directories: 0,
            compat=self.compat,
        )
        return LedgerStorage.open(
            [self.folder / name for name in names], self.document["storage"], options=options
        )

    def run(
        self, before: Callable[[dict[str, Any]], None] = lambda operation: None
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Do the operations; yield ("snapshot" | "probe" | "gc", the operation) on the way.

        `before` is told of each operation before it is done.
        """
        for operation in self.document["operations"]:
            kind = operation["op"]
            before(operation)
            if kind in ("snapshot", "probe"):
                yield kind, operation
            elif kind != "gc_metadata_map":
                getattr(self, f"_do_{kind}")(operation)
            if kind == "gc":
                yield kind, operation
        self.storage.close()

    # -- operations

    def _add(self, ledger: int, entry: int) -> None:
        self.storage.add_entry(self.writer.record(ledger, entry), recovery=True)  # no fence there

    def _do_set_master_key(self, operation: dict[str, Any]) -> None:
        self.storage.set_master_key(operation["ledger"], bytes.fromhex(operation["key_hex"]))

    def _do_add(self, operation: dict[str, Any]) -> None:
        for entry in ids_of(operation["runs"]):
            self._add(operation["ledger"], entry)

    def _do_interleave(self, operation: dict[str, Any]) -> None:
        parts = operation["parts"]
        for entries in zip_longest(*(ids_of(part["runs"]) for part in parts)):
            for part, entry in zip(parts, entries):
                if entry is not None:
                    self._add(part["ledger"], entry)

    def _do_set_fenced(self, operation: dict[str, Any]) -> None:
        assert operation["returned"] == self.storage.fence(operation["ledger"])

    def _do_set_explicit_lac(self, operation: dict[str, Any]) -> None:
        self.storage.set_explicit_lac(operation["ledger"], bytes.fromhex(operation["hex"]))

    def _do_set_limbo_state(self, operation: dict[str, Any]) -> None:
        self.storage.set_limbo(operation["ledger"])

    def _do_clear_limbo_state(self, operation: dict[str, Any]) -> None:
        self.storage.clear_limbo(operation["ledger"])

    def _do_flush(self, operation: dict[str, Any]) -> None:
        self.storage.flush()

    def _do_checkpoint(self, operation: dict[str, Any]) -> None:
        self.storage.checkpoint()

    def _do_memtable_snapshot(self, operation: dict[str, Any]) -> None:
        (path,) = self.storage.write_paths
        assert isinstance(path, CachedWritePath)
        path.take_snapshot()

    def _do_delete_ledger(self, operation: dict[str, Any]) -> None:
        self.storage.delete_ledger(operation["ledger"])

    def _do_drop_from_metadata(self, operation: dict[str, Any]) -> None:
        self.dropped.add(operation["ledger"])

    def _do_gc(self, operation: dict[str, Any]) -> None:
        live = [name for name in self.storage.ledgers() if name.ledger not in self.dropped]
        self.storage.collect_garbage(live, threshold=0.95 if operation["compaction"] else None)
        self.storage.flush()

    def _do_shutdown(self, operation: dict[str, Any]) -> None:
        self.storage.close()

    def _do_reopen(self, operation: dict[str, Any]) -> None:
        self.storage = self._open()

    def _do_config(self, operation: dict[str, Any]) -> None:
        if "file_info_version" in operation:
            self.storage.close()
            self.header_version = operation["file_info_version"]
            self.storage = self._open()

    # -- questions

    def answers(self, ledger: int) -> Answers:
        """Return our answers about one ledger, under the names that a snapshot has."""
        storage = self.storage
        entries = storage.entries(ledger)
        found: Answers = {
            "exists": storage.ledger_exists(ledger),
            "master_key_hex": asked(lambda: storage.master_key(ledger).hex()),
            "fenced": asked(lambda: storage.is_fenced(ledger)),
            "explicit_lac_hex": asked(lambda: _hex(storage.explicit_lac(ledger))),
            "last_add_confirmed": asked(lambda: storage.last_add_confirmed(ledger)),
            "last_entry_id": asked(lambda: record_header(storage.read_entry(ledger)).entry_id),
            "entries": runs_of(entries.tolist()),
            "num_entries": int(entries.size),
        }
        if self.document["storage"] == "db":
            found["limbo"] = asked(lambda: storage.state(ledger).limbo)
        return found

    def flushed(self, ledger: int) -> list[list[int]]:
        """Return what the index alone lists, as runs."""
        paths = self.storage.write_paths
        return runs_of(paths[ledger % len(paths)].index.entries(ledger).tolist())

    def located(self, ledger: int, entry: int) -> list[int]:
        """Return [entry, location, length, crc32] as a snapshot has it."""
        paths = self.storage.write_paths
        location = paths[ledger % len(paths)].get_location(LedgerId(ledger=ledger), entry)
        record = self.storage.read_entry(ledger, entry)
        return [entry, location or 0, len(record), crc32(record)]

    def probe(self, ledger: int, entry: int) -> Answers:
        """Return what a probe asks: one read, and the answers around it."""
        storage = self.storage
        return {
            "result": asked(lambda: len(storage.read_entry(ledger, entry))),
            "limbo": asked(lambda: storage.state(ledger).limbo),
            "entry_exists": asked(lambda: storage.entry_exists(ledger, entry)),
            "fenced": asked(lambda: storage.is_fenced(ledger)),
            "last_add_confirmed": asked(lambda: storage.last_add_confirmed(ledger)),
        }


def _hex(body: bytes | None) -> str | None:
    return None if body is None else body.hex()


def runs_of(ids: list[int]) -> list[list[int]]:
    """Return ascending ids as [first, last] runs."""
    runs: list[list[int]] = []
    for entry in ids:
        if runs and entry == runs[-1][1] + 1:
            runs[-1][1] = entry
        else:
            runs.append([entry, entry])
    return runs


# -- what is right, by the rules alone


@dataclass
class Ledger:
    """What a storage that loses nothing has of one ledger."""

    key: str
    header_version: int = 1
    fenced: bool = False
    limbo: bool = False
    explicit: str | None = None
    lacs: dict[int, int] = field(default_factory=dict)
    unflushed: set[int] = field(default_factory=set)
    confirmed: int = -1


class Model:
    """The same operations, done to dictionaries; nothing is ever lost."""

    def __init__(self, storage: str) -> None:
        self.storage = storage
        self.ledgers: dict[int, Ledger] = {}
        self._highest: dict[int, int] = {}
        self._dropped: set[int] = set()

    def do(self, operation: dict[str, Any], header_version: int) -> None:
        """Do one operation."""
        kind, ledger = operation["op"], operation.get("ledger", -1)
        if kind == "set_master_key":
            key = operation["key_hex"]
            known = self.ledgers.setdefault(ledger, Ledger(key, header_version))
            known.key = known.key if known.key.strip("0") else key
        elif kind == "add":
            for entry in ids_of(operation["runs"]):
                self._add(ledger, entry)
        elif kind == "interleave":
            parts = operation["parts"]
            for entries in zip_longest(*(ids_of(part["runs"]) for part in parts)):
                for part, entry in zip(parts, entries):
                    if entry is not None:
                        self._add(part["ledger"], entry)
        elif kind == "set_fenced":
            self.ledgers[ledger].fenced = True
        elif kind == "set_explicit_lac":
            known = self.ledgers[ledger]
            known.explicit = operation["hex"]
            known.header_version = max(known.header_version, header_version)
            known.confirmed = max(known.confirmed, operation["lac"])
        elif kind in ("set_limbo_state", "clear_limbo_state"):
            self.ledgers[ledger].limbo = kind == "set_limbo_state"
        elif kind == "delete_ledger":
            self.ledgers.pop(ledger, None)
        elif kind == "drop_from_metadata":
            self._dropped.add(ledger)
        elif kind == "gc":
            for gone in self._dropped:
                self.ledgers.pop(gone, None)
        elif kind == "reopen" or "file_info_version" in operation:
            for known in self.ledgers.values():
                if self.storage != "db" and not known.header_version:
                    known.explicit = None
                known.confirmed = self._stored(known)
        if kind in ("flush", "checkpoint", "memtable_snapshot", "gc", "reopen"):
            for known in self.ledgers.values():
                known.unflushed.clear()

    def _add(self, ledger: int, entry: int) -> None:
        lac = self._highest.get(ledger, -1)
        self._highest[ledger] = max(lac, entry)
        known = self.ledgers[ledger]
        known.confirmed = max(known.confirmed, lac)
        if self.storage != "sorted" or entry not in known.unflushed:  # there the first one stays
            known.lacs[entry] = lac
        known.unflushed.add(entry)

    @staticmethod
    def _stored(known: Ledger) -> int:
        """The last entry's LAC field, and the explicit LAC."""
        found = [known.lacs[max(known.lacs)]] if known.lacs else []
        if known.explicit is not None:
            found.append(int(known.explicit[16:32], 16))
        return max(found, default=-1)

    def answers(self, ledger: int) -> Answers:
        """Return the right answers about one ledger."""
        known = self.ledgers.get(ledger)
        no, unknown = EXCEPTIONS[NoSuchLedger], EXCEPTIONS[DataUnknown]
        if known is None:
            keys = ("master_key_hex", "fenced", "explicit_lac_hex", "last_add_confirmed")
            found: Answers = dict.fromkeys((*keys, "last_entry_id"), no)
            found.update(exists=False, entries=[], num_entries=0)
            return found if self.storage != "db" else {**found, "limbo": no}
        last = max(known.lacs, default=EXCEPTIONS[NoSuchEntry])
        found = {
            "exists": True,
            "master_key_hex": known.key,
            "fenced": known.fenced or (unknown if known.limbo else False),
            "explicit_lac_hex": unknown if known.limbo else known.explicit,
            "last_add_confirmed": unknown if known.limbo else known.confirmed,
            "last_entry_id": unknown if known.limbo else last,
            "entries": runs_of(sorted(known.lacs)),
            "num_entries": len(known.lacs),
        }
        return found if self.storage != "db" else {**found, "limbo": known.limbo}
