"""Input trees in which a file is something else, and all that reads them.

Run as a program: `python odd_files.py TREE PATH SEED COUNT` goes through the files of a pristine
tree, and prints what was not as it should be as JSON. It is a process of its own, so that a hang
ends it and memory has a bound.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bkstore import Bookie, BookieDir, LedgerId
from bkstore.cli.main import main
from bkstore.cluster.audit.resume_file import ResumeFile
from bkstore.cluster.placement.network_locations import read_network_locations
from bkstore.cluster.store.dump_store import snapshot
from bkstore.cluster.store.key_value_store import DirectoryStore
from bkstore.cluster.store.opening import open_metadata
from bkstore.errors import BkstoreError, NoSuchEntry, NoSuchLedger
from bkstore.formats.entry import Entry, encode
from bkstore.formats.metadata.json_file import encode_file
from bkstore.formats.metadata.underreplication import UnderreplicatedMark
from bkstore.index.api import Finding
from bkstore.ledger_metadata import LedgerMetadata, Segment
from bkstore.storage.journal.last_mark import read_last_mark
from bkstore.storage.journal.scan import scan_journal
from bkstore.testing.factories import BookieFactory

SECONDS = 10
MEMORY = 100 << 20
ROOM = 1 << 30  # of addresses; what is really used is measured

LEDGERS = [LedgerId.of(1), LedgerId.of(300), LedgerId(5, 9)]

Reader = Callable[[list[Finding]], Any]
Readers = Iterator[tuple[str, Reader]]


# -- odd kinds


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made, _in(path.parent):
        made.bind(path.name)


@contextlib.contextmanager
def _in(folder: Path) -> Iterator[None]:
    """A socket's name is short."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


KINDS: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "socket": _socket,
    "zeros": lambda path: path.symlink_to("/dev/zero"),
    "folder": Path.mkdir,
    "nowhere": lambda path: path.symlink_to("not-there"),
    "loop": lambda path: path.symlink_to(path.name),
    "sparse": _sparse,
    "long": lambda path: os.truncate(path, 1 << 40),
    "wide": lambda path: os.truncate(path, 900 << 20),
}
"""What a file is replaced by; "long" and "wide" leave its bytes, and put nothing behind them."""

KEPT = ("long", "wide")
ZEROS = ("sparse", "long", "wide")
"""Bytes like others: which of them a file may have is another family's."""


# -- trees


def _bookie(top: Path, kind: Any) -> None:
    make = BookieFactory(top / "made")
    bookie = make(kind)
    for number, ledger in enumerate(LEDGERS):
        records = [encode(Entry(ledger, e, e - 1, 5, b"x" * 99), "CRC32C") for e in range(6)]
        for record in records[:4]:
            bookie.add_entry(record, b"key")
        if number == 1:
            bookie.checkpoint()
        for record in records[4:]:
            bookie.add_entry(record, b"key")
    bookie.storage.flush()
    bookie.add_entry(encode(Entry(1, 6, 5, 5, b"last"), "CRC32C"), b"key")
    make.crash(bookie).close(checkpoint=False)
    (made,) = [path for path in (top / "made").iterdir() if any(path.rglob("*.log"))][-1:]
    shutil.copytree(made, top / "tree")


def _metadata(ledger: LedgerId) -> LedgerMetadata:
    segments = (Segment(0, ("a:1", "b:2")),)
    return LedgerMetadata(ledger, 2, 2, 2, segments, state="CLOSED", last_entry_id=5, length=30)


def _store(top: Path) -> DirectoryStore:
    store = DirectoryStore(top)
    for ledger in LEDGERS:
        store.create(_metadata(ledger))
    for bookie in ("a:1", "b:2"):
        store.register_bookie(bookie)
    store.mark_underreplicated(LEDGERS[0], UnderreplicatedMark())
    return store


def _zookeeper(top: Path) -> None:
    """The values of a store under its paths, as a dump of ZooKeeper has them."""
    from bkstore.cluster.store.directory_values import decode_value

    _store(top / "store")
    for path in sorted((top / "store").rglob("*")):
        key = str(path.relative_to(top / "store"))
        if path.is_file() and key not in ("lock", "BKSTORE-METADATA"):
            target = top / "tree" / "ledgers" / key
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(decode_value(f"/{key}", path.read_bytes()).data)


def _dump(top: Path) -> None:
    from bkstore.offline.dump import dump

    _bookie(top / "b", "sorted")
    dump([top / "b" / "tree"], top / "tree")


