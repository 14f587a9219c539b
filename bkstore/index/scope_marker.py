"""The marker of directories that hold scopes other than 0: ``current/BKSTORE-128``. Such ledgers
are bkstore's own (BP-35 was never implemented), so a directory with them is marked with the version
of their layout: two lines of text, the name and a decimal number."""

from __future__ import annotations

from pathlib import Path

from bkstore.errors import CorruptionError, UnsupportedLayout
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.opening import read_file
from bkstore.files.os_errors import convert_write_errors

MARKER_NAME = "BKSTORE-128"
MARKER_VERSION = 1
_MAX_MARKER_BYTES = 1 << 16


def write_marker(current: Path, files: Files = OS_FILES) -> None:
    """Write the marker into a ``current/`` directory unless it exists; durable on return."""
    path = current / MARKER_NAME
    if not path.exists():
        with convert_write_errors(path):
            files.write_file(path, f"{MARKER_NAME}\n{MARKER_VERSION}\n".encode("ascii"))


def check_marker(current: Path) -> bool:
    """Return whether a ``current/`` directory has the marker, a file that states that it has
    ledgers of scopes other than 0, which a real bookie would not understand. Raises
    `UnsupportedLayout` for an unknown version, `CorruptionError` if the file is not a marker."""
    path = current / MARKER_NAME
    try:
        lines = read_file(path, _MAX_MARKER_BYTES).decode("ascii").splitlines()
    except FileNotFoundError:
        return False
    except UnicodeDecodeError as error:
        raise CorruptionError(path, error.start, "marker is not ASCII text") from error
    if len(lines) != 2 or lines[0] != MARKER_NAME or not lines[1].isdecimal():
        raise CorruptionError(path, 0, f"marker does not state {MARKER_NAME} and a version")
    if lines[1] != str(MARKER_VERSION):
        raise UnsupportedLayout(f"{path}: 128-bit layout version {lines[1][:40]}, supported is 1")
    return True
