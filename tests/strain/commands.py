"""Commands that read, and commands that write, with what they need: for tests of every call.

`make_inputs` fills a machine's `input`; `COMMANDS` are argument lists in which DB, IDX and such
stand for what is there, OUT for the folder of outputs.
"""

from __future__ import annotations

import json
from pathlib import Path

from bkstore import BookieDir, LedgerId
from bkstore.cluster import DirectoryStore, MemoryStore, snapshot
from bkstore.cluster.audit import AuditOptions, Auditor
from bkstore.cluster.store.api import MetadataStore
from bkstore.formats.metadata.json_file import encode_file
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.offline.dump import dump
from bkstore.pulsar import MemoryNodes, NodeValue
from bkstore.pulsar.sources.exports import encode_nodes, read_all_nodes
from bkstore.tables import VIOLATIONS
from tests.streams.small_world import world
from tests.worlds.bookies import make_bookie

__all__ = [
    "ANALYZING",
    "COMMANDS",
    "COMPARING",
    "DRAWING",
    "LOADING",
    "READING",
    "RESCUING",
    "REWRITING",
    "arguments",
    "make_inputs",
]

LAYOUTS = ("db", "idx")
_READING = {
    "inspect": "inspect DIR",
    "ledgers": "ledgers DIR --all-scopes",
    "ledger": "ledger DIR --ledger-id LEDGER",
    "availability": "availability DIR --ledger-id LEDGER",
    "readledger": "readledger DIR --ledger-id LEDGER",
    "readledger-pulsar": "readledger DIR --ledger-id LEDGER --as pulsar",
    "where": "where DIR --ledger-id LEDGER",
    "readlog": "readlog DIR",
    "readlogmetadata": "readlogmetadata DIR",
    "readjournal": "readjournal DIR",
    "lastmark": "lastmark DIR",
    "listfiles": "listfiles DIR",
    "check": "check DIR",
    "usage": "usage DIR",
}
_REWRITING = {
    "csv": "ledgers DIR --all-scopes --format csv -o OUT/ledgers.csv",
    "convert": "convert DIR OUT/new --to OTHER",
    "rebuild-index": "rebuild-index DIR OUT/new --to OTHER",
    "salvage": "salvage DIR OUT/new",
}
_RESCUING = {
    "rescue": "rescue METADATA bookie-1:3181=DIR OUT/new",
    "rescue-bookies": "rescue METADATA bookie-1:3181=DIR OUT/new --as bookies",
}
_LOADING = {
    "dump": "dump DIR OUT/new --length",
    "dump-pulsar": "dump DIR OUT/new --pulsar",
    "load": "load DUMP OUT/new --to SAME",
}
_COMPARING = {
    "fleet": "ledgers DB IDX --all-scopes",
    "diff": "diff DB IDX",
    "rocks": "rocks DB",
    "rocks-log": "rocks DB --log",
    "rocks-rows": "rocks DB --rows",
    "audit": "audit METADATA bookie-1:3181=DB",
    "topics": "usage DB IDX --by topic --metadata METADATA",
    "metadata": "metadata list METADATA",
    "leaks": "leaks METADATA",
    "repair": "repair STORE --from AUDIT --format csv -o OUT/plan.csv",
    "streams": "streams lookup IMAGE --stream 7 --start 5 --end 25",
}
_ANALYZING = {
    "analyze": "analyze DUMP --engine local --only sequences,violations --metadata METADATA",
    "sql": 'sql DUMP --metadata METADATA from"violations"',
}
_DRAWING = {
    "report": "report DB other=IDX --metadata METADATA -o OUT/report.html",
}
READING, REWRITING, RESCUING, LOADING = (
    [f"{name} {layout}" for name in commands for layout in LAYOUTS]
    for commands in (_READING, _REWRITING, _RESCUING, _LOADING)
)
COMPARING, ANALYZING, DRAWING = list(_COMPARING), list(_ANALYZING), list(_DRAWING)
COMMANDS = [*READING, *REWRITING, *RESCUING, *LOADING, *COMPARING, *ANALYZING, *DRAWING]
"""The commands by name: one that takes a bookie is there for each layout of its index."""


def make_inputs(top: Path) -> None:
    """Make two bookies, one of each layout, their dump, metadata and a stream image below `top`."""
    make_bookie(top / "db", "db", directories=2, checkpoint=False)
    make_bookie(top / "idx", "sorted")
    dump([top / "db"], top / "dump-db")
    dump([top / "idx"], top / "dump-idx")
    store = MemoryStore()
    segments = [(0, ["bookie-1:3181", "two:3181", "three:3181"])]
    for ledger in _ledgers(top / "db")[:3]:
        metadata = LedgerMetadata(ledger, 3, 2, 2, segments, state="CLOSED", last_entry_id=9)
        store.create(metadata)
    nodes = MemoryNodes({"/managed-ledgers/t/n/persistent/x": NodeValue(b"")})
    parts = {"pulsar": encode_nodes(read_all_nodes(nodes), 0, True)}
    (top / "metadata.json").write_bytes(encode_file(snapshot(store), other_parts=parts))
    (top / "image.json").write_text(json.dumps(world(3)))
    _make_repair_inputs(top, store)


def _make_repair_inputs(top: Path, store: MetadataStore) -> None:
    """Make a store's folder with one registered bookie, and the audit of that bookie's entries."""
    folder = DirectoryStore(top / "store")
    folder.register_bookie("bookie-1:3181")
    for ledger in store.ledgers():
        folder.create(store.read(ledger).metadata)
    with BookieDir(top / "db") as bookie:
        report = Auditor(
            folder, {"bookie-1:3181": bookie.index}, options=AuditOptions(rechecks=0)
        ).run()
    rows = [dict(zip(VIOLATIONS.names, each.row())) for each in report.violations]
    (top / "audit.json").write_text(json.dumps(rows))


def _ledgers(directory: Path) -> list[LedgerId]:
    with BookieDir(directory) as bookie:
        return bookie.index.ledgers(0)


def arguments(name: str, top: Path) -> list[str]:
    """Return a command's arguments in a machine whose folder is `top`."""
    word, _, layout = name.partition(" ")
    template = (_READING | _REWRITING | _RESCUING | _LOADING | _COMPARING | _ANALYZING | _DRAWING)[
        word
    ]
    inputs = top / "input"
    values = {
        "DB": str(inputs / "db"),
        "IDX": str(inputs / "idx"),
        "DIR": str(inputs / layout),
        "DUMP": str(inputs / f"dump-{layout or 'db'}"),
        "METADATA": str(inputs / "metadata.json"),
        "IMAGE": str(inputs / "image.json"),
        "STORE": str(inputs / "store"),
        "AUDIT": str(inputs / "audit.json"),
        "LEDGER": str(_ledgers(inputs / (layout or "db"))[0].ledger),
        "SAME": "idx" if layout == "idx" else "rocksdb",
        "OTHER": "rocksdb" if layout == "idx" else "idx",
        "OUT": str(top / "output"),
    }
    made: list[str] = []
    for part in template.split():
        key, slash, rest = part.partition("/")
        before, equals, after = key.partition("=")
        made.append(
            f"{before}={values.get(after, after)}"
            if equals
            else values.get(key, key) + slash + rest
        )
    return made
