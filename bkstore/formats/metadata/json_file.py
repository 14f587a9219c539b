"""The ledger metadata file: a JSON document for `audit` and `analyze`.

An object with ``ledgers`` and, each of them optional, ``registered_bookies``,
``unavailable_bookies`` and ``underreplicated``; what is absent is not judged. Page:
`docs/formats/ledgermetadata.md`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.metadata.serialized import Mark
from bkstore.formats.syntax.json_text import parse_json
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import NO_ENTRY, LedgerMetadata, Segment


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """All that a metadata store knows, at one time. None = not told, so not judged."""

    ledgers: tuple[LedgerMetadata, ...] = ()
    registered_bookies: frozenset[str] | None = None
    unavailable_bookies: frozenset[str] | None = None
    underreplicated: Mapping[LedgerId, Mark] | None = field(default=None, hash=False)


def decode_file(data: bytes) -> ClusterMetadata:
    """Return what a metadata file says; contradictions inside a ledger's metadata are kept.

    Raises `CorruptionError` for what is no JSON object of this form (the reason names the
    place, such as ``ledgers[3].state``), and for a ledger that is there twice.
    """
    top = _object(parse_json(data, what="metadata file"), "the document")
    ledgers = [
        _ledger(_object(each, f"ledgers[{at}]"), f"ledgers[{at}]")
        for at, each in enumerate(_list(top, "ledgers", ""))
    ]
    _unique([each.ledger for each in ledgers], "ledgers")
    marks = None
    if top.get("underreplicated") is not None:
        rows = [
            _mark(_object(each, f"underreplicated[{at}]"), f"underreplicated[{at}]")
            for at, each in enumerate(_list(top, "underreplicated", ""))
        ]
        _unique([ledger for ledger, _ in rows], "underreplicated")
        marks = dict(rows)
    return ClusterMetadata(
        tuple(ledgers), _names(top, "registered_bookies"), _names(top, "unavailable_bookies"), marks
    )


def encode_file(metadata: ClusterMetadata, *, passwords: bool = False) -> bytes:
    """Return the file's bytes, a ledger a line; without `passwords` they are left out.

    `decode_file` gives the same back (the digest type alone where passwords are left out).
    """
    parts = [_lines("ledgers", [_ledger_fields(each, passwords) for each in metadata.ledgers])]
    for name in ("registered_bookies", "unavailable_bookies"):
        names = getattr(metadata, name)
        if names is not None:
            parts.append(f"{json.dumps(name)}: {json.dumps(sorted(names))}")
    if metadata.underreplicated is not None:
        marks = sorted(metadata.underreplicated.items())
        parts.append(_lines("underreplicated", [_mark_fields(*each) for each in marks]))
    return ("{" + ",\n".join(parts) + "}\n").encode("ascii")


def _lines(name: str, rows: list[dict[str, Any]]) -> str:
    return f"{json.dumps(name)}: [\n" + ",\n".join(map(json.dumps, rows)) + "\n]"


def _ledger_fields(metadata: LedgerMetadata, passwords: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "scope_id": metadata.scope_id,
        "ledger_id": metadata.ledger_id,
        "ensemble_size": metadata.ensemble_size,
        "write_quorum_size": metadata.write_quorum_size,
        "ack_quorum_size": metadata.ack_quorum_size,
        "state": metadata.state,
        "last_entry_id": metadata.last_entry_id,
        "length": metadata.length,
        "digest_type": metadata.digest_type,
        "segments": [
            {"first_entry": first, "ensemble": list(ensemble)}
            for first, ensemble in metadata.segments
        ],
        "metadata_format_version": metadata.version,
    }
    if metadata.ctime >= 0:
        found |= {"ctime": metadata.ctime, "store_ctime": metadata.store_ctime}
    if metadata.custom_metadata:
        custom = {key: value.hex() for key, value in metadata.custom_metadata.items()}
        found["custom_metadata_hex"] = custom
    if metadata.c_token:
        found["c_token"] = metadata.c_token
    if passwords and metadata.password is not None:
        found["password_hex"] = metadata.password.hex()
    return found


def _mark_fields(ledger: LedgerId, mark: Mark) -> dict[str, Any]:
    found: dict[str, Any] = {"scope_id": ledger.scope, "ledger_id": ledger.ledger}
    if mark.marked_at is not None:
        found["marked_at"] = mark.marked_at
    if mark.missing_bookies:
        found["missing_bookies"] = list(mark.missing_bookies)
    return found


# -- reading


def _wrong(place: str, what: str, value: object) -> CorruptionError:
    return CorruptionError(None, None, f"metadata file: {place} is no {what}: {value!r:.80}")


def _object(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(place, "object", value)
    return value


def _list(fields: dict[str, Any], name: str, place: str) -> list[Any]:
    value = fields.get(name)
    if not isinstance(value, list):
        raise _wrong(f"{place}{name}", "list", value)
    return value


def _names(top: dict[str, Any], name: str) -> frozenset[str] | None:
    return None if top.get(name) is None else frozenset(_texts(top, name, ""))


def _texts(fields: dict[str, Any], name: str, place: str) -> list[str]:
    values = _list(fields, name, place)
    for value in values:
        if not isinstance(value, str):
            raise _wrong(f"{place}{name}", "list of texts", values)
    return values


def _integer(
    fields: dict[str, Any], name: str, place: str, default: int | None = None, bits: int = 63
) -> int:
    value = fields.get(name, default)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**bits:
        raise _wrong(f"{place}.{name}", "integer of 64 bits", value)
    return value


def _name(fields: dict[str, Any], place: str) -> LedgerId:
    scope = _integer(fields, "scope_id", place, 0, bits=64)
    ledger = _integer(fields, "ledger_id", place, bits=64)
    try:
        return LedgerId(scope, ledger)
    except InvalidArgument as error:
        raise CorruptionError(None, None, f"metadata file: {place}: {error}") from error


def _ledger(fields: dict[str, Any], place: str) -> LedgerMetadata:
    name = _name(fields, place)
    write = _integer(fields, "write_quorum_size", place)
    state = fields.get("state")
    closed = state == "CLOSED"
    segments = [
        _segment(_object(each, f"{place}.segments[{at}]"), f"{place}.segments[{at}]")
        for at, each in enumerate(_list(fields, "segments", f"{place}."))
    ]
    try:
        return LedgerMetadata(
            name,
            _integer(fields, "ensemble_size", place),
            write,
            _integer(fields, "ack_quorum_size", place, write),
            tuple(segments),
            state=state,  # type: ignore[arg-type]
            last_entry_id=_integer(fields, "last_entry_id", place) if closed else NO_ENTRY,
            length=_integer(fields, "length", place, 0) if closed else 0,
            digest_type=_optional(fields, "digest_type", place, str),
            password=_optional(fields, "password_hex", place, bytes.fromhex),
            ctime=_integer(fields, "ctime", place, -1),
            store_ctime=bool(_optional(fields, "store_ctime", place, bool)),
            custom_metadata=_custom(fields, place),
            version=_integer(fields, "metadata_format_version", place, 3),
            c_token=_integer(fields, "c_token", place, 0),
        )
    except InvalidArgument as error:
        raise CorruptionError(None, None, f"metadata file: {place}: {error}") from error


def _segment(fields: dict[str, Any], place: str) -> Segment:
    return Segment(
        _integer(fields, "first_entry", place), tuple(_texts(fields, "ensemble", f"{place}."))
    )


def _custom(fields: dict[str, Any], place: str) -> dict[str, bytes]:
    given = _object(fields.get("custom_metadata_hex") or {}, f"{place}.custom_metadata_hex")
    place = f"{place}.custom_metadata_hex"
    for key, value in given.items():
        if value is None:
            raise _wrong(f"{place}.{key}", "text", value)
    return {key: _optional(given, key, place, bytes.fromhex) for key in given}


def _optional(fields: dict[str, Any], name: str, place: str, kind: Callable[[Any], Any]) -> Any:
    """Return a field as `kind` makes it; None if it is absent."""
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) != (kind is bool) or not isinstance(value, (str, bool)):
        value = "<hidden>" if "password" in name else value
        raise _wrong(f"{place}.{name}", "text" if kind is not bool else "truth value", value)
    try:
        return kind(value)
    except ValueError:
        hidden = "<hidden>" if "password" in name else value
        raise _wrong(f"{place}.{name}", "hex text", hidden) from None


def _mark(fields: dict[str, Any], place: str) -> tuple[LedgerId, Mark]:
    since = fields.get("marked_at")
    number = isinstance(since, (int, float)) and not isinstance(since, bool)
    if since is not None and not (number and 0 <= since < 2**53):
        raise _wrong(f"{place}.marked_at", "time in unix seconds", since)
    missing: tuple[str, ...] = ()
    if fields.get("missing_bookies") is not None:
        missing = tuple(_texts(fields, "missing_bookies", f"{place}."))
    return _name(fields, place), Mark(since, missing)


def _unique(ledgers: list[LedgerId], place: str) -> None:
    seen: set[LedgerId] = set()
    for ledger in ledgers:
        if ledger in seen:
            raise CorruptionError(None, None, f"metadata file: ledger {ledger} twice in {place}")
        seen.add(ledger)
