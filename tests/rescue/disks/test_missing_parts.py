"""Bookies of which a directory or a journal is not here, and where open ledgers end then."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from bkstore import Bookie
from bkstore.errors import InvalidArgument
from bkstore.formats.entry import Coder, RecordBatch, master_key
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.offline.rewrite.recovered_ledger_states import read_source_ledgers
from bkstore.rescue import RescueJob, WantedLedgers, infer_metadata, open_source

BOOKIES = ("b1", "b2", "b3")
OPEN_LEDGER = LedgerMetadata(7, 3, 3, 2, [(0, BOOKIES)], digest_type="CRC32C", password=b"pw")


def write_bookies(top: Path) -> None:
    """Write entries 0-9 of an open ledger to index and log, and 10-19 to journals alone."""
    records = Coder("CRC32C", b"pw").encode_many(7, range(20), [b"entry %d" % e for e in range(20)])
    for bookie_id in BOOKIES:
        for entries, is_flushed in ((range(10), True), (range(10, 20), False)):
            with Bookie.open(top / bookie_id, "sorted", bookie_id=bookie_id) as bookie:
                batch = RecordBatch.of([records[entry] for entry in entries], list(entries))
                bookie.add_batch(batch, master_key(b"pw"))
                bookie.sync()
                bookie.close(checkpoint=is_flushed)


def rescue(top: Path, metadata: LedgerMetadata = OPEN_LEDGER) -> RescueJob:
    """Survey all bookies that are there."""
    sources = [open_source(top / each, each) for each in BOOKIES if (top / each).exists()]
    job = RescueJob(sources, WantedLedgers({metadata.ledger: metadata}), jobs=1)
    job.run_without_output()
    for source in sources:
        source.close()
    return job


def kinds(job: RescueJob) -> list[str]:
    """Return the kinds of the account's rows."""
    return [row.kind for row in job.account()]


def details(job: RescueJob, bookie_id: str) -> list[str]:
    """Return what is found of one bookie."""
    return [finding.detail for owner, finding in job.findings() if owner == bookie_id]


def test_complete_bookies_have_nothing_missing(tmp_path: Path) -> None:
    """The ledger ends with its last entry, for certain."""
    write_bookies(tmp_path)

    job = rescue(tmp_path)

    assert kinds(job) == ["whole"]
    assert job.plans[LedgerId(0, 7)].last_entry == 19
    assert not list(job.findings())


def test_without_journal_disks_the_end_is_not_certain(tmp_path: Path) -> None:
    """The acknowledged entries 10-19 were on the journal disks alone."""
    write_bookies(tmp_path)
    for bookie_id in BOOKIES:
        shutil.rmtree(tmp_path / bookie_id / "journal")

    job = rescue(tmp_path)

    assert kinds(job) == ["partial", "end"]
    assert job.plans[LedgerId(0, 7)].last_entry == 9
    journal = tmp_path / "b1" / "journal"
    assert details(job, "b1") == [
        f"1 of the 2 directories of the cookie are here (not {journal})",
        "no journal is here: entries that were only there are lost",
    ]


def test_without_the_files_of_journals_the_end_is_not_certain(tmp_path: Path) -> None:
    """The directories are there, but empty; no cookie names them."""
    write_bookies(tmp_path)
    for path in [*tmp_path.rglob("*.txn"), *tmp_path.rglob("VERSION")]:
        path.unlink()

    assert kinds(rescue(tmp_path)) == ["partial", "end"]


def test_with_journals_alone_the_end_is_not_certain(tmp_path: Path) -> None:
    """Older entries may have been in entry logs alone; no cookie names their directories."""
    write_bookies(tmp_path)
    for bookie_id in BOOKIES:
        shutil.rmtree(tmp_path / bookie_id / "ledgers")
    for path in tmp_path.rglob("VERSION"):
        path.unlink()

    job = rescue(tmp_path)

    assert kinds(job) == ["partial", "end"]
    assert job.plans[LedgerId(0, 7)].last_entry == 19
    assert details(job, "b1") == ["journals only: what was flushed before them is lost"]


def test_the_journal_of_the_last_mark_is_missing(tmp_path: Path) -> None:
    """An older journal is there, but not the one from which a replay starts."""
    write_bookies(tmp_path)
    names = {}
    for bookie_id in BOOKIES:
        marked, newest = sorted((tmp_path / bookie_id / "journal" / "current").glob("*.txn"))
        newest.unlink()
        marked.rename(marked.with_name("1.txn"))
        names[bookie_id] = marked.name

    job = rescue(tmp_path)

    assert kinds(job) == ["partial", "end"]
    assert details(job, "b2") == [f"journal {names['b2']} is missing: lastMark names it"]


