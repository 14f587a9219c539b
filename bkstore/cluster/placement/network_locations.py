"""Where bookies are: a text file with a bookie and its network location a line.

    # bookie       location
    bookie-1:3181  /eu/rack-1
    bookie-2:3181  /eu/rack-2

Upstream asks a `DNSToSwitchMapping`; its table form (`TableMapping`) is this file.
"""

from __future__ import annotations

import os

from bkstore.errors import CorruptionError
from bkstore.files.opening import read_whole
from bkstore.files.os_errors import readable

_LIMIT = 64 << 20


def read_places(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return bookie id -> location. Empty lines, and what follows ``#`` at a word's start, do
    not count.

    `CorruptionError` (with the offset of the line) for a line that is not two words, a location
    that does not begin with a slash, and a bookie that is there twice.
    """
    with readable(path):
        data = read_whole(path, _LIMIT, text=True)
    places: dict[str, str] = {}
    offset = 0
    for line in data.splitlines(True):
        try:
            words = line.decode("utf-8").split()
        except UnicodeDecodeError as error:
            raise CorruptionError(path, offset + error.start, "not UTF-8") from error
        comment = next((at for at, word in enumerate(words) if word.startswith("#")), len(words))
        words = words[:comment]
        if words:
            if len(words) != 2 or not words[1].startswith("/"):
                raise CorruptionError(path, offset, "not a line of a bookie and its /location")
            if words[0] in places:
                raise CorruptionError(path, offset, f"bookie {words[0]} is there twice")
            places[words[0]] = words[1]
        offset += len(line)
    return places
