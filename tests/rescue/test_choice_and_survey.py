"""Which copy is taken, what nobody can verify, and what a second run reads again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bkstore.errors import InvalidArgument
from bkstore.formats.entry import Coder
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.rescue import LedgerSecret, RescueJob, WantedLedgers, open_source, rescued_records
from bkstore.rescue.disks import survey as survey_module
from bkstore.rescue.disks.copies import Copies, locate
from bkstore.rescue.outputs import FolderOutput
from tests.rescue.rescue_runs import read_folder
from tests.rescue.rescue_worlds import RescueWorld, WrittenLedger


class SmallWorld(RescueWorld):
    """Three bookies, one ledger on all of them, of a digest type."""

    def __init__(self, top: Path, digest_type: str = "CRC32C") -> None:
        self.digest_type = digest_type
        super().__init__(top, seed=5)

    def _make_ledger(self, number: int) -> tuple[LedgerId, WrittenLedger]:
        payloads = [b"entry %04d of the ledger" % entry for entry in range(20)]
        metadata = LedgerMetadata(
            LedgerId(0, 7),
            len(self.bookies),
            len(self.bookies),
            2,
            [(0, self.bookies)],  # type: ignore[arg-type]
            state="CLOSED",
            last_entry_id=19,
            length=sum(map(len, payloads)),
            digest_type=self.digest_type,
            password=b"pw",
        )
        encoded = Coder(self.digest_type, b"pw").encode_many(7, range(20), payloads)
        return metadata.ledger, WrittenLedger(
            metadata, dict(enumerate(encoded)), dict(enumerate(payloads))
        )

    @property
    def ledger(self) -> WrittenLedger:
        """The ledger."""
        return self.ledgers[LedgerId(0, 7)]

    def overwrite(self, bookie: str, entry: int, payload: bytes) -> None:
        """Replace a record on one bookie by a valid one of another payload of the same size."""
        old = self.ledger.records[entry]
        coder = Coder(self.digest_type, b"pw")
        before = sum(len(self.ledger.payloads[each]) for each in range(entry))
        (new,) = coder.encode_many(7, [entry], [payload], lac=entry - 1, length=before)
        assert len(new) == len(old)
        for path in self.data_files(bookie):
            path.write_bytes(path.read_bytes().replace(old, new))


def job_of(world: SmallWorld, given: LedgerSecret | None = None, jobs: int = 1) -> RescueJob:
    """Return a rescue of the world's ledger, with its sources open."""
    sources = [open_source(world.path(bookie), bookie) for bookie in world.bookies]
    metadata = {ledger_id: each.metadata for ledger_id, each in world.ledgers.items()}
    return RescueJob(sources, WantedLedgers(metadata), given, jobs)


def write(job: RescueJob, folder: Path) -> dict[int, bytes]:
    """Write a rescue to a folder; return the payloads of the ledger."""
    (folder / "work").mkdir(parents=True)
    job.survey(folder / "surveys", folder / "work")
    with FolderOutput(folder / "out") as output:
        job.write_to(output)
    for source in job.bookies:
        source.close()
    return read_folder(folder / "out", LedgerId(0, 7))


@pytest.fixture
def world(tmp_path: Path) -> SmallWorld:
    """Return a world of several bookies."""
    made = SmallWorld(tmp_path / "world")
    assert len(made.bookies) >= 3
    return made


def test_what_most_copies_say_is_taken(world: SmallWorld, tmp_path: Path) -> None:
    """One bookie differs with a valid digest, on its index and everywhere: it is outvoted."""
    for bookie in world.bookies[1:]:
        world.lose_index(bookie)
    world.overwrite(world.bookies[0], 4, b"entry 0004 of a ledger ?")
    job = job_of(world)

    assert write(job, tmp_path / "run") == world.ledger.payloads
    assert [(row.kind, [*row.entries]) for row in job.account()][1:] == [("differing", [4])]
    assert not job.is_whole


