"""`Bookie.open` on copies of directories that a real bookie left in a crash.

What it replays is what the real bookie replayed, from intact journals and from damaged ones;
where the real one refused to start, so does this one, naming the file.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from bkstore.errors import CorruptionError, LedgerFenced, UnauthorizedAccess
from bkstore.formats.entry import Coder, Entry, decode, encode, master_key, record_header
from bkstore.storage.bookie import Bookie
from bkstore.storage.journal import list_journal_files, read_last_mark, scan_journal
from bkstore.storage.options import JournalOptions, StorageOptions
from tests.golden.directories.operation_replay import (
    EXCEPTIONS,
    asked,
    payload,
    payload_size,
    runs_of,
)

Golden = tuple[Path, dict[str, Any]]

JOURNALS = JournalOptions(preallocate=0)


def _open(root: Path, storage: str, compat: Any = None, skip_invalid: bool = False) -> Bookie:
    return Bookie.open(
        root,
        storage,  # type: ignore[arg-type]
        options=StorageOptions(compat=compat),
        journal=JournalOptions(preallocate=0, skip_invalid_records=skip_invalid),
    )


def _answers(bookie: Bookie, told: dict[str, Any]) -> dict[str, Any]:
    """Return our answers to what was told of one ledger, under the same names."""
    ledger = told["ledger"]
    entries = bookie.entries(ledger).tolist()
    lac = asked(lambda: bookie.explicit_lac(ledger))
    records = [(entry, bookie.read_entry(ledger, entry)) for entry in entries]
    found = {
        "ledger": ledger,
        "exists": bookie.storage.ledger_exists(ledger),
        "master_key_hex": asked(lambda: bookie.state(ledger).master_key.hex()),
        "fenced": asked(lambda: bookie.is_fenced(ledger)),
        "explicit_lac_hex": lac.hex() if isinstance(lac, bytes) else lac,
        "last_add_confirmed": asked(lambda: bookie.last_add_confirmed(ledger)),
        "last_entry_id": asked(lambda: record_header(bookie.read_entry(ledger)).entry_id),
        "entries": runs_of(entries),
        "records": [[entry, len(record), crc32(record)] for entry, record in records],
    }
    return {key: found[key] for key in found if key in told}


def _expected(told: dict[str, Any], storage: str) -> dict[str, Any]:
    """Return what was told; index files say null of an unknown ledger's explicit LAC."""
    if storage != "db" and not told["exists"]:
        return {**told, "explicit_lac_hex": told["master_key_hex"]}
    return told


def _check(bookie: Bookie, told: list[dict[str, Any]], storage: str) -> None:
    for answer in told:
        found = _answers(bookie, answer)

        assert {k: v for k, v in _expected(answer, storage).items() if k in found} == found
    assert told


def _marks(root: Path, names: list[str]) -> dict[str, list[int]]:
    current = root / "ledgers" / "current"
    found = {}
    for name in names:
        _, _, index = name.partition(".")
        found[name] = list(read_last_mark([current], int(index) if index else None))
    return found


def _copy_sparse(source: str, target: str) -> str:
    """Copy a file's data, leaving its holes: one index file here is of 64 GiB, nearly all hole."""
    with open(source, "rb") as file, open(target, "wb") as copy:
        size, at = os.fstat(file.fileno()).st_size, 0
        while at < size:
            try:
                start = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:  # no data behind
                break
            at = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            file.seek(start)
            copy.seek(start)
            copy.write(file.read(at - start))
        copy.truncate(size)
    return target


def _copy(journal: Golden, tmp_path: Path, name: str = "copy") -> Path:
    return Path(shutil.copytree(journal[0], tmp_path / name))


def test_replay(journal: Golden, tmp_path: Path) -> None:
    """A copy opens with the real replay's ledgers, entries, bytes and marks."""
    document = journal[1]
    root = _copy(journal, tmp_path)
    with _open(root, document["storage"], "bookkeeper") as bookie:
        replayed = document["replay"]

        assert replayed["last_mark_after"] == _marks(root, list(document["last_mark"]))
        _check(bookie, replayed["ledgers"], document["storage"])
        assert bookie.unclean
        assert [] == bookie.findings


def test_nothing_that_the_live_bookie_had_is_lost(journal: Golden, tmp_path: Path) -> None:
    """By default a copy opens with all that the running bookie answered before the crash."""
    document = journal[1]
    kept = ("exists", "master_key_hex", "fenced", "last_entry_id", "entries", "records")
    if document["journal_format_version"] >= 6:
        kept = (*kept, "explicit_lac_hex")
    with _open(_copy(journal, tmp_path), document["storage"]) as bookie:
        for told in document["live_before_crash"]["ledgers"]:
            found = _answers(bookie, told)

            assert told["exists"] == found["exists"]
            if told["exists"]:
                assert {k: told[k] for k in kept if k in told} == {
                    k: found[k] for k in kept if k in found
                }
                if "explicit_lac_hex" not in kept:  # no version before 6 has a record for them
                    assert found["explicit_lac_hex"] is None


