"""Version 1 of serialized ledger metadata: lines of text. Write quorum, ensemble size and length, a
line each. One line for each segment: its first entry, then a TAB before each bookie id. Then,
unless the ledger is open, its last entry (in recovery: -102), TAB, ``CLOSED``, without a line end.
Page: `docs/formats/ledgermetadata.md`. Source: `LedgerMetadataSerDe`."""

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
    """Return the metadata in the lines of `data` from `start` on; `CorruptionError` if invalid."""
    lines = _split_lines(data, start)
    write_quorum = _next_number(lines, len(data), "write quorum", bits=32)
    ensemble_size = _next_number(lines, len(data), "ensemble size", bits=32)
    length = _next_number(lines, len(data), "length", bits=64)
    segments: list[Segment] = []
    last_entry: int | None = None
    for line_offset, line in lines:
        first_text, *other_fields = line.rstrip("\t").split("\t")
        if not other_fields:
            raise CorruptionError(None, line_offset, f"segment has no bookies: {line[:80]!r}")
        entry_id = _parse_number(first_text, line_offset, "first entry", bits=64)
        if other_fields[0] == _CLOSED_TAG:  # the last line; like BookKeeper, ignore what follows
            last_entry = entry_id
            break
        segments.append(Segment(entry_id, tuple(other_fields)))
    ack_quorum = write_quorum  # the lines have none
    fields = (ledger, ensemble_size, write_quorum, ack_quorum, tuple(segments))
    if last_entry is None:
        return LedgerMetadata(*fields, state="OPEN", version=1)
    if last_entry == _IN_RECOVERY_ENTRY:
        return LedgerMetadata(*fields, state="IN_RECOVERY", version=1)
    return LedgerMetadata(
        *fields, state="CLOSED", last_entry_id=last_entry, length=length, version=1
    )


def _split_lines(data: bytes, start: int) -> Iterator[tuple[int, str]]:
    """Yield (offset, text) of each line; a line end at the end of the data starts no line."""
    while start < len(data):
        match = _LINE.match(data, start)
        assert match is not None  # the pattern matches the empty text too
        try:
            yield start, match[1].decode("utf-8")
        except UnicodeDecodeError as error:
            reason = "ledger metadata text is not UTF-8"
            raise CorruptionError(None, start + error.start, reason) from error
        start = match.end()


def _next_number(lines: Iterator[tuple[int, str]], end: int, field: str, bits: int) -> int:
    offset, line = next(lines, (end, ""))
    return _parse_number(line, offset, field, bits)


def _parse_number(text: str, offset: int, field: str, bits: int) -> int:
    if not _NUMBER.fullmatch(text) or not -(2 ** (bits - 1)) <= int(text) < 2 ** (bits - 1):
        raise CorruptionError(None, offset, f"{field} is not a {bits}-bit number: {text[:40]!r}")
    return int(text)


def encode_lines(metadata: LedgerMetadata) -> bytes:
    """Return the metadata as lines: quorums and length, a line for each segment, and for a ledger
    that is not open a last line with its last entry. Raises `InvalidArgument` for a bookie id that
    would not be read back unchanged."""
    lines = [str(metadata.write_quorum_size), str(metadata.ensemble_size), str(metadata.length)]
    for first, ensemble in metadata.segments:
        if not ensemble:
            raise InvalidArgument(f"version 1 cannot hold segment {first}, which has no bookies")
        for bookie in ensemble:
            if not bookie or re.search(r"[\t\r\n]", bookie) or bookie == _CLOSED_TAG:
                raise InvalidArgument(f"version 1 cannot hold the bookie id {bookie!r}")
        lines.append("\t".join([str(first), *ensemble]))
    state_line = ""
    if metadata.state != "OPEN":
        last_entry = metadata.last_entry_id if metadata.closed else _IN_RECOVERY_ENTRY
        state_line = f"{last_entry}\t{_CLOSED_TAG}"
    return "".join(f"{line}\n" for line in lines).encode("utf-8") + state_line.encode("ascii")
