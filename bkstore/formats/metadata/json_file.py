"""The ledger metadata file: a JSON document for `audit` and `analyze`. An object with ``ledgers``
and, if they are to be checked, ``registered_bookies``, ``unavailable_bookies`` and
``underreplicated``. Page: `docs/formats/ledgermetadata.md`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from sys import intern
from typing import Any

from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.metadata.underreplication import UnderreplicatedMark
from bkstore.formats.syntax.json_text import parse_json_rows
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import NO_ENTRY, LedgerMetadata, Segment, read_owner

_PLAIN_FIELDS = (
    *("scope_id", "ledger_id", "ensemble_size", "write_quorum_size", "ack_quorum_size"),
    *("state", "last_entry_id", "length", "digest_type"),
)

_Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """The contents of a metadata store at one time. None = not given, so not checked."""

    ledgers: tuple[LedgerMetadata, ...] = ()
    registered_bookies: frozenset[str] | None = None
    unavailable_bookies: frozenset[str] | None = None
    underreplicated: Mapping[LedgerId, UnderreplicatedMark] | None = field(default=None, hash=False)


def decode_file(data: bytes | str) -> ClusterMetadata:
    """Return the contents of a metadata file; contradictions in a ledger's metadata are kept.
    A caller that keeps no reference to `data` saves its memory, from after it is parsed.
    Raises `CorruptionError` for another form, with the path of the value at fault (such as
    ``ledgers[3].state``), and for a ledger that is in it twice."""
    parsed = parse_json_rows(data, {"ledgers": _decode_row}, subject="metadata file")
    del data
    document = _as_object(parsed, "the document")
    ledgers: list[LedgerMetadata] = _read_list(document, "ledgers", "")
    _check_unique([value.ledger for value in ledgers], "ledgers")
    marks = None
    if document.get("underreplicated") is not None:
        rows = [_decode_mark(*row) for row in _read_objects(document, "underreplicated")]
        _check_unique([ledger for ledger, _ in rows], "underreplicated")
        marks = dict(rows)
    return ClusterMetadata(
        ledgers=tuple(ledgers),
        registered_bookies=_read_bookie_ids(document, "registered_bookies"),
        unavailable_bookies=_read_bookie_ids(document, "unavailable_bookies"),
        underreplicated=marks,
    )


def _decode_row(value: Any, index: int) -> LedgerMetadata:
    """Return the ledger of the element of ``ledgers`` at an index."""
    json_path = f"ledgers[{index}]"
    return _decode_ledger(_as_object(value, json_path), json_path)


def encode_file(
    metadata: ClusterMetadata,
    *,
    passwords: bool = False,
    other_parts: Mapping[str, str] | None = None,
) -> bytes:
    """Return the file's bytes, with one line for each ledger. Passwords are left out unless
    `passwords` is true; otherwise `decode_file` returns the same metadata. `other_parts` are
    further keys of the file, with their values as JSON text; `decode_file` ignores them."""
    ledger_rows = [_ledger_fields(item, passwords) for item in metadata.ledgers]
    parts = [_encode_rows("ledgers", ledger_rows)]
    for key in ("registered_bookies", "unavailable_bookies"):
        bookie_ids = getattr(metadata, key)
        if bookie_ids is not None:
            parts.append(f"{json.dumps(key)}: {json.dumps(sorted(bookie_ids))}")
    if metadata.underreplicated is not None:
        marks = sorted(metadata.underreplicated.items())
        parts.append(_encode_rows("underreplicated", [_mark_fields(*item) for item in marks]))
    parts += [f"{json.dumps(key)}: {text}" for key, text in (other_parts or {}).items()]
    return ("{" + ",\n".join(parts) + "}\n").encode("ascii")


def _encode_rows(key: str, rows: list[_Fields]) -> str:
    return f"{json.dumps(key)}: [\n" + ",\n".join(map(json.dumps, rows)) + "\n]"


def _ledger_fields(metadata: LedgerMetadata, passwords: bool) -> _Fields:
    """Return a ledger's metadata as the fields of its JSON object; defaults are left out."""
    fields: _Fields = {name: getattr(metadata, name) for name in _PLAIN_FIELDS}
    fields["segments"] = [
        {"first_entry": first, "ensemble": list(ensemble)} for first, ensemble in metadata.segments
    ]
    fields["metadata_format_version"] = metadata.version
    if metadata.ctime >= 0:
        fields |= {"ctime": metadata.ctime, "store_ctime": metadata.store_ctime}
    if metadata.custom_metadata:
        custom_hex = {key: value.hex() for key, value in metadata.custom_metadata.items()}
        fields["custom_metadata_hex"] = custom_hex
    owner = read_owner(metadata.custom_metadata)._asdict()
    if stated := {key: value for key, value in owner.items() if value is not None}:
        # For readers other than `decode_file`, which has the owner from the custom metadata.
        fields["owner"] = stated
    if metadata.c_token:
        fields["c_token"] = metadata.c_token
    if passwords and metadata.password is not None:
        fields["password_hex"] = metadata.password.hex()
    return fields


