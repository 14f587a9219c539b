"""A rescue in a process of its own, which prints its cost.

`python -m tools.bench.inputs.rescue_process make TOP LEDGERS ENTRIES PAYLOAD` writes the
directories of three bookies below TOP: ledgers with two replicas of each entry, flushed, with their
journals. `python -m tools.bench.inputs.rescue_process FORM TOP JOBS` rescues them and prints a JSON
object: the rescued entries, CPU seconds of all processes and wall seconds of both steps, and the
peak resident size of the largest process.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from bkstore import Bookie
from bkstore.files.disk_changes import UnsyncedFiles
from bkstore.formats.entry import Coder, RecordBatch, master_key
from bkstore.formats.metadata.json_file import ClusterMetadata, decode_file, encode_file
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata, Segment
from bkstore.rescue import RescueJob, WantedLedgers, open_source, staged_output
from bkstore.rescue.outputs import BookieDirectoriesOutput, FolderOutput, ParquetOutput
from bkstore.rescue.rescue_job import RescueOutput
from bkstore.rescue.staging import RescueStaging
from bkstore.storage.options import StorageKind
from tools.bench.inputs.own_memory import MAXRSS_UNIT_BYTES, peak_memory

STORAGE_OF_BOOKIE: dict[str, StorageKind] = {"b1": "sorted", "b2": "db", "b3": "sorted"}
FORMS = ("folders", "parquet", "bookies")
_PASSWORD = b"secret"
_BATCH_ENTRIES = 2000


def make_bookies(top: Path, ledgers: int, entries: int, payload_size: int) -> None:
    """Write the directories of three bookies, and the ledgers' metadata."""
    payload = np.random.default_rng(1).bytes(payload_size)
    coder, key = Coder("CRC32C", _PASSWORD), master_key(_PASSWORD)
    bookies = list(STORAGE_OF_BOOKIE)
    metadata = []
    with ExitStack() as stack:
        opened = []
        for bookie_id, kind in STORAGE_OF_BOOKIE.items():
            path = top / bookie_id
            bookie = Bookie.open(path, kind, bookie_id=bookie_id, files=UnsyncedFiles())
            opened.append(stack.enter_context(bookie))
        for ledger in range(ledgers):
            for first in range(0, entries, _BATCH_ENTRIES):
                entry_ids = np.arange(first, min(first + _BATCH_ENTRIES, entries))
                records = coder.encode_many(ledger, entry_ids, [payload] * entry_ids.size)
                for index, bookie in enumerate(opened):
                    rows = np.flatnonzero((index - entry_ids) % 3 < 2)
                    batch = RecordBatch.of([records[row] for row in rows], entry_ids[rows])
                    bookie.add_batch(batch, key)
            metadata.append(
                LedgerMetadata(
                    LedgerId.of(ledger),
                    3,
                    2,
                    2,
                    (Segment(0, tuple(bookies)),),
                    state="CLOSED",
                    last_entry_id=entries - 1,
                    length=entries * payload_size,
                    digest_type="CRC32C",
                    password=_PASSWORD,
                )
            )
    data = encode_file(ClusterMetadata(tuple(metadata)), passwords=True)
    (top / "metadata.json").write_bytes(data)


def _rescue(form: str, top: Path, jobs: int) -> dict[str, float]:
    ledgers = decode_file((top / "metadata.json").read_bytes()).ledgers
    with ExitStack() as stack:
        sources = [stack.enter_context(open_source(top / each, each)) for each in STORAGE_OF_BOOKIE]
        job = RescueJob(sources, WantedLedgers({each.ledger: each for each in ledgers}), jobs=jobs)
        staging = stack.enter_context(staged_output(top / "out"))
        before = _cost_so_far()
        job.survey(staging.surveys, staging.work)
        after_survey = _cost_so_far()
        with _make_output(form, staging) as output:
            job.write_to(output, staging.checkpoints)
        staging.finish()
        after_writing = _cost_so_far()
    shutil.rmtree(top / "out")
    costs = {"survey": after_survey - before, "writing": after_writing - after_survey}
    figures: dict[str, float] = {
        f"{step} {unit}": float(cost)
        for step, both in costs.items()
        for unit, cost in zip(("cpu", "seconds"), both)
    }
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * MAXRSS_UNIT_BYTES
    rescued = sum(len(row.entries) for row in job.account() if row.kind == "whole")
    return figures | {"entries": rescued, "peak": max(peak_memory(), children)}


def _make_output(form: str, staging: RescueStaging) -> RescueOutput:
    if form == "bookies":
        return BookieDirectoriesOutput(staging.data, staging.out)
    return (ParquetOutput if form == "parquet" else FolderOutput)(staging.data)


def _cost_so_far() -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return CPU seconds of this process and its ended children, and the clock."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    return np.array([cpu, time.perf_counter()])


if __name__ == "__main__":
    command, directory, *numbers = sys.argv[1:]
    if command == "make":
        make_bookies(Path(directory), *map(int, numbers))
    else:
        print(json.dumps(_rescue(command, Path(directory), *map(int, numbers))))
