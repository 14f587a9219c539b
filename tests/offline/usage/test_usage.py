"""Usage of a bookie's disk: whose bytes they are, and what garbage collection gives back."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from bkstore import BookieDir, CorruptionError, InvalidArgument, LedgerId, LedgerStorage
from bkstore.formats.entry import Coder
from bkstore.formats.entrylog import LogHeader, encode_header
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.offline.usage import LiveLedgers, LogUsage, Usage, read_live_list
from bkstore.storage.options import StorageKind, StorageOptions
from tests.worlds.dumps import record, write_log

KINDS: list[StorageKind] = ["sorted", "interleaved", "db"]
CODER = Coder("CRC32C", "pw")
KEY = b"k" * 20
OPTIONS = StorageOptions(entry_log_size=8 << 10, auto_flush=True)
WIDE = LedgerId(5, 9)


def _filled(top: Path, kind: StorageKind, directories: int = 1) -> list[Path]:
    """Return the ledger directories of a storage with some small logs of mixed ledgers."""
    places = [top / f"ledgers{number}" for number in range(directories)]
    with LedgerStorage.open(places, kind, options=OPTIONS) as storage:
        for turn in range(6):
            for ledger in (1, 2, 3, WIDE):
                name = LedgerId.of(ledger)
                share = 40 if name.ledger == turn % 3 + 1 else 3
                span = range(turn * 40, turn * 40 + share)
                payloads = [bytes(60) for _ in span]
                storage.add_entries(CODER.encode_many(name, span, payloads), master_key=KEY)
            storage.checkpoint()
    return places


def _gone_through(bookie: BookieDir, live: set[LedgerId] | None = None, **shares: float) -> Usage:
    usage = Usage(bookie, live, **shares)
    list(usage.logs())
    return usage


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("threshold", [0.0, 0.5, 0.8, 1.0])
def test_garbage_collection_does_what_is_foretold(
    tmp_path: Path, kind: StorageKind, threshold: float
) -> None:
    """Logs that go, logs that are compacted, bytes that are given back: as the pass does it."""
    _filled(tmp_path, kind)
    live = {LedgerId.of(1), WIDE}
    with BookieDir(tmp_path) as bookie:
        usage = Usage(bookie, live, threshold)
        logs = list(usage.logs())
    with LedgerStorage.open(tmp_path / "ledgers0", kind, options=OPTIONS) as storage:
        report = storage.collect_garbage(live, threshold=threshold)
    compact = {log.log.log_id for log in logs if log.fate == "compact"}
    remove = {log.log.log_id for log in logs if log.fate == "remove"}
    moved = report.moved_bytes + 4 * report.moved_entries

    assert len(logs) > 4
    assert compact == {log_id for _, log_id in report.compacted_logs}
    assert remove | compact == {log_id for _, log_id in report.removed_logs}
    assert moved == usage.totals.moved_bytes
    assert report.removed_bytes - moved == usage.totals.given_back
    assert {1.0: True, 0.0: False}.get(threshold, bool(compact)) == bool(compact)


def test_ledgers_of_no_list_are_live(tmp_path: Path) -> None:
    """Without a list, what the index knows is live, and what it does not know is garbage."""
    _filled(tmp_path, "sorted")
    with LedgerStorage.open(tmp_path / "ledgers0", "sorted", options=OPTIONS) as storage:
        storage.collect_garbage([LedgerId.of(2), LedgerId.of(3), WIDE], threshold=None)
    with BookieDir(tmp_path) as bookie:
        usage = _gone_through(bookie)
    told = {each.ledger: each for each in usage.ledgers()}

    assert [LedgerId.of(1), LedgerId.of(2), LedgerId.of(3), WIDE] == list(told)
    assert [False, True, True, True] == [each.live for each in told.values()]
    assert (None, 0) == (told[LedgerId.of(1)].entries, told[LedgerId.of(1)].live_bytes)
    assert told[LedgerId.of(1)].bytes == usage.totals.garbage_bytes > 0
    assert (92, 92 * (4 + 36 + 60)) == (told[LedgerId.of(2)].entries, told[LedgerId.of(2)].bytes)


def test_sums_agree(tmp_path: Path) -> None:
    """Bytes by log, ledger and scope are the same bytes; twice gone through, they stay."""
    _filled(tmp_path, "db", 3)
    with BookieDir(tmp_path) as bookie:
        usage = Usage(bookie, [LedgerId.of(1)])
        for _ in range(2):
            logs = list(usage.logs())
        ledgers, scopes, totals = usage.ledgers(), usage.scopes(), usage.totals
        size = sum(os.stat(log.path).st_size for log in bookie.entry_logs)

    assert size == totals.file_bytes == totals.record_bytes + totals.other_bytes
    assert totals.record_bytes == sum(log.record_bytes for log in logs)
    assert totals.record_bytes == sum(each.bytes for each in ledgers)
    assert totals.record_bytes == sum(each.bytes for each in scopes)
    assert totals.live_bytes == sum(each.live_bytes for each in ledgers) > 0
    assert totals.live_bytes == sum(each.live_bytes for each in scopes)
    assert [(0, 3, 1), (5, 1, 0)] == [(s.scope, s.ledgers, s.live_ledgers) for s in scopes]
    assert len(logs) == totals.logs


def test_db_ledgers_live_in_their_own_directory(tmp_path: Path) -> None:
    """What another directory's log has of a ledger of db storage is garbage there."""
    (first, second) = _filled(tmp_path, "db", 2)
    log = max((first / "current").glob("*.log"), key=lambda path: path.stat().st_size)
    (second / "current" / "7f.log").write_bytes(log.read_bytes())
    with BookieDir(tmp_path) as bookie:
        logs = {(log.log.dir_index, log.log.log_id): log for log in Usage(bookie).logs()}

    assert not logs[1, 0x7F].live_ledgers
    assert logs[1, 0x7F].ledgers == logs[0, int(log.stem, 16)].live_ledgers
    assert "remove" == logs[1, 0x7F].fate