def _mark_fields(ledger: LedgerId, mark: UnderreplicatedMark) -> _Fields:
    """Return the fields of a mark's JSON object."""
    fields: _Fields = {"scope_id": ledger.scope, "ledger_id": ledger.ledger}
    if mark.marked_at is not None:
        fields["marked_at"] = mark.marked_at
    if mark.missing_bookies:
        fields["missing_bookies"] = list(mark.missing_bookies)
    return fields


def _wrong_type(json_path: str, expected: str, value: object) -> CorruptionError:
    reason = f"metadata file: {json_path} is not a valid {expected}: {value!r:.80}"
    return CorruptionError(None, None, reason)


def _as_object(value: Any, json_path: str) -> _Fields:
    if not isinstance(value, dict):
        raise _wrong_type(json_path, "object", value)
    return value


def _read_list(fields: _Fields, key: str, json_path: str) -> list[Any]:
    value = fields.get(key)
    if not isinstance(value, list):
        raise _wrong_type(f"{json_path}{key}", "list", value)
    return value


def _read_objects(fields: _Fields, key: str, json_path: str = "") -> Iterator[tuple[_Fields, str]]:
    """Yield each object of the list under `key`, and its path."""
    for index, value in enumerate(_read_list(fields, key, json_path)):
        item_path = f"{json_path}{key}[{index}]"
        yield _as_object(value, item_path), item_path


def _read_bookie_ids(document: _Fields, key: str) -> frozenset[str] | None:
    return None if document.get(key) is None else frozenset(_read_texts(document, key, ""))


def _read_texts(fields: _Fields, key: str, json_path: str) -> list[str]:
    values = _read_list(fields, key, json_path)
    for value in values:
        if not isinstance(value, str):
            raise _wrong_type(f"{json_path}{key}", "list of strings", values)
    return values


def _read_integer(
    fields: _Fields, key: str, json_path: str, default: int | None = None, stop: int = 2**63
) -> int:
    """Return the integer under `key`, below `stop`. If it is null or absent, `default` is returned
    instead; without a default that raises `CorruptionError`, as does any other value."""
    value = fields.get(key)
    if type(value) is int and -(2**63) <= value < stop:  # the common case
        return value
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < stop:
        raise _wrong_type(f"{json_path}.{key}", "integer of 64 bits", value)
    return value


def _read_ledger_id(fields: _Fields, json_path: str) -> LedgerId:
    scope = _read_integer(fields, "scope_id", json_path, default=0, stop=2**64)
    ledger = _read_integer(fields, "ledger_id", json_path, stop=2**64)
    try:
        return LedgerId(scope, ledger)
    except InvalidArgument as error:
        raise CorruptionError(None, None, f"metadata file: {json_path}: {error}") from error


