"""A damaged block of the `ledgers` database hides a range of ledgers, and nothing else: whatever a
command gives for the sound bookie it gives without them, and it names the range."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bkstore import BookieDir, CorruptionError, LedgerId, LedgerStorage
from bkstore.cli.main import main
from bkstore.formats.entry import Coder
from bkstore.index.api import LedgerState
from bkstore.index.rocks import RocksIndex
from bkstore.index.rocks.tables.table_reader import TableReader
from bkstore.offline.reading.open_dump import open_dump
from tests.corruption.rocks.databases import flip, only_file

Capsys = pytest.CaptureFixture[str]

LEDGERS = range(1, 261)
DELETED = range(20, 261, 40)
ENTRIES = 2
KEY = b"k" * 20
BLOCKS = 3


class Damaged(NamedTuple):
    """A bookie with a damaged block: `hidden` are the ledgers with rows in it. The last ledger of
    the block before it, `border`, is listed, but the block may have a later row of its state."""

    top: Path
    file: Path
    offset: int
    hidden: range
    border: int | None

    @property
    def listed(self) -> list[int]:
        """The ledgers that are listed."""
        return [n for n in LEDGERS if n not in DELETED and n not in self.hidden]

    @property
    def with_state(self) -> list[int]:
        """The ledgers whose states are known."""
        return [n for n in self.listed if n != self.border]

    @property
    def reason(self) -> str:
        """The text that names the range."""
        first = self.hidden[0] if self.border is None else self.border
        return f"block fails its checksum: rows of ledgers {first} to {self.hidden[-1]} are unknown"


def _write(top: Path, **options: Any) -> None:
    """Write a bookie with db storage: even ledgers are fenced, some deleted."""
    coder = Coder("CRC32C", "secret")
    with LedgerStorage.open(top, storage="db", **options) as storage:
        for ledger in LEDGERS:
            storage.set_master_key(ledger, KEY)
            for record in coder.encode_many(ledger, range(ENTRIES), [b"x" * 30] * ENTRIES):
                storage.add_entry(bytes(record))
            if ledger % 2 == 0:
                storage.fence(ledger)
        storage.flush()
        for ledger in DELETED:
            storage.delete_ledger(ledger)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a sound bookie; all rows of `ledgers` are in one table file of several blocks, but
    the deletes are in its write-ahead log."""
    top = tmp_path_factory.mktemp("sound") / "bookie"
    _write(top)
    return top


def damage_block(top: Path, block: int) -> Damaged:
    """Damage a block of a bookie's `ledgers` database."""
    file = only_file(top / "current" / "ledgers", "*.sst")
    with TableReader(file) as table:
        offsets = table.index.offsets.tolist()
        ends = [int.from_bytes(key[:8].ljust(8, b"\0"), "big") for key in table.index.separators]
    assert BLOCKS == len(offsets)
    file.write_bytes(flip(file.read_bytes(), offsets[block] + 9))
    border = ends[block - 1] if block else None
    first = border + 1 if border is not None else LEDGERS[0]
    return Damaged(top, file, offsets[block], range(first, ends[block] + 1), border)


MIDDLE_BLOCK = [1, *(pytest.param(block, marks=pytest.mark.long) for block in (0, 2))]
"""For tests that take a second each."""


@pytest.fixture(params=range(BLOCKS))
def damaged(request: pytest.FixtureRequest, sound: Path, tmp_path: Path) -> Damaged:
    """Return a copy of the bookie with one of its blocks damaged."""
    top = tmp_path / "bookie"
    shutil.copytree(sound, top)
    return damage_block(top, request.param)


class Outcome(NamedTuple):
    """What a command printed."""

    code: int
    rows: list[dict[str, Any]]
    messages: list[str]


def run(capsys: Capsys, *words: object) -> Outcome:
    """Run a command that prints JSON lines."""
    code = main([*map(str, words), "--format", "jsonl"])
    out, err = capsys.readouterr()
    return Outcome(code, list(map(json.loads, out.splitlines())), err.splitlines())


def damage_line(damaged: Damaged) -> str:
    """Return the line that names the damage."""
    return f"damage: {damaged.file}: offset {damaged.offset}: {damaged.reason}"


