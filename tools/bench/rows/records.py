"""Row: entries encoded and verified in batches, compared with a call for each."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bkstore.formats.entry import Coder, Entry, RecordBatch
from bkstore.ids import LedgerId
from tools.bench.cases import BenchmarkRow, Case, Cases, Context, TimedSide
from tools.bench.inputs.entry_ids import SCOPE_0, SCOPED

ENTRIES, PAYLOAD = 100_000, 60
_MIN_SPEEDUP = 5.0
"""The least speedup of `encode_batch` over single calls, for records of one size."""

_LEDGERS: tuple[tuple[str, LedgerId], ...] = (("", SCOPE_0), (", scoped", SCOPED))


def _encode_singly(coder: Coder, ledger_id: LedgerId, payloads: list[bytes]) -> list[bytes]:
    records, length = [], 0
    for entry_id, payload in enumerate(payloads):
        length += len(payload)
        records.append(coder.encode(Entry(ledger_id, entry_id, entry_id - 1, length, payload)))
    return records


def _decode_singly(coder: Coder, batch: RecordBatch, ledger_id: LedgerId) -> list[Entry]:
    return [coder.decode(record, ledger_id, entry_id) for entry_id, record in enumerate(batch)]


def _record_cases(context: Context) -> Cases:
    count = context.scaled(ENTRIES)
    rng = np.random.default_rng(context.seed)
    mixed = [rng.bytes(int(size)) for size in rng.integers(0, 2 * PAYLOAD, count)]
    equal = [rng.bytes(PAYLOAD) for _ in range(count)]
    crc, hmac = Coder("CRC32C", "pw"), Coder("HMAC", "pw")
    for suffix, ledger_id in _LEDGERS:
        equal_shape, mixed_shape = f"{PAYLOAD} bytes{suffix}", f"0 to {2 * PAYLOAD}{suffix}"
        yield from _encode_and_verify_cases(crc, ledger_id, equal, equal_shape, _MIN_SPEEDUP)
        yield from _encode_and_verify_cases(crc, ledger_id, mixed, mixed_shape)
    yield from _encode_and_verify_cases(hmac, SCOPE_0, equal, f"{PAYLOAD} bytes")


def _encode_and_verify_cases(
    coder: Coder, ledger_id: LedgerId, payloads: list[bytes], shape: str, limit: float | None = None
) -> Iterator[Case]:
    ids = np.arange(len(payloads))
    batch = coder.encode_batch(ledger_id, ids, payloads)
    title, data = f"{coder.digest.name}, {shape}", f"{len(payloads)} entries of one ledger"
    encode = TimedSide("encode_batch", lambda: coder.encode_batch(ledger_id, ids, payloads))
    singly = TimedSide("encode, one by one", lambda: _encode_singly(coder, ledger_id, payloads))
    yield Case(f"encode, {title}", len(payloads), data, encode, (singly,), limit=limit)
    decode = TimedSide("decode_batch", lambda: coder.decode_batch(batch, ledger_id))
    singly = TimedSide("decode, one by one", lambda: _decode_singly(coder, batch, ledger_id))
    yield Case(f"verify, {title}", len(payloads), data, decode, (singly,))


ROWS = (
    BenchmarkRow(
        "records",
        "entries encoded and verified in batches",
        "A list of payloads becomes records, digests included, and back, payloads left where they "
        "are in the batch; single calls count LAC and length by hand, as a writer does.",
        _record_cases,
    ),
)