def test_logs_pinned_by_little(tmp_path: Path) -> None:
    """A log is pinned where some, but less than the share asked for, of its records is live."""
    _filled(tmp_path, "interleaved")
    with BookieDir(tmp_path) as bookie:
        usage = Usage(bookie, [LedgerId.of(1)], pinned=0.3)
        logs = list(usage.logs())
        pinned = [log for log in logs if usage.is_pinned(log)]
        assert logs == list(usage.logs())  # the sums below are those of one reading
        (ledger, *dead) = usage.ledgers()

    assert {(False, 0)} == {(each.live, each.pinned_logs) for each in dead}
    assert any(each.ledger in log.ledgers for log in pinned for each in dead)
    assert pinned == [log for log in logs if 0 < log.live_bytes < 0.3 * log.record_bytes]
    assert 0 < len(pinned) == usage.totals.pinned_logs == ledger.pinned_logs < len(logs)
    assert sum(log.log.bytes for log in pinned) == usage.totals.pinned_bytes


def _one_log(top: Path, tail: bytes, pointed: bool) -> LogUsage:
    """Return the usage of a log without a map: two ledgers, `tail` behind them."""
    items = [(LedgerId.of(1), 0, 100), (LedgerId.of(8), 0, 300)]
    path = top / "ledgers" / "current" / "7.log"
    places = write_log(path, iter(items))
    data = path.read_bytes()
    path.write_bytes(data + tail)
    with HierarchicalIndex(top / "ledgers", writable=True) as index:
        places = {**places, **({(LedgerId.of(1), 1): len(data) + 4} if pointed else {})}
        for entry in (0, 1):
            if (LedgerId.of(1), entry) in places:
                index.put(1, entry, 7 << 32 | places[LedgerId.of(1), entry])
    with BookieDir(top) as bookie:
        (log,) = Usage(bookie).logs()
    return log


@pytest.mark.parametrize(
    ("tail", "pointed", "fate"),
    [
        pytest.param(b"", False, "compact", id="whole"),
        pytest.param(b"\0\0\0\x64" + bytes(40), False, "compact", id="cut"),
        pytest.param(b"\0\0\0\x64" + bytes(40), True, "damaged", id="cut and in the index"),
        pytest.param(
            b"\xff" * 40 + b"\0\0\0\x64" + record(LedgerId.of(8), 1, 100),
            False,
            "damaged",
            id="damage inside",
        ),
    ],
)
def test_damaged_logs_stay(tmp_path: Path, tail: bytes, pointed: bool, fate: str) -> None:
    """A log is scanned without a map, and stays where damage may hide records of it."""
    log = _one_log(tmp_path, tail, pointed)

    assert (fate, "scan") == (log.fate, log.source)
    assert {LedgerId.of(1): 104} == log.live_ledgers
    assert (0 if fate == "damaged" else log.log.bytes - 104) == log.given_back


def test_an_unreadable_log_is_a_finding(tmp_path: Path) -> None:
    """A log that cannot be read is counted with its file, and the others follow."""
    (place,) = _filled(tmp_path, "sorted")
    (place / "current" / "ff.log").mkdir()
    with BookieDir(tmp_path) as bookie:
        usage = Usage(bookie)
        logs = list(usage.logs())

    assert (None, "damaged", 0) == (logs[-1].source, logs[-1].fate, logs[-1].given_back)
    assert all(log.source == "map" for log in logs[:-2])
    assert [str(place / "current" / "ff.log")] == [found.file for found in usage.findings]