@pytest.mark.parametrize("mark", [b"", bytes(7), bytes(16), b"\xff" * 16])
def test_a_lost_or_damaged_mark_hides_nothing(tmp_path: Path, mark: bytes) -> None:
    """All journals are read from their start."""
    write_bookies(tmp_path)
    for path in tmp_path.rglob("lastMark"):
        path.write_bytes(mark)

    assert kinds(rescue(tmp_path)) == ["whole"]


def test_several_journals_have_a_mark_each(tmp_path: Path) -> None:
    """Without a cookie, the numbers of the marks show that there are several journals; a mark of
    the time when there was one does not count."""
    write_bookies(tmp_path)
    for path in tmp_path.rglob("VERSION"):
        path.unlink()
    for path in tmp_path.rglob("lastMark"):
        shutil.copy(path, path.with_name("lastMark.0"))
        path.with_name("lastMark.1").write_bytes((5).to_bytes(8, "big") + bytes(8))
        path.write_bytes((4).to_bytes(8, "big") + bytes(8))

    assert details(rescue(tmp_path), "b3") == ["journal 5.txn is missing: lastMark.1 names it"]


def test_closed_ledgers_end_where_they_were_closed(tmp_path: Path) -> None:
    """What was in the missing journals is lost, and the reason names them."""
    write_bookies(tmp_path)
    for bookie_id in BOOKIES:
        shutil.rmtree(tmp_path / bookie_id / "journal")

    job = rescue(tmp_path, replace(OPEN_LEDGER, state="CLOSED", last_entry_id=19, length=170))

    (lost,) = [row for row in job.account() if row.kind == "lost"]
    assert lost.entries.ranges().tolist() == [[10, 19]]
    reason = "no copy, and parts of its disks are missing or unreadable"
    assert lost.detail == "; ".join(f"{each}: {reason}" for each in BOOKIES)


@pytest.mark.parametrize("cookie", [b"", b"5\nbookieHost: \xff", b"9\n"])
def test_a_damaged_cookie_is_named_and_the_disk_is_read(tmp_path: Path, cookie: bytes) -> None:
    """Only b1 has all entries, and none of its cookies can be read."""
    write_bookies(tmp_path)
    shutil.rmtree(tmp_path / "b2")
    shutil.rmtree(tmp_path / "b3")
    paths = sorted((tmp_path / "b1").rglob("VERSION"))
    for path in paths:
        path.write_bytes(cookie)

    job = rescue(tmp_path, replace(OPEN_LEDGER, state="CLOSED", last_entry_id=19, length=170))

    assert kinds(job) == ["whole"]
    assert [finding.file for _, finding in job.findings()] == [str(path) for path in paths]


def test_without_a_readable_cookie_the_bookie_needs_its_id(tmp_path: Path) -> None:
    """The id is given with the directory, or the rescue asks for it."""
    write_bookies(tmp_path)
    for path in (tmp_path / "b1").rglob("VERSION"):
        path.write_bytes(b"damaged")

    with pytest.raises(InvalidArgument, match="no cookie identifies the bookie"):
        open_source(tmp_path / "b1")


@pytest.mark.parametrize("mark", [b"\xff" * 16, b"\x7f" * 16])
def test_a_damaged_mark_hides_no_ledger(tmp_path: Path, mark: bytes) -> None:
    """A ledger that only journals have is inferred, though a mark says that all of it is flushed;
    its fence may be in a journal that is missing."""
    write_bookies(tmp_path)
    for path in tmp_path.rglob("*.idx"):
        path.unlink()
    with Bookie.open(tmp_path / "b1", "sorted") as bookie:
        (record,) = Coder("CRC32C", b"pw").encode_many(9, [0], [b"in the journal"])
        bookie.add_entry(record, master_key(b"pw"))
        bookie.sync()
        bookie.close(checkpoint=False)
    (tmp_path / "b1" / "ledgers" / "current" / "lastMark").write_bytes(mark)

    with open_source(tmp_path / "b1") as source:
        inferred = infer_metadata([source])
        known = read_source_ledgers(source.directory, [])

    assert LedgerId(0, 9) in inferred.wanted.metadata
    assert known.state(LedgerId(0, 9)).fenced