def _damage(root: Path, variant: dict[str, Any]) -> None:
    """Do to a copy what was done to the real directory."""
    current = root / "ledgers" / "current"
    journals = sorted(root.glob("journal*/current/*.txn"))
    if "file" in variant:
        path, start, end = root / variant["file"], variant["from"], variant["to"]
        data = bytearray(path.read_bytes())
        if variant["edit"] == "truncate":
            del data[start:]
        else:
            value = {"zero": 0, "write_ff_at": 0xFF, "write_01_at": 1}[variant["edit"]]
            data[start:end] = bytes([value]) * (end - start)
        path.write_bytes(data)
    elif variant["name"] == "marked_file_missing":
        for mark in current.glob("lastMark*"):
            number = int.from_bytes(mark.read_bytes()[:8], "big")
            for path in journals:
                if int(path.stem, 16) == number:
                    path.unlink(missing_ok=True)
    elif variant["name"] == "last_mark_zero":
        for mark in current.glob("lastMark*"):
            mark.write_bytes(bytes(16))
    elif variant["name"] in ("no_last_mark", "journal_empty"):
        for mark in current.glob("lastMark*"):
            mark.unlink()
        for path in journals if variant["name"] == "journal_empty" else []:
            path.unlink()
    else:
        pytest.fail(f"unknown variant {variant['name']}")