def test_a_damaged_ledger_is_a_finding(tmp_path: Path) -> None:
    """Of a ledger whose index cannot be read, entries are None, and so are the rows' bytes."""
    (place,) = _filled(tmp_path, "sorted")
    (place / "current/0/1/1.idx").write_bytes(b"BKLE" + bytes(5))
    with BookieDir(tmp_path) as bookie:
        usage = _gone_through(bookie)
        (part,) = usage.index()

    assert None is usage.ledgers()[0].entries
    assert [LedgerId.of(1)] == [found.ledger for found in usage.findings]
    assert (None, None) == (part.rows, part.row_bytes)
    assert usage.ledgers()[0].bytes == usage.ledgers()[0].live_bytes


def test_lists_of_live_ledgers(tmp_path: Path) -> None:
    """Every text form of an id is taken, blank lines are skipped."""
    path = tmp_path / "live"
    path.write_text(f"1\n\n 0x10 \r\n{WIDE.qualified_name}\n{LedgerId.of(7).uuid}")

    assert {LedgerId.of(1), LedgerId.of(16), WIDE, LedgerId.of(7)} == read_live_list(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [("1\n2\nthree\n", "three"), ("1\n" + "2" * 300, "22222"), ("1\n2\0", "2")],
    ids=["word", "long", "NUL"],
)
def test_a_list_with_another_line_is_refused(tmp_path: Path, text: str, said: str) -> None:
    """A line that is no id is named with its file and offset; nothing is guessed."""
    path = tmp_path / "live"
    path.write_text(text)
    with pytest.raises(CorruptionError, match=said) as caught:
        read_live_list(path)

    assert (str(path), text.index(said)) == (caught.value.file, caught.value.offset)


def test_an_empty_list_is_refused(tmp_path: Path) -> None:
    """A list of nothing would make all bytes garbage: that is a mistake."""
    (tmp_path / "live").write_text("\n\n")
    with pytest.raises(InvalidArgument, match="lists no ledger"):
        read_live_list(tmp_path / "live")


def test_what_a_list_has_beside_the_index() -> None:
    """Ledgers that only the list has are counted, and not live."""
    live = LiveLedgers([LedgerId.of(1), LedgerId.of(2)], [LedgerId.of(2), LedgerId.of(3)])

    assert (1, False, True) == (live.unknown_count, LedgerId.of(3) in live, LedgerId.of(2) in live)
    for listed, unknown in (([], 0), ([1, 2, 3], 0), ([9], 1), ([1, 8, 9], 2)):
        found = LiveLedgers(map(LedgerId.of, (1, 2, 3)), map(LedgerId.of, listed))
        assert unknown == found.unknown_count


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan"), True])
def test_shares_are_checked(tmp_path: Path, share: float) -> None:
    """Threshold and pinned are shares, 0 to 1."""
    _filled(tmp_path, "sorted")
    with BookieDir(tmp_path) as bookie:
        for name in ("threshold", "pinned"):
            with pytest.raises(InvalidArgument, match=name):
                Usage(bookie, **{name: share})


def test_the_directory_stays_as_it_is(tmp_path: Path) -> None:
    """Usage changes no byte, and leaves no file."""
    _filled(tmp_path, "db", 2)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with BookieDir(tmp_path) as bookie:
        usage = _gone_through(bookie)
        usage.index()
        usage.cache_needs()

    assert before == {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}


def test_progress_is_told(tmp_path: Path) -> None:
    """Progress goes from log to log up to all of their bytes."""
    _filled(tmp_path, "sorted")
    seen: list[tuple[str, int, int, int]] = []
    with BookieDir(tmp_path) as bookie:
        count = len(list(Usage(bookie, progress=lambda *told: seen.append(told)).logs()))

    assert list(range(1, count + 1)) == [each[3] for each in seen]
    assert seen[-1][1] == seen[-1][2]
    assert (np.diff([each[1] for each in seen]) > 0).all()


def test_an_empty_log_goes(tmp_path: Path) -> None:
    """A log of a header only has nothing that is live: it would be removed."""
    (place,) = _filled(tmp_path, "sorted")
    (place / "current" / "ff.log").write_bytes(encode_header(LogHeader(1)))
    with BookieDir(tmp_path) as bookie:
        log = list(Usage(bookie).logs())[-1]

    assert ("remove", 1024, 0.0) == (log.fate, log.given_back, log.occupancy)