def _decode_ledger(fields: _Fields, json_path: str) -> LedgerMetadata:
    """Return the metadata in a ledger's JSON object; `json_path` locates errors. Texts that many
    ledgers share are one object in memory."""
    ledger_id = _read_ledger_id(fields, json_path)
    write_quorum = _read_integer(fields, "write_quorum_size", json_path)
    state = fields.get("state")
    if isinstance(state, str):
        state = intern(state)
    is_closed = state == "CLOSED"
    rows = _read_objects(fields, "segments", f"{json_path}.")
    segments = tuple(_decode_segment(*row) for row in rows)
    last_entry_id = _read_integer(fields, "last_entry_id", json_path) if is_closed else NO_ENTRY
    try:
        return LedgerMetadata(
            ledger_id,
            _read_integer(fields, "ensemble_size", json_path),
            write_quorum,
            _read_integer(fields, "ack_quorum_size", json_path, default=write_quorum),
            segments,
            state=state,  # type: ignore[arg-type]
            last_entry_id=last_entry_id,
            length=_read_integer(fields, "length", json_path, default=0) if is_closed else 0,
            digest_type=_read_optional(fields, "digest_type", json_path, intern),
            password=_read_optional(fields, "password_hex", json_path, bytes.fromhex),
            ctime=_read_integer(fields, "ctime", json_path, default=-1),
            store_ctime=bool(_read_optional(fields, "store_ctime", json_path, bool)),
            custom_metadata=_decode_custom_metadata(fields, json_path),
            version=_read_integer(fields, "metadata_format_version", json_path, default=3),
            c_token=_read_integer(fields, "c_token", json_path, default=0),
        )
    except InvalidArgument as error:
        raise CorruptionError(None, None, f"metadata file: {json_path}: {error}") from error


def _decode_segment(fields: _Fields, json_path: str) -> Segment:
    return Segment(
        _read_integer(fields, "first_entry", json_path),
        tuple(map(intern, _read_texts(fields, "ensemble", f"{json_path}."))),
    )


def _decode_custom_metadata(fields: _Fields, json_path: str) -> dict[str, bytes]:
    """Return the custom metadata of a ledger, from values in hexadecimal; empty if they are absent.
    Raises `CorruptionError`, which names the value by its path in the document."""
    json_path = f"{json_path}.custom_metadata_hex"
    hex_values = _as_object(fields.get("custom_metadata_hex") or {}, json_path)
    for key, value in hex_values.items():
        if value is None:  # which `_read_optional` takes for absent
            raise _wrong_type(f"{json_path}.{key}", "text", value)
    return {
        intern(key): _read_optional(hex_values, key, json_path, bytes.fromhex) for key in hex_values
    }


def _read_optional(fields: _Fields, key: str, json_path: str, convert: Callable[[Any], Any]) -> Any:
    """Return ``convert(value)`` of the value under `key`, None if it is null or absent. The value
    must be a text, or if `convert` is `bool` a truth value. Raises `CorruptionError` for another
    one, and if `convert` raises `ValueError`; errors show no password."""
    value = fields.get(key)
    if value is None:
        return None
    shown = "<hidden>" if "password" in key else value
    if convert is bool and not isinstance(value, bool):
        raise _wrong_type(f"{json_path}.{key}", "truth value", shown)
    if convert is not bool and not isinstance(value, str):
        raise _wrong_type(f"{json_path}.{key}", "text", shown)
    try:
        return convert(value)
    except ValueError:
        raise _wrong_type(f"{json_path}.{key}", "hex text", shown) from None


def _decode_mark(fields: _Fields, json_path: str) -> tuple[LedgerId, UnderreplicatedMark]:
    """Return a ledger's mark from its JSON object."""
    marked_at = fields.get("marked_at")
    is_number = isinstance(marked_at, (int, float)) and not isinstance(marked_at, bool)
    # Whole numbers up to 2^53 are exact as JSON numbers (doubles).
    if marked_at is not None and not (is_number and 0 <= marked_at < 2**53):
        raise _wrong_type(f"{json_path}.marked_at", "time in unix seconds", marked_at)
    missing_bookies: tuple[str, ...] = ()
    if fields.get("missing_bookies") is not None:
        missing_bookies = tuple(_read_texts(fields, "missing_bookies", f"{json_path}."))
    return _read_ledger_id(fields, json_path), UnderreplicatedMark(marked_at, missing_bookies)


def _check_unique(ledgers: list[LedgerId], key: str) -> None:
    seen: set[LedgerId] = set()
    for ledger in ledgers:
        if ledger in seen:
            reason = f"metadata file: ledger {ledger} appears twice in {key}"
            raise CorruptionError(None, None, reason)
        seen.add(ledger)