def _known(variants: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [v for v in variants if not v["name"].startswith("explicit_lac_in_version_")]


def test_damaged_directories(journal: Golden, tmp_path: Path) -> None:
    """Each damaged variant opens with the real bookie's answers, or is refused as it was."""
    document = journal[1]
    storage, names = document["storage"], list(document["last_mark"])
    for variant in _known(document["variants"]):
        root = _copy(journal, tmp_path, variant["name"])
        _damage(root, variant)
        skip = variant.get("skip_replay_journal_invalid_record", False)
        if not variant["started"]:
            with pytest.raises(CorruptionError, match=r"\.txn: "):
                _open(root, storage, "bookkeeper", skip)

            assert variant["last_mark_after"] == _marks(root, names), variant["name"]
            continue
        differ = {t["ledger"]: t for t in variant["ledgers_that_differ_from_replay"]}
        told = [differ.get(t["ledger"], t) for t in document["replay"]["ledgers"]]
        with _open(root, storage, "bookkeeper", skip) as bookie:
            assert variant["last_mark_after"] == _marks(root, names), variant["name"]
            _check(bookie, [_without(t, variant["name"], storage) for t in told], storage)


def _without(told: dict[str, Any], variant: str, storage: str) -> dict[str, Any]:
    """Leave out what was not told of variants: records; and one oddity, see `docs/parity.md`.

    A key record replayed for a ledger that has an index file: an explicit LAC behind it is
    overwritten by the file's header when that is first read, and so is lost.
    """
    left = {"records"}
    if storage != "db" and variant in ("no_last_mark", "last_mark_zero"):
        left |= {"explicit_lac_hex"} if told["explicit_lac_hex"] is None else set()
    return {key: told[key] for key in told if key not in left}


def test_refused_directories_stay_as_they_are(journal: Golden, tmp_path: Path) -> None:
    """A start that is refused loses nothing: with the damage undone, everything is there."""
    document = journal[1]
    (variant,) = [v for v in document["variants"] if v["name"] == "negative_length"]
    root = _copy(journal, tmp_path)
    whole = (root / variant["file"]).read_bytes()
    _damage(root, variant)
    for _ in range(2):
        with pytest.raises(CorruptionError, match=Path(variant["file"]).name):
            _open(root, document["storage"])
    (root / variant["file"]).write_bytes(whole)
    with _open(root, document["storage"]) as bookie:
        for told in document["replay"]["ledgers"]:
            assert told["entries"] == runs_of(bookie.entries(told["ledger"]).tolist())


def test_a_copy_goes_on(journal: Golden, tmp_path: Path) -> None:
    """An opened copy takes entries, and has them with the old ones after another crash."""
    document = journal[1]
    root = _copy(journal, tmp_path)
    key = master_key("golden")
    with _open(root, document["storage"]) as bookie:
        last = bookie.last_entry(2001)
        added = encode(Entry(2001, 43, 42, 1, b"x"), "CRC32C", "golden")
        bookie.add_entry(added, key)
        crashed = shutil.copytree(root, tmp_path / "crashed", copy_function=_copy_sparse)
    with _open(crashed, document["storage"]) as again:
        assert 42 == last
        assert 43 == again.last_entry(2001)
        assert b"x" == decode(again.read_entry(2001, 43), "CRC32C", "golden").payload
        with pytest.raises(tuple(EXCEPTIONS)):
            again.read_entry(2001, 44)


class _Client:
    """Does the operations that were done to the real bookie, with records made as they were."""

    def __init__(self, document: dict[str, Any], bookie: Bookie) -> None:
        self.bookie = bookie
        told = document["live_before_crash"]["ledgers"]  # one of the keys is empty
        self._keys = {t["ledger"]: bytes.fromhex(t["master_key_hex"]) for t in told if t["exists"]}
        self._seed = document["payload_seed"]
        self._coder = Coder("CRC32C", document["password"])

    def do(self, operation: dict[str, Any]) -> None:
        """Do one operation; a refused one must be refused for the same reason."""
        kind, ledger = operation["op"], operation.get("ledger", -1)
        key = self._keys.get(ledger, b"")
        if kind in ("add", "recovery_add"):
            entries = [e for a, b in operation["entries"] for e in range(a, b + 1)]
            self._add(ledger, entries, operation, recovery=kind == "recovery_add")
        elif kind == "fence":
            self.bookie.fence(ledger, key)
        elif kind == "set_explicit_lac":
            self.bookie.set_explicit_lac(ledger, bytes.fromhex(operation["hex"]), key)
        elif kind == "force_ledger":
            self.bookie.force(ledger)
        elif kind == "sync_thread_flush":
            self.bookie.checkpoint()
        else:
            pytest.fail(f"unknown operation {kind}")

    def _add(
        self, ledger: int, entries: list[int], operation: dict[str, Any], recovery: bool
    ) -> None:
        key = self._keys[ledger]
        error = REFUSALS[operation["error"]] if operation["error"] else None
        for entry in entries:
            if error is None:
                record = self._record(ledger, entry)
                self.bookie.add_entry(record, key, recovery=recovery)
                continue
            refused = encode(Entry(ledger, entry, -1, 1, b"x"), "CRC32C")
            with pytest.raises(error):
                self.bookie.add_entry(
                    refused, key if error is LedgerFenced else b"w" * 20, recovery=recovery
                )

    def _record(self, ledger: int, entry: int) -> bytes:
        """Return an entry as the real client made it: LAC below it, length of all up to it."""
        size, length = payload_size(ledger, entry), BIG * (entry + 1)
        if ledger == LEDGER_OF_BIG:
            size = BIG
        else:  # sizes repeat after 61 entries
            rounds, rest = divmod(entry + 1, 61)
            sizes = [payload_size(ledger, e) for e in range(61)]
            length = rounds * sum(sizes) + sum(sizes[:rest])
        body = payload(ledger, entry, self._seed, size)
        return self._coder.encode(Entry(ledger, entry, entry - 1, length, body))


LEDGER_OF_BIG, BIG = 2077, 60_000

REFUSALS = {
    "BookieUnauthorizedAccessException": UnauthorizedAccess,
    "LedgerFencedException": LedgerFenced,
}


def _records(current: Path) -> list[list[Any]]:
    """Return [kind, ledger, entry, length, crc32] of all records of a journal directory."""
    return [
        [record.kind, record.ledger.ledger, record.entry_id, len(data), crc32(data)]
        for _, path in list_journal_files(current)
        for (_, data), (_, record) in zip(scan_journal(path), scan_journal(path).records())
    ]


def test_the_same_operations_leave_the_same_journal(journal: Golden, tmp_path: Path) -> None:
    """Our bookie's journals have the real one's records in its order, and the live answers."""
    document = journal[1]
    count = document["journal_dirs"]
    names = [f"journal{n}" for n in range(count)] if count > 1 else ["journal"]
    bookie = Bookie.open(
        storage=document["storage"],
        ledger_dirs=[tmp_path / "ledgers"],
        journal_dirs=[tmp_path / name for name in names],
        options=StorageOptions(compat="bookkeeper"),
        journal=JournalOptions(version=document["journal_format_version"], preallocate=0),
    )
    with bookie:
        client = _Client(document, bookie)
        for operation in document["operations"]:
            client.do(operation)
        for told in document["live_before_crash"]["ledgers"]:
            assert _expected(told, document["storage"]) == _answers(bookie, told)
    for name in names:
        told = [
            row[1:]
            for file in sorted(document["journal_files"], key=lambda file: file["id"])
            for row in file["records"]
            if file["dir"] == name
        ]

        assert told == _records(tmp_path / name / "current")


def test_explicit_lacs_in_old_journals(journal: Golden, tmp_path: Path) -> None:
    """Versions 4 and 5 have no record for them: the same bytes as the real journal, and replay."""
    document = journal[1]
    name = "explicit_lac_in_version_"
    variants = [each for each in document["variants"] if each["name"].startswith(name)]
    if not variants:
        assert 6 == document["journal_format_version"]
        pytest.skip("version 6 has a record for explicit LACs")
    for variant in variants:
        (told,) = variant["journal_files"]
        options = JournalOptions(
            version=told["version_in_header"],
            preallocate=0,
            clock=lambda: (told["id"] - 1) / 1000,  # noqa: B023
        )
        root = tmp_path / variant["name"]
        with Bookie.open(root, document["storage"], journal=options) as bookie:
            client = _Client(document, bookie)
            for operation in variant["operations"]:
                client.do(operation)
            scan = scan_journal(root / "journal" / "current" / told["file"])
            offsets = [offset for offset, _ in scan]

            assert [row[0] for row in told["records"]] == offsets
            assert [row[1:] for row in told["records"]] == _records(root / "journal" / "current")
            crashed = Path(shutil.copytree(root, tmp_path / f"{variant['name']}-crashed"))
        with _open(crashed, document["storage"], "bookkeeper") as again:
            _check(again, variant["ledgers"], document["storage"])
