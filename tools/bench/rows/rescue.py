"""Row: the rescue of ledgers from the disks of three bookies, beside a plain read of these."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import cast

from tools.bench.cases import BenchmarkRow, Cases, Context, Fact, FactCase
from tools.bench.inputs.entry_ids import new_directory
from tools.bench.inputs.rescue_process import FORMS

LEDGERS = 10
PAYLOAD_SIZES = {"payloads of 1,000 bytes": (1000, 20_000), "payloads of 100 bytes": (100, 50_000)}
"""The bytes of a payload, and the entries of a ledger."""

_JOBS = 2


def _run_process(*arguments: object) -> str:
    command = [sys.executable, "-m", "tools.bench.inputs.rescue_process", *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _stored_bytes(top: Path) -> int:
    """Return the bytes of entry logs and journals, without the holes at their ends."""
    paths = [*top.rglob("current/*.log"), *top.rglob("*.txn")]
    statuses = [path.stat() for path in paths]
    return sum(min(status.st_size, 512 * status.st_blocks) for status in statuses)


def _rescue_facts(top: Path, entries: int) -> list[Fact]:
    """Return what each form of output costs."""
    megabytes = _stored_bytes(top) / 1e6
    facts: list[Fact] = []
    for form in FORMS:
        figures = cast(dict[str, float], json.loads(_run_process(form, top, _JOBS)))
        cpu = figures["survey cpu"] + figures["writing cpu"]
        seconds = figures["survey seconds"] + figures["writing seconds"]
        # The survey runs in two processes at once, the output is written by one.
        two_cores = figures["survey cpu"] / _JOBS + figures["writing cpu"]
        facts += [
            Fact.yes_or_no(f"{form}: all rescued", figures["entries"] == entries),
            Fact(f"{form}: survey, MB read a CPU second", round(megabytes / figures["survey cpu"])),
            Fact(f"{form}: all steps, MB read a CPU second", round(megabytes / cpu)),
            Fact(f"{form}: MB read a second, if two cores are free", round(megabytes / two_cores)),
            Fact(f"{form}: MB read a second, by the clock", round(megabytes / seconds)),
            Fact(f"{form}: peak memory of a process, MiB", round(figures["peak"] / (1 << 20))),
        ]
    return facts


def _rescue_cases(context: Context) -> Cases:
    for case_name, (payload_size, entries) in PAYLOAD_SIZES.items():
        top = Path(new_directory(context))
        ledgers = context.scaled(LEDGERS, minimum=1)
        _run_process("make", top, ledgers, entries, payload_size)
        shape = (
            f"{ledgers} ledgers of {entries} entries, 2 replicas on 3 bookies, two of them with "
            "sorted storage and one with db; entry logs and journals"
        )
        facts = partial(_rescue_facts, top, ledgers * entries)
        yield FactCase(case_name, ledgers * entries, shape, facts)


ROWS = (
    BenchmarkRow(
        "rescue",
        "ledgers out of the disks of a cluster",
        "Each record of each entry log and journal is read and verified by two processes, the best "
        "copy of each entry is read once more, verified, and written by one. MB read are the bytes "
        "of logs and journals. Two free cores: half of the survey's CPU, and that of writing.",
        _rescue_cases,
        long=True,
    ),
)
