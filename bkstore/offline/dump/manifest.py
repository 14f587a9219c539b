"""The manifest of a dump: what is in it, from where, and what could not be read.

Format: `docs/formats/dump.md`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bkstore.errors import CorruptionError, InvalidArgument, UnsupportedLayout
from bkstore.files.opening import read_whole
from bkstore.files.os_errors import readable
from bkstore.formats.syntax.json_text import format_json, parse_json
from bkstore.ids import LedgerId
from bkstore.index.api import Finding
from bkstore.version import __version__

__all__ = [
    "FORMAT",
    "FORMATS",
    "MANIFEST",
    "encode_manifest",
    "file_in",
    "finding_from_json",
    "finding_to_json",
    "no_dump",
    "read_manifest",
]

MANIFEST = "manifest.json"
FORMAT = 2
"""What is written: files say how they are sorted, and which ledgers they hold."""

FORMATS = (1, FORMAT)
"""What is read. Format 1 says nothing of order."""

_KIND = "bkstore dump"
_LIMIT = 1 << 30  # some 200 bytes a file
_LISTED = 1000
"""Findings that are listed; the table `findings` has all."""


def encode_manifest(
    bookies: list[dict[str, Any]],
    tables: Mapping[str, list[dict[str, Any]]],
    findings: Iterable[tuple[str, Finding]],
    options: Mapping[str, Any],
) -> bytes:
    """Return the manifest's bytes. `tables` has the files of each table in order."""
    listed = [{"bookie": name, **finding_to_json(found)} for name, found in findings]
    document = {
        "kind": _KIND,
        "format": FORMAT,
        "bkstore": __version__,
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "complete": all(bookie["read"] for bookie in bookies),
        "options": dict(options),
        "bookies": bookies,
        "tables": {
            name: {
                "rows": sum(file["rows"] for file in files),
                "bytes": sum(file["bytes"] for file in files),
                "files": files,
            }
            for name, files in tables.items()
        },
        "findings": listed[:_LISTED],
        "findings_not_listed": max(len(listed) - _LISTED, 0),
    }
    return (format_json(document, indent=1) + "\n").encode()


def read_manifest(dump: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the manifest of a dump as it is written there.

    Raises `InvalidArgument` where `dump` is none, `UnsupportedLayout` for one of a later
    format, `CorruptionError` for a manifest that cannot be parsed.
    """
    path = Path(dump) / MANIFEST
    with readable(path):
        try:
            data = read_whole(path, _LIMIT, text=True)
        except (FileNotFoundError, NotADirectoryError):
            raise no_dump(dump, MANIFEST) from None
    document = parse_json(data, path)
    if not isinstance(document, dict) or document.get("kind") != _KIND:
        raise InvalidArgument(f"{path}: not the manifest of a dump")
    if document.get("format") not in FORMATS:
        known = " and ".join(map(str, FORMATS))
        raise UnsupportedLayout(f"{path}: format {document.get('format')}, known are {known}")
    return document


def no_dump(path: str | os.PathLike[str], lacks: str) -> InvalidArgument:
    """Return the error for a path that is no dump: nothing, a file, or a folder that `lacks` it.

    >>> str(no_dump("nowhere", "manifest.json"))
    'nowhere: no such directory'
    """
    if not os.path.lexists(path):
        return InvalidArgument(f"{path}: no such directory")
    if not os.path.isdir(path):
        return InvalidArgument(f"{path}: is no directory, as a dump is")
    return InvalidArgument(f"{path}: not a dump: it has no {lacks}")


def file_in(dump: str | os.PathLike[str], said: Any) -> Path:
    """Return where a file of the manifest lies; `said` is its path there.

    Raises `CorruptionError` for a path that leaves the dump: absolute, upward, or through a link.
    """
    top = Path(dump)
    parts = said.split("/") if isinstance(said, str) else []
    if not parts or "\0" in said or any(part in ("", ".", "..") for part in parts):
        raise CorruptionError(top / MANIFEST, None, f"{said!r:.80} is no path in the dump")
    path = top.joinpath(*parts)
    real, inside = os.path.realpath(path), os.path.realpath(top)
    if os.path.commonpath([real, inside]) != inside:
        raise CorruptionError(top / MANIFEST, None, f"{said!r:.80} leaves the dump: to {real}")
    return path


def finding_to_json(found: Finding) -> dict[str, Any]:
    """Return a finding as the table `findings` has it, but for the bookie."""
    scope, ledger = (None, None) if found.ledger is None else found.ledger.signed
    return {
        "severity": found.severity,
        "detail": found.detail,
        "file": found.file,
        "offset": found.offset,
        "scope_id": scope,
        "ledger_id": ledger,
        "first_entry": found.first_entry,
        "last_entry": found.last_entry,
        "entries": found.entries,
    }


def finding_from_json(said: Mapping[str, Any]) -> Finding:
    """Return the finding of `finding_to_json`."""
    ledger = None
    if said["ledger_id"] is not None:
        ledger = LedgerId.from_signed(said["scope_id"], said["ledger_id"])
    run = (said["first_entry"], said["last_entry"], said["entries"])
    return Finding(said["severity"], said["detail"], said["file"], said["offset"], ledger, *run)