def test_ledgers_without_the_range(damaged: Damaged, capsys: Capsys) -> None:
    """Rows of all other ledgers, with their states, and the damage once."""
    outcome = run(capsys, "ledgers", damaged.top)

    assert (1, [damage_line(damaged)]) == (outcome.code, outcome.messages)
    assert damaged.listed == [row["ledger_id"] for row in outcome.rows]
    assert {ENTRIES} == {row["entries"] for row in outcome.rows}
    fences = {row["ledger_id"]: row["fenced"] for row in outcome.rows}
    assert {n: n % 2 == 0 for n in damaged.with_state} == {
        n: fenced for n, fenced in fences.items() if fenced is not None
    }


def test_inspect_and_usage_go_on(damaged: Damaged, capsys: Capsys) -> None:
    """Both count what is listed. Records of hidden ledgers are not garbage: they may be live."""
    code = main(["inspect", str(damaged.top), "--format", "json"])
    properties, messages = json.loads((printed := capsys.readouterr()).out), printed.err
    usage = run(capsys, "usage", damaged.top, "--by", "ledger")
    (total,) = run(capsys, "usage", damaged.top).rows
    parts = run(capsys, "usage", damaged.top, "--by", "index").rows

    assert (1, [damage_line(damaged)]) == (code, messages.splitlines())
    assert len(damaged.listed) == properties["ledgers"]
    assert sum(n % 2 == 0 for n in damaged.with_state) == properties["fenced_ledgers"]
    assert (1, [damage_line(damaged)]) == (usage.code, usage.messages)
    assert list(LEDGERS) == [row["ledger_id"] for row in usage.rows]
    assert [n for n in DELETED if n not in damaged.hidden and n != damaged.border] == [
        row["ledger_id"] for row in usage.rows if not row["live"]
    ]
    assert len(damaged.listed) == total["ledgers"]
    assert [None, None] == [part["rows"] for part in parts]


@pytest.mark.parametrize("command", ["availability", "ledger", "readledger"])
def test_a_hidden_ledger_is_never_called_absent(
    damaged: Damaged, capsys: Capsys, command: str
) -> None:
    """Its entries are read, beside the damage; those of other ledgers are read without it."""
    hidden, listed = damaged.hidden[3], damaged.with_state[5]
    other, found = (run(capsys, command, damaged.top, ledger) for ledger in (listed, hidden))
    absent = run(capsys, command, damaged.top, LEDGERS.stop)

    assert (0, 1, 1) == (other.code, found.code, absent.code)
    assert len(other.rows) == len(found.rows) > 0
    assert damage_line(damaged) in found.messages
    assert not any("damage" in line for line in other.messages)
    assert not any("is not on" in line for line in found.messages)
    assert f"ledger {LEDGERS.stop} is not on this bookie" in absent.messages


def test_check_goes_on(damaged: Damaged, capsys: Capsys) -> None:
    """One finding of damage; all index rows are checked; garbage is only what is certain to be."""
    outcome = run(capsys, "check", damaged.top)
    (damage,) = [row for row in outcome.rows if row["severity"] == "damage"]
    notes = [row for row in outcome.rows if row["severity"] != "damage"]
    live = len(LEDGERS) - len(DELETED)
    hidden_garbage = [n for n in DELETED if n in damaged.hidden]

    assert 1 == outcome.code
    assert (str(damaged.file), damaged.offset, damaged.reason) == (
        damage["file"],
        damage["offset"],
        damage["detail"],
    )
    assert [n for n in DELETED if n not in hidden_garbage] == [row["ledger_id"] for row in notes]
    assert {"unknown-ledger"} == {row["kind"] for row in notes}
    text = "\n".join(outcome.messages)
    rows = ENTRIES * live
    states = f"{len(damaged.with_state)} states of {len(damaged.listed)} ledgers"
    assert f"checked {rows} of {rows} index rows, {states}" in text
    unjudged = f"{ENTRIES * len(hidden_garbage)} not judged"
    assert (unjudged in text) == bool(hidden_garbage)
    assert "ledgers that cannot be listed, in 1 unknown range of ids" in text


def test_check_of_chosen_ledgers(damaged: Damaged, capsys: Capsys) -> None:
    """A hidden ledger's rows are checked, and its state is damage; others are sound."""
    hidden = next(n for n in damaged.hidden if n not in DELETED)
    sound, doubtful = (
        run(capsys, "check", damaged.top, "--ledger-id", ledger)
        for ledger in (damaged.with_state[5], hidden)
    )

    assert (0, []) == (sound.code, sound.rows)
    assert (1, [damaged.reason]) == (doubtful.code, [row["detail"] for row in doubtful.rows])
    assert any(f"checked {ENTRIES} of {ENTRIES} index rows" in line for line in doubtful.messages)


