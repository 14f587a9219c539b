"""Golden data: answers of the real BookKeeper, and where they are.

They stay outside the repository: the folder is named by BKSTORE_GOLDEN, else ``../shared/golden``
beside the checkout is taken; without it the tests that need it are skipped, with that reason.
"""

from __future__ import annotations

import gzip
import json
import os
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from tests.paths import ROOT

GOLDEN = Path(os.environ.get("BKSTORE_GOLDEN") or ROOT / ".." / "shared" / "golden").resolve()
NO_GOLDEN = f"no golden data at {GOLDEN} (set BKSTORE_GOLDEN)"


def load_json(path: Path) -> Any:
    """Return the parsed content of a .json or .json.gz file."""
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)


@cache
def golden_documents() -> dict[str, Any]:
    """Return every golden JSON that has a tree beside it, by its name below the folder."""
    found = {}
    for tar in sorted(GOLDEN.rglob("*.tar.gz")):
        stem = tar.name.removesuffix(".tar.gz")
        for path in (tar.with_name(stem + ".json"), tar.with_name(stem + ".json.gz")):
            if path.is_file():
                found[str(tar.relative_to(GOLDEN)).removesuffix(".tar.gz")] = load_json(path)
    return found


@cache
def golden_names(kind: str) -> tuple[str, ...]:
    """Return the names of the "tree" documents (with snapshots), "cluster" or "journal" ones."""
    keys = {"tree": "snapshots", "cluster": "restarted_bookies", "journal": "journal_files"}
    key = keys[kind]
    documents = golden_documents().items()
    return tuple(n for n, document in documents if isinstance(document, dict) and key in document)


UNINDEXED = {
    "db_deleted": {101},  # deleted and made again: records of its first life are in the logs
    "interleaved_main": {0, 3, 6},  # shut down with pages of the index that were not flushed
}
"""Trees whose logs hold more of known ledgers than their index: the ledgers."""


class GoldenTree:
    """A storage tree of the real BookKeeper, and the answers it gave at the end."""

    def __init__(self, root: Path, document: dict[str, Any]) -> None:
        self.document = document
        self.root = root / document["tree"]
        self.storage: str = document["storage"]
        self.options: dict[str, Any] = document["options"]
        self.snapshots: dict[str, Any] = document["snapshots"]

    @property
    def last(self) -> dict[str, Any]:
        """The last snapshot: what the bookie said before it was shut down for good."""
        return self.snapshots[list(self.snapshots)[-1]]

    @property
    def layout(self) -> str:
        """How the index is laid out."""
        return "rocksdb" if self.storage == "db" else "idx"

    @property
    def unindexed(self) -> set[int]:
        """Ledgers of whose entries the logs hold more than the index."""
        return UNINDEXED.get(self.document["tree"], set())

    @property
    def fits_idx(self) -> bool:
        """Whether index files have a place for all of it: no limbo, no entries far apart."""
        limbo = any(answer.get("limbo") is True for answer in self.known)
        return not limbo and all(
            last < 2**30 for answer in self.known for _, last in answer["entries"]
        )

    @cached_property
    def known(self) -> list[dict[str, Any]]:
        """The answers about ledgers that are there, in ledger order."""
        listed = [answer for answer in self.last["ledgers"] if answer["exists"]]
        return sorted(listed, key=lambda answer: int(answer["ledger"]))

    @cached_property
    def unknown(self) -> list[int]:
        """Ledgers that were asked about and are not there."""
        return [answer["ledger"] for answer in self.last["ledgers"] if not answer["exists"]]


def expand_runs(runs: list[list[int]]) -> list[int]:
    """Return the ids of inclusive runs."""
    return [entry for first, last in runs for entry in range(first, last + 1)]


def refused(answer: object) -> bool:
    """Return whether a golden answer is the name of an exception."""
    return isinstance(answer, str) and answer.startswith("!")
