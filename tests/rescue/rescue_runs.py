"""Rescuing a world, and reading the output."""

from __future__ import annotations

import hashlib
from pathlib import Path

from bkstore.ids import LedgerId
from bkstore.rescue import RescueJob, WantedLedgers, open_source, staged_output
from bkstore.rescue.outputs import FolderOutput
from tests.rescue.rescue_worlds import RescueWorld


def fingerprints(top: Path) -> dict[str, str]:
    """Return a digest of each file."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(top.rglob("*"))
        if path.is_file()
    }


def rescue(world: RescueWorld, out: Path) -> tuple[RescueJob, dict[tuple[LedgerId, int], bytes]]:
    """Rescue a world to folders; return the job, and the payloads of the output."""
    sources = [open_source(world.path(bookie), bookie) for bookie in world.bookies]
    metadata = {ledger_id: ledger.metadata for ledger_id, ledger in world.ledgers.items()}
    before = fingerprints(world.top)
    job = RescueJob(sources, WantedLedgers(metadata), jobs=1)
    with staged_output(out) as staging:
        job.survey(staging.surveys, staging.work)
        with FolderOutput(staging.data) as output:
            job.write_to(output, staging.checkpoints)
        staging.finish()
    for source in sources:
        source.close()
    assert fingerprints(world.top) == before
    assert not out.with_name(out.name + ".partial").exists()
    return job, {
        (ledger_id, entry): payload
        for ledger_id in world.ledgers
        for entry, payload in read_folder(out, ledger_id).items()
    }


def read_folder(out: Path, ledger_id: LedgerId) -> dict[int, bytes]:
    """Return the payloads of a ledger in the output, by entry."""
    scope, ledger = ledger_id
    folder = out / (str(ledger) if scope == 0 else f"{scope:016x}{ledger:016x}")
    if not (folder / "entries.csv").exists():
        return {}
    payloads = (folder / "payloads").read_bytes()
    rows = [line.split(",") for line in (folder / "entries.csv").read_text().splitlines()[1:]]
    return {
        int(entry): payloads[int(offset) : int(offset) + int(size)]
        for entry, offset, size, *_ in rows
    }