def test_a_dump_has_all_entries(damaged: Damaged, tmp_path: Path, capsys: Capsys) -> None:
    """Hidden ledgers with entries are among its ledgers, without their states: by the tables of
    the dump, they are not garbage. The finding is among its own, once."""
    assert 1 == main(["dump", str(damaged.top), str(tmp_path / "dump")])
    capsys.readouterr()
    dump = open_dump(tmp_path / "dump")
    findings = dump.read("findings").to_pylist()
    ledgers = {row["ledger_id"]: row for row in dump.read("ledgers").to_pylist()}

    assert [n for n in LEDGERS if n not in DELETED] == list(ledgers)
    assert {ENTRIES} == {row["entries"] for row in ledgers.values()}
    assert {n: n % 2 == 0 if n in damaged.with_state else None for n in ledgers} == {
        n: row["fenced"] for n, row in ledgers.items()
    }
    assert ENTRIES * (len(LEDGERS) - len(DELETED)) == dump.read("entries").num_rows
    assert [(damaged.offset, damaged.reason)] == [(f["offset"], f["detail"]) for f in findings]


@pytest.mark.parametrize("damaged", MIDDLE_BLOCK, indirect=True)
def test_a_load_fences_where_states_are_unknown(
    damaged: Damaged, tmp_path: Path, capsys: Capsys
) -> None:
    """A fence too many does no harm, a lost one does."""
    assert 1 == main(["dump", str(damaged.top), str(tmp_path / "dump")])
    code = main(["load", str(tmp_path / "dump"), str(tmp_path / "new"), "--to", "rocksdb"])
    messages = capsys.readouterr().err
    with RocksIndex(tmp_path / "new") as index:
        states = {each.ledger: index.state(each) for each in index.ledgers()}

    assert code == 1
    assert "not in the dump: fenced, without a master key" in messages
    assert [n for n in LEDGERS if n not in DELETED] == list(states)
    assert states == {
        n: LedgerState(KEY, n % 2 == 0) if n in damaged.with_state else LedgerState(fenced=True)
        for n in states
    }


@pytest.mark.parametrize("damaged", MIDDLE_BLOCK, indirect=True)
def test_a_comparison_leaves_out_the_range(
    damaged: Damaged, sound: Path, tmp_path: Path, capsys: Capsys
) -> None:
    """Nothing is said to be on one side only, of a directory and of a dump of it."""
    assert 1 == main(["dump", str(damaged.top), str(tmp_path / "dump")])
    capsys.readouterr()
    for side in (damaged.top, tmp_path / "dump"):
        outcome = run(capsys, "diff", sound, side)
        one = run(capsys, "diff", side, sound, "--ledger-id", damaged.hidden[3])

        assert (1, []) == (outcome.code, outcome.rows)
        assert (1, []) == (one.code, one.rows)
        assert damage_line(damaged) in outcome.messages
        assert damage_line(damaged) in one.messages
        assert not any("neither" in line for line in one.messages)


@pytest.mark.parametrize("damaged", MIDDLE_BLOCK, indirect=True)
@pytest.mark.parametrize("command", ["rebuild-index", "salvage"])
def test_hidden_ledgers_are_rescued_fenced(
    damaged: Damaged, tmp_path: Path, capsys: Capsys, command: str
) -> None:
    """States of listed ledgers stay. A hidden ledger may have been fenced, so it is."""
    options = ["--known-only"] if command == "salvage" else []
    target = tmp_path / "target"
    code = main([command, str(damaged.top), str(target), "--to", "rocksdb", *options])
    messages = capsys.readouterr().err

    assert code == 1
    assert damaged.reason in messages
    kept = [n for n in LEDGERS if n in damaged.hidden or n not in DELETED]
    with BookieDir(target) as made:
        assert kept == [each.ledger for each in made.index.ledgers()]
        states = {n: made.index.state(n) for n in kept}
        assert {ENTRIES} == {len(made.index.entries(n)) for n in kept}
    known = damaged.with_state
    assert {n: (KEY, n % 2 == 0) for n in known} == {
        n: (states[n].master_key, states[n].fenced) for n in known
    }
    assert all(states[n].fenced for n in kept if n not in known)


