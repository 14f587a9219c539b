"""Serialized ledger metadata, versions 1 to 3. A first line has the version. Then version 1 has
lines of text; version 2 the protobuf message `LedgerMetadataFormat` in text format; version 3
(current) the same in binary after a varint of its length. Page: `docs/formats/ledgermetadata.md`.
Source: `meta/LedgerMetadataSerDe`."""

from __future__ import annotations

import re
from typing import Any

from google.protobuf.internal import decoder, encoder
from google.protobuf.message import DecodeError

from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.entry.digest import DIGEST_NUMBERS, digest_name
from bkstore.formats.metadata.messages import LedgerMetadataFormat, as_text
from bkstore.formats.metadata.version1 import decode_lines, encode_lines
from bkstore.formats.syntax import proto_text
from bkstore.formats.syntax.proto_messages import check_complete
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import NEWEST_VERSION, NO_ENTRY, LedgerMetadata, Segment, State

HEADER = b"BookieMetadataFormatVersion\t"
_MAX_VERSION_DIGITS = 10

_STATE_OF_NUMBER: dict[int, State] = {1: "OPEN", 2: "IN_RECOVERY", 3: "CLOSED"}
_STATE_NUMBERS = {name: number for number, name in _STATE_OF_NUMBER.items()}


def parse_header(data: bytes) -> tuple[int, int]:
    r"""Return (version, offset after the header line). Raises `CorruptionError` with the offset of
    the first wrong byte, also for a version that is not a number or outside 1..3.

    >>> parse_header(b"BookieMetadataFormatVersion\t3\n")
    (3, 30)
    """
    if not data.startswith(HEADER):
        pairs = enumerate(zip(data, HEADER))
        wrong_offsets = (offset for offset, (byte, expected) in pairs if byte != expected)
        offset = next(wrong_offsets, len(data))  # no wrong byte: the header is cut
        raise CorruptionError(None, offset, "ledger metadata header is invalid")
    digits, line_end, _ = data[len(HEADER) : len(HEADER) + _MAX_VERSION_DIGITS].partition(b"\n")
    if not line_end:
        raise CorruptionError(None, len(HEADER), "ledger metadata version is not terminated")
    if not re.fullmatch(rb"[+-]?[0-9]+", digits):
        raise CorruptionError(None, len(HEADER), f"ledger metadata version is {digits!r}")
    version = int(digits)
    if not 1 <= version <= NEWEST_VERSION:
        reason = f"ledger metadata version {version} is outside 1..{NEWEST_VERSION}"
        raise CorruptionError(None, len(HEADER), reason)
    return version, len(HEADER) + len(digits) + 1


def decode(
    data: bytes, ledger: int | LedgerId, ctime: int = -1, *, strict: bool = False
) -> LedgerMetadata:
    """Return the metadata of `ledger`, whose id is not in the bytes. `ctime` is the creation time
    in the store, in milliseconds: it counts for bytes of version 2 or 3 that have none. Raises
    `CorruptionError` for bytes that are not metadata, and for metadata without segments. Values
    that contradict each other are kept (see `LedgerMetadata.problems`); with `strict` they raise
    `CorruptionError` too. O(bytes)."""
    (version, body), ledger_id = parse_header(data), LedgerId.of(ledger)
    if version == 1:
        metadata = decode_lines(data, body, ledger_id)
    else:
        message = _parse_message(data, version, body)
        metadata = _from_message(message, version, ledger_id, ctime)
    if not metadata.segments:
        raise CorruptionError(None, body, "ledger metadata has no segment")
    problems = metadata.problems() if strict else []
    if problems:
        raise CorruptionError(None, None, f"ledger metadata: {'; '.join(problems)}")
    return metadata


def _parse_message(data: bytes, version: int, body: int) -> Any:
    """Return the protobuf message, in text format in version 2, else binary."""
    message = LedgerMetadataFormat()
    if version == 2:
        proto_text.parse_into(data, body, message, "ledger metadata")
    else:
        _parse_delimited(data, body, message)
    check_complete(message, body, "ledger metadata")
    return message


def _parse_delimited(data: bytes, body_offset: int, message: Any) -> None:
    """Parse the binary message from `body_offset` on: its length, a varint, and its bytes."""
    try:
        size, start = decoder._DecodeVarint32(data, body_offset)  # type: ignore[attr-defined]
    except (IndexError, DecodeError) as error:
        raise CorruptionError(None, body_offset, "ledger metadata length is invalid") from error
    if start + size != len(data):
        reason = f"ledger metadata of {size} bytes, {len(data) - start} are there"
        raise CorruptionError(None, body_offset, reason)
    try:
        message.ParseFromString(data[start:])
    except DecodeError as error:
        raise CorruptionError(None, start, f"ledger metadata does not parse: {error}") from error


