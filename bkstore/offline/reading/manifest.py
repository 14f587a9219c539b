"""The manifest of a dump (`docs/formats/dump.md`): files, bookies, and what could not be read."""

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
CURRENT_FORMAT = 2
"""The format that is written: with the order and the range of ledgers of each file."""

READABLE_FORMATS = (1, CURRENT_FORMAT)
"""The formats that can be read. Format 1 does not declare any order."""

_KIND = "bkstore dump"
_MAX_MANIFEST_BYTES = 1 << 30  # a file takes some 200
_MAX_LISTED_FINDINGS = 1000
"""Maximum number of findings in the manifest; the table `findings` has all."""


def encode_manifest(
    bookies: list[dict[str, Any]],
    tables: Mapping[str, list[dict[str, Any]]],
    findings: Iterable[tuple[str, Finding]],
    options: Mapping[str, Any],
) -> bytes:
    """Return the manifest's bytes. `bookies` and `tables` have the objects of the bookies, and of
    each table's files in order; `findings` has each finding with the id of its bookie."""
    finding_objects = [{"bookie": name, **finding_to_json(finding)} for name, finding in findings]
    document = {
        "kind": _KIND,
        "format": CURRENT_FORMAT,
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
        "findings": finding_objects[:_MAX_LISTED_FINDINGS],
        "findings_not_listed": max(len(finding_objects) - _MAX_LISTED_FINDINGS, 0),
    }
    return (format_json(document, indent=1) + "\n").encode()


def read_manifest(dump: str | os.PathLike[str] | DumpFolder) -> dict[str, Any]:
    """Return the parsed manifest of a dump at a path or a URI.

    Raises `InvalidArgument` if there is no dump, `UnsupportedLayout` for a later format,
    `CorruptionError` for a manifest that cannot be parsed.
    """
    folder = dump if isinstance(dump, DumpFolder) else DumpFolder(dump)
    path, data = folder.locate(MANIFEST), folder.read(MANIFEST, _MAX_MANIFEST_BYTES)
    document = parse_json(data, path)
    if not isinstance(document, dict) or document.get("kind") != _KIND:
        raise InvalidArgument(f"{path}: not the manifest of a dump")
    if document.get("format") not in READABLE_FORMATS:
        known = " and ".join(map(str, READABLE_FORMATS))
        raise UnsupportedLayout(f"{path}: format {document.get('format')}, supported are {known}")
    return document


def finding_to_json(finding: Finding) -> dict[str, Any]:
    """Return a finding as a row of the table `findings`, without the bookie."""
    scope, ledger = (None, None) if finding.ledger is None else finding.ledger.signed
    return {
        "severity": finding.severity,
        "detail": finding.detail,
        "file": finding.file,
        "offset": finding.offset,
        "scope_id": scope,
        "ledger_id": ledger,
        "first_entry": finding.first_entry,
        "last_entry": finding.last_entry,
        "entries": finding.entries,
    }


def finding_from_json(json_object: Mapping[str, Any]) -> Finding:
    """Return the finding from an object that `finding_to_json` made."""
    ledger = None
    if json_object["ledger_id"] is not None:
        ledger = LedgerId.from_signed(json_object["scope_id"], json_object["ledger_id"])
    names = ("severity", "detail", "file", "offset", "first_entry", "last_entry", "entries")
    return Finding(**{field: json_object[field] for field in names}, ledger=ledger)
