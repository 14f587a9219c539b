"""Random texts of `bk_server.conf`: what a person writes, and what none would."""

from __future__ import annotations

import random
from pathlib import Path

__all__ = ["ConfFiles"]

_KEYS = [
    "ledgerDirectories",
    "journalDirectories",
    "journalDirectory",
    "indexDirectories",
    "bookiePort",
    "base",
    "ledgerStorageClass",
    "sortedLedgerStorageEnabled",
    "metadataServiceUri",
    "zkServers",
    "zkLedgersRootPath",
    "diskUsageThreshold",
    "readOnlyModeEnabled",
    "my.key",
]
_VALUES = [
    "/data0",
    "/a,/b",
    "/a\\,b",
    "/a\\\\,b",
    "/a\\\\\\,b",
    "/a\\\\\\\\\\,b",
    "/a\\\\\\\\\\\\\\,b",
    "3181",
    "0x10",
    "0X1p-2",
    "0b101",
    "0x",
    "0xfffffffff",
    "-0x1",
    "1e-1",
    ".5",
    "5.",
    ".5f",
    "1e400",
    "1e39",
    "-1e400",
    "NaN",
    "+Infinity",
    "0,5",
    "9223372036854775808",
    "2147483648",
    "-2147483648",
    "+7",
    "true",
    "YES",
    "on",
    "1",
    "0",
    "f",
    "off",
    "maybe",
    "h1:2181,h2:2181",
    "zk+null://h1:2181;h2/l",
    "${base}",
    "${base}/x",
    "${ledgerDirectories}",
    "${ledgerDirectories}/x",
    "${my.key}",
    "x${bookiePort}y",
    "$${base}",
    "$$${base}",
    "${none:-dflt}",
    "${none:-${base}}",
    "${none}",
    "${",
    "${base",
    "${}",
    "${env:HOME}",
    "${env:NONE:-e}",
    "${base:-no}",
    "${bas\\u0065}",
    "a\\tb\\nc",
    "\\u0041",
    "\\u+041",
    "\\u-001",
    "\\u12",
    "\\u",
    "\\x",
    "\\:",
    "\\=",
    "\\#",
    "\\'",
    '\\"',
    "\\\\",
    "\\",
    "été",
    "£",
    "\x85",
    "\xa0",
    "��",
    "a=b",
    "a:b",
    "#c",
    "!d",
    ",",
    ",,",
    "a,,b",
    "\\ud83d\\ude00",
    "\x01",
    "org.apache.bookkeeper.bookie.SortedLedgerStorage",
]
_NAMES = [
    "a\\=b",
    "a\\:b",
    "\\u0061",
    "\\101",
    "\\8",
    "a\\tb",
    "\\uuu0062",
    "\\u+0063",
    "a\\\\b",
    '\\"q',
    "\\'",
    "b\\",
    "c",
    "é",
    "\x02x",
    "x\x02",
    "\\b",
]
_SEPARATORS = ("=", ":", " ", " = ", "\t", " : ", "= ", "==", ":=", "\f", " \x0b", "", "  ")
_COMMENTS = ("# a comment", "! another", "  # indented", "", "   ", "#a=\\", "\t!")


class ConfFiles:
    """Files of a seed: ``write(folder)`` makes one and those that it includes."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def write(self, folder: Path) -> Path:
        """Write one file, and beside it what it includes; return its path."""
        folder.mkdir(parents=True)
        names = ["bk_server.conf"]
        if self._random.random() < 0.3:
            names += ["inc.conf", "sub/deep.conf"]
            (folder / "sub").mkdir()
        for name in names:
            others = [other for other in names if other != name] if len(names) > 1 else []
            (folder / name).write_bytes(self._text(others))
        return folder / names[0]

    def _text(self, included: list[str]) -> bytes:
        choose, chance = self._random.choice, self._random.random
        end = choose(["\n", "\n", "\r\n", "\r"])
        lines = []
        for _ in range(self._random.randrange(14)):
            lines.append(choose(["", "", " ", "\t"]) + self._line() + choose(["", "", " ", "\\ "]))
            if chance() < 0.2:
                lines.append(choose(_COMMENTS))
        if included and chance() < 0.5:
            word = choose(["include", "INCLUDE", "includeOptional", "includeoptional"])
            value = choose([*included, *included, "", "none.conf", "${no:-inc}.conf"])
            lines.insert(self._random.randrange(len(lines) + 1), f"{word}={value}")
        text = end.join(lines) + choose(["", end])
        return text.encode(choose(["utf-8", "iso-8859-1"]), "replace")

    def _line(self) -> str:
        choose, chance = self._random.choice, self._random.random
        name = choose(_NAMES) if chance() < 0.1 else choose(_KEYS)
        pieces = [choose(_VALUES) for _ in range(choose([0, 1, 1, 1, 2, 3]))]
        value = choose([",", " , ", "", ", "]).join(pieces)
        text = name + choose(_SEPARATORS) + value
        if chance() < 0.2:
            cut = self._random.randrange(len(text) + 1)
            middle = choose(["\\\n", "\\\r\n   ", "\\\n\t# no\n ", "\\\n\n"])
            text = text[:cut] + middle + text[cut:]
        if chance() < 0.05:
            position = self._random.randrange(len(text) + 1)
            text = text[:position] + choose("\\$#!=:,\x85") + text[position:]
        return text
