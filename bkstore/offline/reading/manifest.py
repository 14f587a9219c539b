"""The manifest of a dump: what is in it, from where, and what could not be read.

Format: `docs/formats/dump.md`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from bkstore.errors import InvalidArgument, UnsupportedLayout
from bkstore.formats.syntax.json_text import format_json, parse_json
from bkstore.ids import LedgerId
from bkstore.index.api import Finding
from bkstore.offline.reading.dump_folder import DumpFolder
from bkstore.version import __version__

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


def read_manifest(dump: str | os.PathLike[str] | DumpFolder) -> dict[str, Any]:
    """Return the manifest of a dump, at a path or a URI, as it is written there.

    Raises `InvalidArgument` where `dump` is none, `UnsupportedLayout` for one of a later
    format, `CorruptionError` for a manifest that cannot be parsed.
    """
    folder = dump if isinstance(dump, DumpFolder) else DumpFolder(dump)
    path, data = folder.of(MANIFEST), folder.read(MANIFEST, _LIMIT)
    document = parse_json(data, path)
    if not isinstance(document, dict) or document.get("kind") != _KIND:
        raise InvalidArgument(f"{path}: not the manifest of a dump")
    if document.get("format") not in FORMATS:
        known = " and ".join(map(str, FORMATS))
        raise UnsupportedLayout(f"{path}: format {document.get('format')}, known are {known}")
    return document


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
