"""Directories that a real bookie is to start on: stamped, rewritten, put in the source's place."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bkstore import BookieDir
from bkstore.availability import Availability
from bkstore.formats.entry import Coder, Entry, encode_explicit_lac
from tests.interop.bookies import Cluster, Place, RealBookie, records_digest
from tests.worlds.bookies import tree_bytes

Runs = list[list[int]]
Answers = dict[int, dict[str, Any]]
CODER = Coder("CRC32C", "pw")
NEW_LEDGER = 77_777_777
NEW_KEY = b"k" * 20


@dataclass
class World:
    """A bookie's root as its cookie names it; `storage` is what a real bookie opens it with."""

    cluster: Cluster
    root: Path
    place: Place
    storage: str

    @property
    def by_index_files(self) -> bool:
        """Whether index files are what the bookie opens."""
        return self.storage != "db"

    def copy_answers(self) -> Answers:
        """Return what a real bookie says that starts on a copy, put in the root's place."""
        kept = self.root.with_name("kept")
        shutil.copytree(self.root, kept)
        with self.cluster.bookie(self.place, self.storage) as bookie:
            found = bookie.answers(entries_asked(self.root, bookie.ledgers()))
        shutil.rmtree(self.root)
        kept.rename(self.root)
        return found

    def rewrite(self, way: Callable[..., Any], to: str, **options: Any) -> Any:
        """Rewrite the root and put what was made in its place, the source beside it."""
        before = tree_bytes(self.root)
        made, source = self.root.with_name("made"), self.root.with_name("source")
        result = way(self.root, made, to, **options)

        assert before == tree_bytes(self.root)
        self.root.rename(source)
        made.rename(self.root)
        return result

    def back(self) -> None:
        """Throw what was made away, and put the source in its place again."""
        shutil.rmtree(self.root)
        self.root.with_name("source").rename(self.root)


def stamped(cluster: Cluster, source: Path, root: Path, storage: str) -> World:
    """Copy a bookie's directories to `root`, with cookies of a new bookie of the cluster."""
    shutil.copytree(source, root)
    return stamped_in_place(cluster, root, storage)


def stamped_in_place(cluster: Cluster, root: Path, storage: str) -> World:
    """Give a bookie's directories the cookies of a new bookie of the cluster."""
    names = sorted(path.name for path in root.iterdir() if path.is_dir())
    ledger = [root / name for name in names if name.startswith("ledgers")]
    journal = [root / name for name in names if name.startswith("journal")] or [root / "journal"]
    index = [root / name for name in names if name.startswith("index")]
    place = Place(cluster.new_id(), ledger, journal, index)
    cluster.stamp(place)
    return World(cluster, root, place, storage)


def entries_asked(root: Path, ledgers: list[int]) -> dict[int, Runs]:
    """Return runs of entries to ask for: those in the index of a directory, and one id beyond."""
    with BookieDir(root, live=True) as bookie:
        asked: dict[int, Runs] = {}
        for ledger in sorted({*ledgers, *(name.ledger for name in bookie.index.ledgers())}):
            entries = bookie.index.entries(ledger)
            last = int(entries[-1]) if entries.size else -1
            runs = Availability.from_entries(entries).ranges().tolist()
            asked[ledger] = [*runs, [last + 1, last + 1]]
        return asked


def read_digests(root: Path) -> dict[int, str]:
    """Return, by ledger, the digest of all records that bkstore reads in a copied directory."""
    with BookieDir(root) as bookie:
        return {
            name.ledger: records_digest(
                bookie.read_entry(name, entry) for entry in bookie.index.entries(name).tolist()
            )
            for name in bookie.index.ledgers()
        }


def alike(before: Answers, after: Answers, same_layout: bool) -> tuple[Answers, Answers]:
    """Return answers with what both can say.

    Index files know no limbo, db storage no list of entries; and once it has seen an explicit LAC,
    db storage answers that, where the others answer the highest that they know.
    """

    def kept(answer: dict[str, Any]) -> dict[str, Any]:
        dropped = set() if same_layout else {"limbo", "listed"}
        if not same_layout and answer["explicit_lac"] is not None:
            dropped.add("lac")
        return {what: said for what, said in answer.items() if what not in dropped}

    return (
        {ledger: kept(answer) for ledger, answer in before.items()},
        {ledger: kept(answer) for ledger, answer in after.items()},
    )


@dataclass
class Addition:
    """What a bookie that starts on a directory is given: records by (ledger, entry), states."""

    ledger: int
    key: bytes
    records: dict[tuple[int, int], bytes]
    lac: bytes

    @classmethod
    def to(cls, root: Path) -> Addition:
        """Choose an open ledger of a directory, where it has one, and the entries behind its last.

        Besides a new ledger.
        """
        with BookieDir(root, live=True) as bookie:
            index = bookie.index
            states = ((name.ledger, index.state(name)) for name in index.ledgers(0))
            usable = [(ledger, s.master_key) for ledger, s in states if not (s.fenced or s.limbo)]
            ledger, key = usable[0] if usable else (NEW_LEDGER + 1, NEW_KEY)
            last = index.last_entry(ledger)
        first = 0 if last is None else last + 1
        records = {
            (of, entry): CODER.encode(Entry(of, entry, entry - 1, 9, b"more %d" % entry))
            for of, begin in ((ledger, first), (NEW_LEDGER, 0))
            for entry in range(begin, begin + 5)
        }
        lac = encode_explicit_lac(ledger, first + 3, "CRC32C", "pw")
        return cls(ledger, key, records, lac)

    @property
    def keys(self) -> dict[int, bytes]:
        """The master keys of both ledgers."""
        return {self.ledger: self.key, NEW_LEDGER: NEW_KEY}

    def halves(self) -> tuple[Addition, Addition]:
        """Return two that have every other record each."""
        rows = list(self.records.items())
        one, other = dict(rows[::2]), dict(rows[1::2])
        return replace(self, records=one), replace(self, records=other)

    def give(self, bookie: RealBookie) -> None:
        """Add the records, keep an explicit LAC for the one ledger, fence the other.

        A real bookie that is stopped loses states when nothing was added since its last flush.
        """
        for ledger, key in self.keys.items():
            mine = [record for (of, _), record in self.records.items() if of == ledger]
            bookie.add(mine, key)

        assert 0 == bookie.explicit_lac(self.lac, self.key)
        assert bookie.fence(NEW_LEDGER, NEW_KEY)

    def check(self, root: Path) -> None:
        """Assert that bkstore reads all of it in the directory."""
        with BookieDir(root) as found:
            state, new = found.index.state(self.ledger), found.index.state(NEW_LEDGER)

            assert self.records == {name: found.read_entry(*name) for name in self.records}
            assert (self.key, False, self.lac) == (
                state.master_key,
                state.fenced,
                state.explicit_lac,
            )
            assert (NEW_KEY, True) == (new.master_key, new.fenced)
