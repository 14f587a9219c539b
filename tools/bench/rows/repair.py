"""Row: the repair of entries that a running bookie has lost, beside reads and adds alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import numpy as np

from bkstore.cluster import MemoryStore
from bkstore.formats.entry import Coder, RecordBatch, master_key
from bkstore.ids import Int64Array, LedgerId
from bkstore.lab.stores.bookie_process import BenchmarkBookie, bookie_process
from bkstore.ledger_metadata import LedgerMetadata, Segment
from bkstore.network import AuditedBookies, Client
from bkstore.repair import Repairer, RepairPlan
from tools.bench.cases import BenchmarkRow, Cases, Context, Fact, FactCase
from tools.bench.inputs.entry_ids import new_directory

LEDGERS, ENTRIES = 100, 10_000
_LOST_SHARE = 100
"""One entry in this many is lost."""

_PAYLOAD_SIZE = 100
_PASSWORD = b"secret"
_BATCH_ENTRIES = 2000


class LossyBookies:
    """Three bookies in processes, and ledgers on the first two, of which the second one lacks the
    same entries of each ledger. The third one takes the plain copies."""

    def __init__(self, context: Context, stack: ExitStack, lost: Int64Array) -> None:
        self.lost = lost
        self.store = MemoryStore()
        self.processes: list[BenchmarkBookie] = []
        self.names: list[str] = []
        for _ in range(3):
            process = stack.enter_context(bookie_process("db", new_directory(context)))
            self.processes.append(process)
            self.names.append(f"127.0.0.1:{process.address[1]}")
            self.store.register_bookie(self.names[-1])
        self.client = stack.enter_context(Client(self.store, timeout=120.0))
        self.sources = stack.enter_context(AuditedBookies(self.store, timeout=120.0))
        self.ledgers = [LedgerId.of(number) for number in range(context.scaled(LEDGERS, minimum=1))]
        for ledger in self.ledgers:
            self._write(ledger)

    def _write(self, ledger: LedgerId) -> None:
        source, lossy, _ = self.names
        length = ENTRIES * _PAYLOAD_SIZE
        self.store.create(
            LedgerMetadata(
                ledger,
                2,
                2,
                2,
                (Segment(0, (source, lossy)),),
                state="CLOSED",
                last_entry_id=ENTRIES - 1,
                length=length,
                digest_type="CRC32C",
                password=_PASSWORD,
            )
        )
        coder, key = Coder("CRC32C", _PASSWORD), master_key(_PASSWORD)
        payloads = [bytes(_PAYLOAD_SIZE)] * ENTRIES
        records = coder.encode_many(ledger, range(ENTRIES), payloads)
        for start in range(0, ENTRIES, _BATCH_ENTRIES):
            entry_ids = np.arange(start, start + _BATCH_ENTRIES)
            for name, kept in ((source, entry_ids), (lossy, np.setdiff1d(entry_ids, self.lost))):
                if kept.size:
                    batch = RecordBatch.of([records[entry] for entry in kept], kept)
                    self.client.bookies[name].add_batch(batch, key)

    def copy_plainly(self) -> None:
        """Read the lost entries from the first bookie and add them to the third one, unverified."""
        source, _, target = (self.client.bookies[name] for name in self.names)
        for ledger in self.ledgers:
            batch = source.read_many(ledger, self.lost.tolist(), {})
            target.add_batch(batch.framed(), master_key(_PASSWORD), recovery=True)

    def measure(self, name: str, entries: int, work: Callable[[], object]) -> list[Fact]:
        """Return what the work costs: entries a second, and the CPU of an entry."""
        bookies_before = sum(process.cpu_seconds() for process in self.processes)
        wall_before, client_before = time.perf_counter(), time.process_time()
        work()
        client_cpu, wall = time.process_time() - client_before, time.perf_counter() - wall_before
        bookie_cpu = sum(process.cpu_seconds() for process in self.processes) - bookies_before
        costs = {"client CPU": client_cpu, "bookies' CPU": bookie_cpu, "clock": wall}
        return [
            Fact(f"{name}: entries a second", round(entries / max(wall, 1e-9))),
            *(
                Fact(f"{name}: {label}, us an entry", round(seconds / entries * 1e6, 1))
                for label, seconds in costs.items()
            ),
        ]


def _repair_facts(cluster: LossyBookies) -> list[Fact]:
    """Return the costs of a plan, of its repair, and of a plain copy of the same entries."""
    lost_entries = len(cluster.ledgers) * cluster.lost.size
    repairer = Repairer(cluster.client.context, cluster.sources)
    plans: list[RepairPlan] = []
    facts = cluster.measure(
        "plan, of all entries",
        len(cluster.ledgers) * ENTRIES,
        lambda: plans.append(repairer.planner.plan()),
    )
    cluster.copy_plainly()  # warms up
    facts += cluster.measure("reads and adds alone", lost_entries, cluster.copy_plainly)
    facts += cluster.measure("repair", lost_entries, lambda: repairer.run(plans[0]))
    report = repairer.report
    is_whole = report.is_clean and report.copied_entries == lost_entries
    return [Fact.yes_or_no("all repaired, nothing else copied", is_whole), *facts]


def _repair_cases(context: Context) -> Cases:
    lost_count = ENTRIES // _LOST_SHARE
    losses = {
        "ranges": np.arange(lost_count) + ENTRIES // 2,
        "single entries": np.arange(lost_count) * _LOST_SHARE,
    }
    for name, lost in losses.items():
        with ExitStack() as stack:
            cluster = LossyBookies(context, stack, lost)
            entries = len(cluster.ledgers) * ENTRIES
            shape = (
                f"{len(cluster.ledgers)} ledgers of {ENTRIES} entries of {_PAYLOAD_SIZE} bytes, "
                f"2 replicas, db storage; one bookie has lost 1 % of its entries"
            )
            yield FactCase(name, entries, shape, partial(_repair_facts, cluster))


ROWS = (
    BenchmarkRow(
        "repair",
        "lost entries written again",
        "Bookies in processes of their own, metadata in memory. One bookie has lost 1 % of the "
        "entries, as ranges or one here and there. The repair plans each ledger again, verifies "
        "each record, adds it, reads it again and compares; beside it the same entries read by "
        "one call and added by one call for each ledger, unverified.",
        _repair_cases,
        long=True,
    ),
)