def test_a_writer_deletes_nothing(damaged: Damaged) -> None:
    """Garbage collection would take the records of hidden ledgers for garbage: it is refused."""
    current = damaged.top / "current"
    logs = {path.name: path.read_bytes() for path in current.glob("*.log")}
    with (
        pytest.raises(CorruptionError),
        LedgerStorage.open(damaged.top, storage="db") as storage,
    ):
        storage.collect_garbage([LedgerId(0, n) for n in damaged.listed])

    assert logs.items() <= {path.name: path.read_bytes() for path in current.glob("*.log")}.items()


def test_each_directory_hides_its_own(tmp_path: Path) -> None:
    """Of several directories one is damaged: only ledgers that belong there may be hidden."""
    names = [tmp_path / f"l{number}" for number in range(2)]
    for number, name in enumerate(names):
        with RocksIndex(name, writable=True) as index:
            for ledger in range(number, 600, 2):
                index.set_state(ledger, LedgerState(KEY))
    hidden = damage_block(names[1], 1).hidden
    missing = [n for n in hidden if n % 2]
    with BookieDir(tmp_path) as bookie:
        listing = bookie.index.list_readable_ledgers()

        assert [n for n in range(600) if n not in missing] == [n.ledger for n in listing.ledgers]
        assert [True, False] == [listing.may_include(LedgerId(0, n)) for n in (missing[5], 602)]
        assert not any(listing.may_include(LedgerId(0, n)) for n in range(0, 600, 2))
        assert bookie.index.has_ledger(missing[5] + 1)
        assert not bookie.index.has_ledger(602)
        with pytest.raises(CorruptionError, match="are unknown"):
            bookie.index.has_ledger(missing[5])
        with pytest.raises(CorruptionError, match="are unknown"):
            bookie.index.ledgers()


def test_findings_of_odd_rows_follow_those_of_ranges(tmp_path: Path) -> None:
    """Of several directories too, the findings that belong to ranges come first, in their order."""
    names = [tmp_path / f"l{number}" for number in range(2)]
    for number, name in enumerate(names):
        with RocksIndex(name, writable=True) as index:
            for ledger in range(number, 600, 2):
                index.set_state(ledger, LedgerState(KEY))
            index._writable_database("ledgers", is_scoped=False).put(b"\0" * 7 + b"\1\1", b"")
    damaged = damage_block(names[1], 2)
    with BookieDir(tmp_path) as bookie:
        listing = bookie.index.list_readable_ledgers()

    assert [damaged.offset, None, None] == [finding.offset for finding in listing.findings]
    assert [1] == [unknown.dir_index for unknown in listing.unknown]


def test_ledgers_of_other_scopes(tmp_path: Path) -> None:
    """In the database of 128-bit ids, damage hides ledgers of one scope or of several; the listing
    of another scope does not need them."""
    with RocksIndex(tmp_path, writable=True) as index:
        for scope in range(4):
            for ledger in range(150):
                index.put_many(LedgerId(scope, ledger), [], [])
    file = only_file(tmp_path / "current" / "ledgers-128", "*.sst")
    with TableReader(file) as table:
        separators, offsets = table.index.separators, table.index.offsets.tolist()
    block = next(i for i in range(1, len(offsets)) if separators[i - 1][:8] != separators[i][:8])
    file.write_bytes(flip(file.read_bytes(), offsets[block] + 9))
    low, high = (
        LedgerId(*divmod(int.from_bytes(key.ljust(16, b"\0"), "big"), 1 << 64))
        for key in separators[block - 1 : block + 1]
    )
    everything = [LedgerId(scope, ledger) for scope in range(4) for ledger in range(150)]
    with RocksIndex(tmp_path) as index:
        listing = index.list_readable_ledgers()
        assert [n for n in everything if not low < n <= high] == listing.ledgers
        (unknown,) = listing.unknown
        assert [low < n <= high for n in everything] == list(map(unknown.includes, everything))
        for scope in range(4):
            is_touched = low.scope <= scope <= high.scope
            assert is_touched == bool(index.list_readable_ledgers(scope).unknown)
            if not is_touched:
                assert [LedgerId(scope, n) for n in range(150)] == index.ledgers(scope)