def _from_message(message: Any, version: int, ledger: LedgerId, ctime: int) -> LedgerMetadata:
    """Return the metadata in a protobuf message; `ctime` counts if the message has none."""
    state = _STATE_OF_NUMBER[message.state]
    is_closed = state == "CLOSED"
    has_password, has_ctime = message.HasField("password"), message.HasField("ctime")
    # If there is a password, BookKeeper reads the digest type, which is the enum's first value if
    # it is absent. Without a password it ignores the type; here a stated type is returned.
    has_digest = has_password or message.HasField("digestType")
    try:
        segments = tuple(
            Segment(item.firstEntryId, tuple(map(as_text, item.ensembleMember)))
            for item in message.segment
        )
        custom_metadata = {as_text(item.key): item.value for item in message.customMetadata}
    except UnicodeDecodeError as error:
        raise CorruptionError(None, None, "ledger metadata has a name that is not UTF-8") from error
    return LedgerMetadata(
        ledger,
        message.ensembleSize,
        message.quorumSize,
        message.ackQuorumSize if message.HasField("ackQuorumSize") else message.quorumSize,
        segments,
        state=state,
        last_entry_id=message.lastEntryId if is_closed else NO_ENTRY,
        length=message.length if is_closed else 0,
        digest_type=digest_name(message.digestType) if has_digest else None,
        password=message.password if has_password else None,
        ctime=message.ctime if has_ctime else ctime,
        store_ctime=has_ctime,
        custom_metadata=custom_metadata,
        version=version,
        c_token=message.cToken,
    )


def encode(
    metadata: LedgerMetadata, version: int | None = None, *, incomplete: bool = False
) -> bytes:
    """Return the bytes that BookKeeper's `LedgerMetadataSerDe` writes, in the metadata's format
    version or in `version`. Version 1 has no ack quorum, digest type, password, custom metadata and
    ctime, and only version 3 has the c token: such values are lost.

    Raises `InvalidArgument` for a version outside 1..3; in versions 2 and 3 for metadata without
    digest type or password, as BookKeeper does (with `incomplete` they are left out, which it can
    read); and for values that do not fit: sizes beyond 32 bits, names that are not UTF-8, in
    version 1 a bookie id with white space."""
    version = metadata.version if version is None else version
    if not 1 <= version <= NEWEST_VERSION:
        raise InvalidArgument(f"metadata format version {version} is outside 1..3")
    start = HEADER + b"%d\n" % version
    try:
        if version == 1:
            return start + encode_lines(metadata)
        message = _to_message(metadata, version, incomplete)
    except (ValueError, UnicodeEncodeError) as error:
        raise InvalidArgument(f"ledger {metadata.ledger}: {error}") from error
    if version == 2:
        return start + proto_text.to_bytes(message)
    body: bytes = message.SerializeToString()
    size: bytes = encoder._VarintBytes(len(body))  # type: ignore[attr-defined]
    return start + size + body


def _to_message(metadata: LedgerMetadata, version: int, incomplete: bool) -> Any:
    """Return the metadata as a protobuf message. Fields without a value stay unset, and so do those
    that `version` does not have."""
    message = LedgerMetadataFormat(
        quorumSize=metadata.write_quorum_size,
        ensembleSize=metadata.ensemble_size,
        length=metadata.length,
        lastEntryId=metadata.last_entry_id,
        state=_STATE_NUMBERS[metadata.state],
        ackQuorumSize=metadata.ack_quorum_size,
    )
    if not incomplete and None in (metadata.digest_type, metadata.password):
        raise InvalidArgument(f"version {version} needs a digest type and a password")
    if metadata.digest_type is not None:
        message.digestType = DIGEST_NUMBERS[metadata.digest_type]
    if metadata.password is not None:
        message.password = metadata.password
    for first, ensemble in metadata.segments:
        message.segment.add(firstEntryId=first, ensembleMember=ensemble)
    if metadata.store_ctime:
        message.ctime = metadata.ctime
    for key, value in metadata.custom_metadata.items():
        message.customMetadata.add(key=key, value=value)
    if version == NEWEST_VERSION:
        message.cToken = metadata.c_token
    return message
