"""Entry logs made record by record, and what a scan finds in them, for the corruption tests."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bkstore import LedgerId
from bkstore.formats import entrylog
from bkstore.formats.entry import Coder, Entry
from bkstore.formats.entrylog import LogHeader
from bkstore.index.api import Finding
from bkstore.storage.entry_log.scan import scan_log

SCOPED = LedgerId(0xF00D, 0x8000000000000001)
HEADER = entrylog.HEADER_SIZE
CODER = Coder("CRC32C", "pw")
HMAC = Coder("HMAC", "pw")


class Log(NamedTuple):
    """An undamaged log: its bytes, and each record by the offset of its size field."""

    data: bytes
    records: dict[int, bytes]
    map_offset: int


def _payload(rng: random.Random) -> bytes:
    """Return bytes of one of the kinds that can look like framing: zeros, 0xF0, small numbers."""
    size = rng.randrange(120)
    kind = rng.randrange(4)
    if kind == 0:
        return rng.randbytes(size)
    return (b"\0", b"\xf0", b"\0\0\0\x21")[kind - 1] * (size // (1 if kind < 3 else 4))


NAMES = (LedgerId.of(1), LedgerId.of(2**62), SCOPED)


def make_log(
    seed: int = 1,
    count: int = 60,
    closed: bool = True,
    coder: Coder = CODER,
    names: Sequence[LedgerId] = NAMES,
) -> Log:
    """Return a log of random records; a closed one has a ledgers map."""
    rng = random.Random(seed)
    body, records, sizes = b"", {}, dict.fromkeys(names, 0)
    for number in range(count):
        name = rng.choice(names)
        payload = _payload(rng) if coder is CODER else rng.randbytes(rng.randrange(120))
        record = coder.encode(Entry(name, number, number - 1, 50 * number, payload))
        records[HEADER + len(body)] = record
        sizes[name] += 4 + len(record)
        body += len(record).to_bytes(4, "big") + record
    end = HEADER + len(body)
    ledgers_map = entrylog.encode_ledgers_map(sizes) if closed else b""
    version = 2 if any(name.scope for name in names) else 1
    header = LogHeader(version, end if closed else 0, len(sizes) if closed else 0)
    return Log(entrylog.encode_header(header) + body + ledgers_map, records, end)


def scanned(path: Path, findings: list[Finding] | None) -> dict[int, bytes]:
    """Return the records that a scan gives, by the offset of their size field."""
    found: dict[int, bytes] = {}
    scan_into(found, path, findings)
    return found


def scan_into(found: dict[int, bytes], path: Path, findings: list[Finding] | None) -> None:
    """Put the records that a scan gives into `found` as they come."""
    for batch in scan_log(path, findings):
        for at in range(len(batch)):
            found[int(batch.position[at]) - 4] = batch.record(at)
