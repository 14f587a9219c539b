"""Version 1 of serialized ledger metadata: lines of text.

Write quorum, ensemble size and length, a line each; one line a segment: its first entry and the
bookie ids behind TABs; then, unless the ledger is open, its last entry (in recovery: -102), TAB,
``CLOSED``, without a line end. Page: `docs/formats/ledgermetadata.md`. Source:
`LedgerMetadataSerDe.serializeVersion1`, `parseVersion1Config`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata, Segment

_CLOSED_TAG = "CLOSED"
_IN_RECOVERY_ENTRY = -102

_LINE = re.compile(rb"([^\r\n]*)(\r\n|\r|\n|$)")
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")


def decode_lines(data: bytes, start: int, ledger: LedgerId) -> LedgerMetadata:
    """Return the metadata that the lines of `data` from `start` on say; else `CorruptionError`."""
    lines = _lines(data, start)
    write = _head(lines, len(data), "write quorum", 32)
    size = _head(lines, len(data), "ensemble size", 32)
    length = _head(lines, len(data), "length", 64)
    segments: list[Segment] = []
    end: int | None = None
    for at, line in lines:
        first, *rest = line.rstrip("\t").split("\t")
        if not rest:
            raise CorruptionError(None, at, f"segment without bookies: {line[:80]!r}")
        number = _number(first, at, "first entry", 64)
        if rest[0] == _CLOSED_TAG:  # what follows it is not looked at, as upstream
            end = number
            break
        segments.append(Segment(number, tuple(rest)))
    closed = end is not None and end != _IN_RECOVERY_ENTRY
    return LedgerMetadata(
        ledger,
        size,
        write,
        write,
        tuple(segments),
        state="OPEN" if end is None else "CLOSED" if closed else "IN_RECOVERY",
        last_entry_id=end if end is not None and closed else -1,
        length=length if closed else 0,
        version=1,
    )


def _lines(data: bytes, start: int) -> Iterator[tuple[int, str]]:
    """Yield (offset, text) of each line; a line end at the end of the data starts no line."""
    while start < len(data):
        found = _LINE.match(data, start)
        assert found is not None  # it matches the empty text too
        try:
            yield start, found[1].decode("utf-8")
        except UnicodeDecodeError as error:
            reason = "ledger metadata text is not UTF-8"
            raise CorruptionError(None, start + error.start, reason) from error
        start = found.end()


def _head(lines: Iterator[tuple[int, str]], end: int, what: str, bits: int) -> int:
    at, line = next(lines, (end, ""))
    return _number(line, at, what, bits)


def _number(text: str, at: int, what: str, bits: int) -> int:
    if not _NUMBER.fullmatch(text) or not -(2 ** (bits - 1)) <= int(text) < 2 ** (bits - 1):
        raise CorruptionError(None, at, f"{what} is no {bits}-bit number: {text[:40]!r}")
    return int(text)


def encode_lines(metadata: LedgerMetadata) -> bytes:
    """Return the lines; `InvalidArgument` for bookie ids that would read back as others."""
    lines = [str(metadata.write_quorum_size), str(metadata.ensemble_size), str(metadata.length)]
    for first, ensemble in metadata.segments:
        if not ensemble:
            raise InvalidArgument(f"version 1 cannot hold segment {first}, which has no bookies")
        for bookie in ensemble:
            if not bookie or re.search(r"[\t\r\n]", bookie) or bookie == _CLOSED_TAG:
                raise InvalidArgument(f"version 1 cannot hold the bookie id {bookie!r}")
        lines.append("\t".join([str(first), *ensemble]))
    end = ""
    if metadata.state != "OPEN":
        last = metadata.last_entry_id if metadata.closed else _IN_RECOVERY_ENTRY
        end = f"{last}\t{_CLOSED_TAG}"
    return "".join(f"{line}\n" for line in lines).encode("utf-8") + end.encode("ascii")
