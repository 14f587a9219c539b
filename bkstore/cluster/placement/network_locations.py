"""Network locations: a text file with a bookie id and its location on each line.

    # bookie       location
    bookie-1:3181  /eu/rack-1
    bookie-2:3181  /eu/rack-2

BookKeeper uses a `DNSToSwitchMapping`; the file of its `TableMapping` has this format.
"""

from __future__ import annotations

import os
from itertools import takewhile

from bkstore.errors import CorruptionError
from bkstore.files.opening import read_file
from bkstore.files.os_errors import convert_read_errors

_MAX_FILE_BYTES = 64 << 20


def read_network_locations(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return a dict of bookie id to location. Ignores empty lines, and comments from a word that
    starts with ``#``. Raises `CorruptionError` (with the line's offset) if a line is not two words,
    a location does not begin with a slash, or a bookie appears twice."""
    with convert_read_errors(path):
        data = read_file(path, _MAX_FILE_BYTES, text=True)
    locations: dict[str, str] = {}
    offset = 0
    for line in data.splitlines(True):
        try:
            words = line.decode("utf-8").split()
        except UnicodeDecodeError as error:
            raise CorruptionError(path, offset + error.start, "not UTF-8") from error
        words = list(takewhile(lambda word: not word.startswith("#"), words))  # without comments
        if words:
            if len(words) != 2 or not words[1].startswith("/"):
                raise CorruptionError(path, offset, "not a bookie id and its /location")
            if words[0] in locations:
                raise CorruptionError(path, offset, f"bookie {words[0]} appears twice")
            locations[words[0]] = words[1]
        offset += len(line)
    return locations