def test_copies_may_have_other_lacs(world: SmallWorld, tmp_path: Path) -> None:
    """A recovery writes an entry again with another LAC: that is no difference."""
    bookie, old = world.bookies[0], world.ledger.records[4]
    length = sum(len(world.ledger.payloads[each]) for each in range(4))
    payload = world.ledger.payloads[4]
    (new,) = Coder("CRC32C", b"pw").encode_many(7, [4], [payload], lac=1, length=length)
    for path in world.data_files(bookie):
        path.write_bytes(path.read_bytes().replace(old, new))
    job = job_of(world)

    assert write(job, tmp_path / "run") == world.ledger.payloads
    assert [row.kind for row in job.account()] == ["whole"]


@pytest.mark.parametrize(
    ("digest_type", "kinds"), [("HMAC", ["whole", "unverified"]), ("DUMMY", ["whole"])]
)
def test_what_nobody_can_verify_is_taken(
    tmp_path: Path, digest_type: str, kinds: list[str]
) -> None:
    """HMAC without the password is said to be unverified; DUMMY has no digests."""
    world = SmallWorld(tmp_path / "world", digest_type)
    ledger = world.ledger
    ledger.metadata = replace(ledger.metadata, password=None)
    job = job_of(world)

    assert write(job, tmp_path / "run") == ledger.payloads
    assert [row.kind for row in job.account()] == kinds


def test_a_given_password_verifies(tmp_path: Path) -> None:
    """The password that is given decides for ledgers without one; a wrong one loses all."""
    world = SmallWorld(tmp_path / "world", "HMAC")
    ledger = world.ledger
    ledger.metadata = replace(ledger.metadata, password=None)
    for bookie in world.bookies[:2]:
        world.flip(bookie, ledger.records[9])
    for number, (password, count) in enumerate([(b"pw", 20), (b"other", 0)]):
        job = job_of(world, LedgerSecret(None, password))
        payloads = write(job, tmp_path / f"run{number}")
        assert len(payloads) == count
        assert payloads.items() <= ledger.payloads.items()
        assert "unverified" not in [row.kind for row in job.account()]


