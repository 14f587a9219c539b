"""Interrupted rescues: what the next run takes over, and what it does not."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from bkstore.formats.metadata.json_file import decode_file
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.rescue import RescueJob, WantedLedgers, open_source, staged_output
from bkstore.rescue.outputs import FolderOutput, ParquetOutput
from tests.rescue.disks.failing_disks import FailingDisk
from tests.rescue.killed_rescues import small_batches
from tests.rescue.rescue_runs import read_folder
from tests.rescue.rescue_worlds import RescueWorld


class Interrupted(Exception):
    """The rescue ends here."""


class ResumedRescue:
    """Rescues of a world to one OUT, with the entries that each run has read."""

    def __init__(self, world: RescueWorld, out: Path) -> None:
        self.world = world
        self.out = out
        self.read: list[tuple[LedgerId, int]] = []
        self.log = out.with_name(f"{out.name}.partial") / "checkpoints" / "log"

    @property
    def entries(self) -> list[tuple[LedgerId, int]]:
        """All entries of all ledgers, in order."""
        ledgers = sorted(self.world.ledgers.items())
        return [(ledger_id, entry) for ledger_id, each in ledgers for entry in each.records]

    def run(
        self,
        *,
        stop_after: int | None = None,
        before_writing: Callable[[], None] = lambda: None,
        output: type[FolderOutput | ParquetOutput] = FolderOutput,
    ) -> RescueJob:
        """Rescue, and stop when so many entries have been written by this run."""
        self.read = []
        metadata = {each: ledger.metadata for each, ledger in self.world.ledgers.items()}
        with ExitStack() as stack:
            sources = [
                stack.enter_context(open_source(self.world.path(bookie), bookie))
                for bookie in self.world.bookies
            ]
            job = RescueJob(sources, WantedLedgers(metadata), jobs=1)
            staging = stack.enter_context(staged_output(self.out))
            job.survey(staging.surveys, staging.work)
            before_writing()
            opened = stack.enter_context(output(staging.data))
            add = opened.add

            def add_counted(plan, records) -> None:  # type: ignore[no-untyped-def]
                if stop_after is not None and len(self.read) >= stop_after:
                    raise Interrupted
                self.read += [(plan.metadata.ledger, entry) for entry in records.entries.tolist()]
                add(plan, records)

            opened.add = add_counted  # type: ignore[method-assign]
            job.write_to(opened, staging.checkpoints)
            staging.finish()
        return job

    def interrupt(self, stop_after: int) -> None:
        """Run until so many entries are written."""
        with pytest.raises(Interrupted):
            self.run(stop_after=stop_after)

    def entries_after_checkpoint(self) -> list[tuple[LedgerId, int]]:
        """Return the entries after the last complete checkpoint, as its file states them."""
        rows = [json.loads(line) for line in self.log.read_bytes().split(b"\n")[:-1]]
        *ids, last_entry = rows[-1]["position"]
        return [each for each in self.entries if each > (LedgerId(*ids), last_entry)]

    def check_output(self) -> None:
        """Compare OUT with what was written once."""
        for ledger_id, ledger in self.world.ledgers.items():
            assert read_folder(self.out, ledger_id) == ledger.payloads


@pytest.fixture
def resumed(tmp_path: Path) -> Iterator[ResumedRescue]:
    """Yield rescues of a world with several ledgers, in small batches."""
    world = RescueWorld(tmp_path / "world", seed=1)
    assert len(world.ledgers) > 2
    with small_batches():
        yield ResumedRescue(world, tmp_path / "out")


def test_only_the_rest_is_read(resumed: ResumedRescue) -> None:
    """After a checkpoint, in the middle of a ledger, no entry before it is read again."""
    resumed.interrupt(len(resumed.entries) * 2 // 3)
    remaining = resumed.entries_after_checkpoint()
    assert 0 < len(remaining) < len(resumed.entries)
    assert remaining[0][1] > 0

    job = resumed.run()
    assert resumed.read == remaining
    assert job.is_whole
    resumed.check_output()


def test_before_the_first_checkpoint(resumed: ResumedRescue) -> None:
    """Nothing is taken over that no checkpoint has."""
    resumed.interrupt(1)
    assert len(resumed.log.read_bytes().splitlines()) == 1

    resumed.run()
    assert resumed.read == resumed.entries
    resumed.check_output()


@pytest.mark.parametrize("line", [b'{"position": [0, 99', b"\0" * 40, b""])
def test_a_line_that_was_not_completed(resumed: ResumedRescue, line: bytes) -> None:
    """A checkpoint that a kill has cut off does not count, and the next one replaces it."""
    resumed.interrupt(len(resumed.entries) // 2)
    remaining = resumed.entries_after_checkpoint()
    with resumed.log.open("ab") as file:
        file.write(line)
    resumed.interrupt(len(remaining) // 2)
    assert len(resumed.entries_after_checkpoint()) < len(remaining)

    resumed.run()
    resumed.check_output()


def test_a_changed_disk_starts_over(resumed: ResumedRescue) -> None:
    """A disk that is given to the second run, but was not to the first, may have better copies."""
    missing = resumed.world.bookies[-1]
    resumed.world.bookies.remove(missing)
    resumed.interrupt(20)
    assert resumed.entries_after_checkpoint()
    resumed.world.bookies.append(missing)

    resumed.run()
    assert resumed.read == resumed.entries
    resumed.check_output()


@pytest.mark.parametrize(
    "change",
    [
        lambda each: replace(each, password=b"another"),
        lambda each: replace(each, custom_metadata={"application": b"another"}),
        lambda each: replace(each, ctime=5),
    ],
)
def test_changed_metadata_start_over(
    resumed: ResumedRescue, change: Callable[[LedgerMetadata], LedgerMetadata]
) -> None:
    """What is written depends on the metadata too: with other ones all is written again."""
    resumed.interrupt(0)
    key = json.loads(resumed.log.read_bytes().splitlines()[0])
    ledger = max(resumed.world.ledgers.items())[1]
    ledger.metadata = change(ledger.metadata)

    resumed.interrupt(0)
    assert json.loads(resumed.log.read_bytes().splitlines()[0]) != key


def test_a_changed_cookie_starts_over(resumed: ResumedRescue) -> None:
    """New bookies have the instance id of the old cookies."""
    resumed.interrupt(0)
    header = resumed.log.read_bytes().splitlines()[0]
    for path in resumed.world.top.rglob("VERSION"):
        path.write_bytes(path.read_bytes().replace(b"world", b"other"))

    resumed.interrupt(0)
    assert resumed.log.read_bytes().splitlines()[0] != header


def test_another_form_starts_over(resumed: ResumedRescue) -> None:
    """OUT has files of the second form only."""
    resumed.interrupt(len(resumed.entries) // 2)

    resumed.run(output=ParquetOutput)
    assert resumed.read == resumed.entries
    names = {path.name.partition("-")[0] for path in resumed.out.rglob("*")}
    assert names == {"entries", "metadata.json"}


def test_what_could_not_be_read_stays_lost(resumed: ResumedRescue) -> None:
    """An entry that the first run could not read again is in the second run's account."""
    ledger_id, entry = resumed.entries[0]
    record = resumed.world.ledgers[ledger_id].records[entry]

    with pytest.MonkeyPatch.context() as patch:
        disk = FailingDisk(patch)

        def damage() -> None:
            """Let all copies of the record fail after the survey."""
            for bookie in resumed.world.bookies:
                disk.fail_at(resumed.world.data_files(bookie), record)

        with pytest.raises(Interrupted):
            resumed.run(stop_after=len(resumed.entries) // 2, before_writing=damage)
    job = resumed.run()

    lost: Mapping[LedgerId, list[int]] = {
        row.ledger: list(row.entries) for row in job.account() if row.kind == "lost"
    }
    assert lost == {ledger_id: [entry]}
    assert entry not in read_folder(resumed.out, ledger_id)


def test_a_disk_that_fails_for_a_while_is_read_again(resumed: ResumedRescue) -> None:
    """What the first run could not read, and so has left out, the second one writes. Both runs find
    other damage on each disk."""
    ledger_id, entry = resumed.entries[0]
    record = resumed.world.ledgers[ledger_id].records[entry]
    for bookie in resumed.world.bookies:
        (resumed.world.path(bookie) / "ledgers" / "current" / "ffff.log").write_bytes(b"damage")
    with pytest.MonkeyPatch.context() as patch:
        disk = FailingDisk(patch)
        for bookie in resumed.world.bookies:
            disk.fail_at(resumed.world.data_files(bookie), record)
        resumed.interrupt(len(resumed.entries) // 2)
    assert resumed.entries[0] not in resumed.read

    job = resumed.run()
    assert job.is_whole
    assert resumed.read == resumed.entries
    resumed.check_output()


def test_a_better_copy_of_a_file_is_read(resumed: ResumedRescue) -> None:
    """It has the size and the modification time of the one before, as copies often have."""
    ledger_id, entry = resumed.entries[0]
    record = resumed.world.ledgers[ledger_id].records[entry]
    paths = [each for bookie in resumed.world.bookies for each in resumed.world.data_files(bookie)]
    sound = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}
    for bookie in resumed.world.bookies:
        resumed.world.flip(bookie, record)
    for path, (_, time) in sound.items():
        os.utime(path, ns=(time, time))
    resumed.interrupt(len(resumed.entries) // 2)
    for path, (data, time) in sound.items():
        path.write_bytes(data)
        os.utime(path, ns=(time, time))

    assert resumed.run().is_whole
    resumed.check_output()


def test_ledgers_that_nobody_closed(resumed: ResumedRescue) -> None:
    """Their lengths are those of records that the first run has read."""
    for ledger in resumed.world.ledgers.values():
        fields = {"state": "OPEN", "last_entry_id": -1, "length": 0}
        ledger.metadata = replace(ledger.metadata, **fields)  # type: ignore[arg-type]
    resumed.interrupt(len(resumed.entries) * 2 // 3)
    resumed.run()

    resumed.check_output()
    assert (min(resumed.world.ledgers), 0) not in resumed.read
    saved_ledgers = decode_file((resumed.out / "metadata.json").read_bytes()).ledgers
    saved = {each.ledger: each for each in saved_ledgers}
    for ledger_id, ledger in resumed.world.ledgers.items():
        assert saved[ledger_id].length == sum(map(len, ledger.payloads.values()))


def test_a_link_is_not_followed(resumed: ResumedRescue, tmp_path: Path) -> None:
    """A link in the place of the data would lead writes elsewhere."""
    resumed.interrupt(len(resumed.entries) // 2)
    elsewhere = tmp_path / "elsewhere"
    data = resumed.log.parents[1] / "data"
    data.rename(elsewhere)
    data.symlink_to(elsewhere)
    before = sorted(elsewhere.rglob("*"))

    resumed.run()
    assert resumed.read == resumed.entries
    assert sorted(elsewhere.rglob("*")) == before
    resumed.check_output()