def _single(top: Path) -> None:
    """Files that are named by themselves."""
    tree = top / "tree"
    tree.mkdir()
    (tree / "metadata.json").write_bytes(encode_file(snapshot(_store(top / "store"))))
    (tree / "places").write_text("a:1 /eu/r1\nb:2 /eu/r2\n")
    _bookie(top / "b", "sorted")
    shutil.move(top / "b" / "tree", tree / "bookie")
    (tree / "conf").write_text(
        "ledgerDirectories=bookie/ledgers\njournalDirectories=bookie/journal\n"
    )
    (tree / "image.json").write_text(json.dumps(WORLD))
    run = ResumeFile(tree / "audit", {"a": 1}, 5.0)
    assert not run.steps


_RANGE = {"range_index": 0, "epoch": 0, "start": 0, "end": 9, "node_id": 4}
_OBJECT = {"object_id": 0, "order_id": 0, "ranges": [[42, 0, 9]]}
WORLD = {
    "streams": [{"stream_id": 42, "start_offset": 0, "end_offset": 9, "ranges": [_RANGE]}],
    "nodes": [{"node_id": 4, "objects": [_OBJECT]}],
    "stream_objects": [],
}

_LOOKUP = ("streams", "lookup", "--format", "jsonl", "--stream", "42")

MAKERS: dict[str, Callable[[Path], Any]] = {
    "sorted": lambda top: _bookie(top, "sorted"),
    "db": lambda top: _bookie(top, "db"),
    "store": lambda top: _store(top / "tree"),
    "zookeeper": _zookeeper,
    "dump": _dump,
    "single": _single,
}


# -- readers: each answers with what it read, findings last


def _told(findings: list[Finding]) -> list[str]:
    return sorted(f"{found.file}: {found.detail}" for found in findings)


def _read_bookie(path: Path) -> Readers:
    held: list[BookieDir] = []

    def opening(findings: list[Finding]) -> None:
        held.append(BookieDir(path))
        findings += held[0].findings()

    yield "open", opening
    if not held:
        return
    with held[0] as bookie:
        told = bookie.findings()
        for name, act in _bookie_readers(bookie):

            def run(findings: list[Finding], act: Reader = act) -> Any:
                findings += told
                return act(findings)

            yield name, run


def _bookie_readers(bookie: BookieDir) -> Readers:
    index = bookie.index
    yield "ledgers", lambda f: index.ledgers()
    yield "scan", lambda f: [rows.entry_id.tolist() for rows in bookie.scan(findings=f)]
    for n in LEDGERS:
        yield f"entries {n}", lambda f, n=n: index.entries(n).tolist()
        yield f"state {n}", lambda f, n=n: index.state(n)
        yield (
            f"records {n}",
            lambda f, n=n: [b.sizes.sum() for b in bookie.scan_ledger(n, findings=f)],
        )
        yield f"entry {n}", lambda f, n=n: bookie.read_entry(n, 0)
        yield f"logs {n}", lambda f, n=n: str(bookie.find_logs(n, findings=f))
    yield "mark", lambda f: read_last_mark(bookie.folders.ledger)
    yield "journals", lambda f: [[r.offset for r in scan_journal(j)] for j in bookie.journals]


def _write_bookie(path: Path) -> Readers:
    """Open a copy for writing, and close it: it may be damaged further, it may not hang."""

    def run(findings: list[Finding]) -> Any:
        with Bookie.open(path) as bookie:
            findings += bookie.findings
            answers = {}
            for ledger in LEDGERS:
                answers[str(ledger)] = bookie.read_entry(ledger, 0)
            return answers

    yield "written", run


def _read_metadata(path: Path) -> Readers:
    yield "metadata", lambda f: str(snapshot(open_metadata(path)))


def _write_store(path: Path) -> Readers:
    def run(findings: list[Finding]) -> Any:
        store = DirectoryStore(path)
        store.create(_metadata(LedgerId.of(77)))
        return str(snapshot(store))

    yield "written", run


def _command(*words: object) -> Reader:
    def run(findings: list[Finding]) -> Any:
        out, said = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
            code = main(list(map(str, words)))
        if code == 2:
            lines = said.getvalue().splitlines()
            assert len(lines) == 1, lines
            raise BkstoreError(lines[0])
        findings += [Finding("damage", line) for line in said.getvalue().splitlines()]
        return out.getvalue()

    return run


def _read_dump(path: Path) -> Readers:
    from bkstore.offline.dump import TABLES
    from bkstore.offline.load.dump_rows import (
        open_load_source as open_load,
        read_entry_rows,
        read_ledgers,
    )
    from bkstore.offline.reading.open_dump import open_dump

    def tables(findings: list[Finding]) -> Any:
        dump = open_dump(path)
        return [dump.read(table.name).num_rows for table in TABLES]

    def load(findings: list[Finding]) -> Any:
        source = open_load(path)
        rows = [rows.entry_id.tolist() for rows in read_entry_rows(source)]
        return rows, [row["name"] for row in read_ledgers(source)]

    yield "tables", tables
    yield "load", load