def test_a_second_run_reads_only_changed_files(
    world: SmallWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The surveys of an interrupted run are used again, unless a file has changed."""
    job = job_of(world)
    (tmp_path / "work").mkdir()
    job.survey(tmp_path / "surveys", tmp_path / "work")
    read: list[str] = []
    survey_file = survey_module.survey_file

    def counted(source, *rest):  # type: ignore[no-untyped-def]
        read.append(source.path)
        return survey_file(source, *rest)

    monkeypatch.setattr(survey_module, "survey_file", counted)
    changed = world.data_files(world.bookies[0])[0]
    for expected in ([], [str(changed)]):
        if expected:
            with changed.open("ab") as file:
                file.write(b"x")
        again = job_of(world)
        (tmp_path / f"work{len(expected)}").mkdir()
        again.survey(tmp_path / "surveys", tmp_path / f"work{len(expected)}")
        assert read == expected
        assert [plan.readable for plan in again.plans.values()] == [
            plan.readable for plan in job.plans.values()
        ]


@pytest.mark.long
def test_processes_find_the_same(world: SmallWorld, tmp_path: Path) -> None:
    """Two processes that read files give the account of one."""
    world.flip(world.bookies[0], world.ledger.records[3])
    accounts = []
    for jobs in (1, 2):
        job = job_of(world, jobs=jobs)
        assert write(job, tmp_path / f"run{jobs}") == world.ledger.payloads
        accounts.append([*job.account(), sorted(map(str, job.findings()))])
    assert accounts[0] == accounts[1]


def test_records_after_damage_in_a_journal(world: SmallWorld, tmp_path: Path) -> None:
    """Entry logs are gone, and a length in the middle of every journal is wrong."""
    for bookie in world.bookies:
        for path in world.path(bookie).rglob("ledgers/current/*.log"):
            path.unlink()
        world.lose_index(bookie)
        for path in world.data_files(bookie):
            data = path.read_bytes()
            record = world.ledger.records[8]
            framed = len(record).to_bytes(4, "big") + record
            path.write_bytes(data.replace(framed, b"\xff\xff\xfe\x01" + record))
    job = job_of(world)

    left = {entry for (_, entry), bookies in world.copies().items() if bookies}
    assert left >= set(range(20)) - {8}
    payloads = write(job, tmp_path / "run")
    assert set(payloads) >= set(range(20)) - {8}
    assert payloads.items() <= world.ledger.payloads.items()


def test_an_open_ledger_ends_at_the_first_entry_that_is_nowhere(
    world: SmallWorld, tmp_path: Path
) -> None:
    """Entries 0..16 are below the LAC of entry 17; 18 is on no disk, so 19 was not acknowledged."""
    ledger = world.ledger
    ledger.metadata = replace(ledger.metadata, state="OPEN", last_entry_id=-1, length=0)
    for bookie in world.bookies:
        for path in world.data_files(bookie):
            data = path.read_bytes()
            record = ledger.records[18]
            framed = len(record).to_bytes(4, "big") + record
            data = data.replace(framed, b"")
            # The writer that sent entry 19 knew entry 16 as confirmed.
            before = sum(len(ledger.payloads[each]) for each in range(19))
            (early,) = Coder("CRC32C", b"pw").encode_many(
                7, [19], [ledger.payloads[19]], lac=16, length=before
            )
            path.write_bytes(data.replace(ledger.records[19], early))
        world.lose_index(bookie)  # its rows point elsewhere now
    job = job_of(world)

    assert set(write(job, tmp_path / "run")) == set(range(18))
    rows = {row.kind: [*row.entries] for row in job.account()}
    assert rows == {"whole": [*range(18)], "unconfirmed": [19]}


@pytest.mark.parametrize("digest_type", ["HMAC", "DUMMY"])
def test_a_damaged_lac_that_nobody_can_verify(tmp_path: Path, digest_type: str) -> None:
    """It is not below its entry, as LACs are: it does not move the end of an open ledger."""
    world = SmallWorld(tmp_path / "world", digest_type)
    ledger = world.ledger
    fields = {"state": "OPEN", "last_entry_id": -1, "length": 0, "password": None}
    ledger.metadata = replace(ledger.metadata, **fields)  # type: ignore[arg-type]
    record = ledger.records[9]
    damaged = record[:16] + (1 << 40).to_bytes(8, "big") + record[24:]
    for path in world.data_files(world.bookies[0]):
        path.write_bytes(path.read_bytes().replace(record, damaged))
    job = job_of(world)

    assert set(write(job, tmp_path / "run")) == set(range(20))
    assert job.plans[LedgerId(0, 7)].last_entry == 19


def test_records_behind_many_zeros_in_a_journal(
    world: SmallWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The zeros are more than a bookie preallocates. The records are too far for a `LogReader`, as
    those of a journal of more than 4 GiB are."""
    monkeypatch.setattr(rescued_records, "_READER_BYTES", 16 << 20)
    for bookie in world.bookies[1:]:
        world.lose_bookie(bookie)
    (bookie,) = world.bookies
    for path in world.path(bookie).rglob("ledgers/current/*.log"):
        path.unlink()
    world.lose_index(bookie)
    for path in world.data_files(bookie):
        data = path.read_bytes()
        path.write_bytes(data[:512] + bytes(20 << 20) + data[512:])
    job = job_of(world)

    assert write(job, tmp_path / "run") == world.ledger.payloads
    assert any("after the zeros" in finding.detail for _, finding in job.findings())


def test_positions_of_large_journals() -> None:
    """A position has more bits than in an index; none gets into the number of the file."""
    positions = np.array([0, (1 << 32) - 1, 1 << 32, (1 << 40) - 1])
    columns = [np.zeros(4, np.int64)] * 2
    copies = Copies(LedgerId(0, 7), *columns, locate(8_388_607, positions), *columns)

    assert copies.position.tolist() == positions.tolist()
    assert copies.file_number.tolist() == [8_388_607] * 4
    for number, position in ((8_388_608, 0), (0, 1 << 40)):
        with pytest.raises(InvalidArgument):
            locate(number, np.array([position]))
