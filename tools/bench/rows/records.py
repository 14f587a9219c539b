"""Row: entries encoded and verified in batches, beside one call each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from bkstore.formats.entry import Coder, Entry, RecordBatch
from bkstore.ids import LedgerId
from tools.bench.inputs.entry_ids import SCOPE_0, SCOPED
from tools.bench.measure import Case, Context, Row, Side

ENTRIES, PAYLOAD = 100_000, 60
_AT_LEAST = 5.0
"""How many times the speed of single calls `encode_batch` must have, for records of one size."""

_LEDGERS: tuple[tuple[str, LedgerId], ...] = (("", SCOPE_0), (", scoped", SCOPED))


def _singly(coder: Coder, name: LedgerId, payloads: list[bytes]) -> list[bytes]:
    records, length = [], 0
    for entry, payload in enumerate(payloads):
        length += len(payload)
        records.append(coder.encode(Entry(name, entry, entry - 1, length, payload)))
    return records


def _verified(coder: Coder, batch: RecordBatch, name: LedgerId) -> list[Entry]:
    return [coder.decode(record, name, at) for at, record in enumerate(batch)]


@contextmanager
def _cases(context: Context) -> Iterator[Iterator[Case]]:
    count = context.scaled(ENTRIES)
    noise = np.random.default_rng(context.seed)
    mixed = [noise.bytes(int(size)) for size in noise.integers(0, 2 * PAYLOAD, count)]
    even = [noise.bytes(PAYLOAD) for _ in range(count)]

    def made() -> Iterator[Case]:
        for digest in ("CRC32C", "HMAC"):
            for suffix, name in _LEDGERS:
                for shape, payloads in (f"{PAYLOAD} bytes", even), (f"0 to {2 * PAYLOAD}", mixed):
                    if digest == "CRC32C" or (name is SCOPE_0 and payloads is even):
                        limit = _AT_LEAST if digest == "CRC32C" and payloads is even else None
                        coder = Coder(digest, "pw")
                        yield from _pair(coder, name, payloads, f"{shape}{suffix}", limit)

    yield made()


def _pair(
    coder: Coder, name: LedgerId, payloads: list[bytes], shape: str, limit: float | None
) -> Iterator[Case]:
    ids, batch = np.arange(len(payloads)), coder.encode_batch(name, range(len(payloads)), payloads)
    title, data = f"{coder.digest.name}, {shape}", f"{len(payloads)} entries of one ledger"
    encode = Side("encode_batch", lambda: coder.encode_batch(name, ids, payloads))
    singly = Side("encode, one by one", lambda: _singly(coder, name, payloads))
    yield Case(f"encode, {title}", len(payloads), data, encode, (singly,), limit)
    decode = Side("decode_batch", lambda: coder.decode_batch(batch, name))
    verified = Side("decode, one by one", lambda: _verified(coder, batch, name))
    yield Case(f"verify, {title}", len(payloads), data, decode, (verified,))


ROWS = (
    Row(
        "records",
        "entries encoded and verified in batches",
        "A list of payloads becomes records, digests included, and back, payloads left where they "
        "are in the batch; single calls count LAC and length by hand, as a writer does.",
        _cases,
    ),
)