def _read_single(path: Path) -> Readers:
    yield from _read_metadata(path / "metadata.json")
    yield "places", lambda f: read_network_locations(path / "places")
    yield "conf", lambda f: BookieDir(path / "conf").close()
    yield "audit", lambda f: ResumeFile(path / "audit", {"a": 1}, 5.0).steps
    yield "image", _command(*_LOOKUP, "--start", "0", path / "image.json")


def _commands(path: Path) -> Readers:
    yield "inspect", _command("inspect", path, "--format", "jsonl")
    yield "lastmark", _command("lastmark", path, "--format", "jsonl")
    yield "readledger", _command("readledger", path, "--ledger-id", "1", "--format", "jsonl")
    listed = _command("listfiles", path, "--format", "jsonl")
    yield "listfiles", lambda f: bool(listed(f))  # sizes differ, of course


READERS: dict[str, list[Callable[[Path], Readers]]] = {
    "sorted": [_read_bookie, _commands, _write_bookie],
    "db": [_read_bookie, _commands, _write_bookie],
    "store": [_read_metadata, _write_store],
    "zookeeper": [_read_metadata],
    "dump": [_read_dump],
    "single": [_read_single],
}


# -- going through


class Hang(BaseException):
    """A reader took too long."""


def _late(number: int, frame: object) -> None:
    raise Hang


def ask(kind: str, tree: Path) -> dict[str, tuple[Any, str, list[str]]]:
    """Return for each reader (answer or None, error, findings)."""
    found = {}
    for readers in READERS[kind]:
        for name, read in readers(tree):
            findings: list[Finding] = []
            signal.alarm(SECONDS)
            try:
                found[name] = (read(findings), "", _told(findings))
            except (NoSuchLedger, NoSuchEntry) as error:
                found[name] = (None, f"{type(error).__name__}: absent: {error}", _told(findings))
            except BkstoreError as error:
                found[name] = (None, str(error), _told(findings))
            except Hang:
                found[name] = (None, "hang", [])
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told
                found[name] = (None, f"not ours: {error!r}", [])
            finally:
                signal.alarm(0)
    return found


def odd(said: tuple[Any, str, list[str]], sound: tuple[Any, str, list[str]], kind: str) -> bool:
    """Return whether an answer is neither the sound one nor an error or finding of ours."""
    answer, error, findings = said
    if error:
        bad = error == "hang" or error.startswith("not ours") or "absent" in error
        return error != sound[1] and (bad or "\n" in error)
    return answer != sound[0] and not set(findings) - set(sound[2]) and kind not in ZEROS


def cases(tree: Path, seed: int, count: int) -> list[tuple[str, str]]:
    """Return (file, kind) pairs: all for count 0, else a pipe for a file of each sort, and some."""
    files = [str(p.relative_to(tree)) for p in sorted(tree.rglob("*")) if p.is_file()]
    pairs = [(file, kind) for file in files for kind in KINDS]
    if not count:
        return pairs
    sorts = {re.sub(r"[0-9a-f]*[0-9][0-9a-f]*", "", Path(file).name): file for file in files}
    some = random.Random(seed).sample(pairs, min(count, len(pairs)))
    return [*((file, "pipe") for file in sorts.values()), *some]


def go(kind: str, top: Path, seed: int, count: int) -> Iterator[str]:
    """Yield what was not as it should be."""
    MAKERS[kind](top)
    pristine, tree = top / "tree", top / "odd"
    shutil.copytree(pristine, tree)
    sound = ask(kind, tree)
    yield from (f"sound: {n}: {s[1]}" for n, s in sound.items() if s[1])
    before = _peak()
    limit = (int(Path("/proc/self/statm").read_text().split()[0]) << 12) + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for file, name in cases(pristine, seed, count):
        shutil.rmtree(tree)
        shutil.copytree(pristine, tree)
        if name not in KEPT:
            os.remove(tree / file)
        KINDS[name](tree / file)
        faulthandler.dump_traceback_later(5 * SECONDS, exit=True)
        answers = ask(kind, tree)
        faulthandler.cancel_dump_traceback_later()
        for reader, said in answers.items():
            if odd(said, sound[reader], name):
                yield f"{file} as {name}: {reader}: {said}"
    grown = _peak() - before
    if grown > MEMORY:
        yield f"{grown} bytes more than for the sound tree"


def _peak() -> int:
    """Return the highest resident size of this process alone, in bytes.

    `getrusage` begins with what the process that started this one had.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines)
    return int(status["VmHWM"].split()[0]) << 10


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, _late)
    found = list(go(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
    json.dump(found, sys.stdout)
