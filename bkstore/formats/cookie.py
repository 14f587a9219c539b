"""The cookie: text file ``current/VERSION`` in every directory of a bookie. First line: layout
version in decimal. Version 3: three more lines (bookie id, journal directories, ledger
directories). From 4 on: protobuf text of `CookieFormat`. A list of directories is its length in
decimal, then a TAB and a path for each. Source: `bookie/Cookie`; `docs/formats/cookie.md`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.syntax import proto_text
from bkstore.formats.syntax.proto_messages import check_complete, declare

FILE_NAME = "VERSION"
_OLDEST_VERSION = 3
NEWEST_VERSION = 5

_NUMBER = re.compile(r"[0-9]{1,9}")

_MESSAGE = """CookieFormat:
    required string bookieHost 1, required string journalDir 2, required string ledgerDirs 3,
    optional string instanceId 4, optional string indexDirs 5"""
_Message = declare("bkstore", _MESSAGE)["CookieFormat"]


@dataclass(frozen=True, slots=True)
class Cookie:
    """The identity that a bookie writes into each of its directories."""

    version: int
    bookie_id: str
    journal_dirs: tuple[str, ...]
    ledger_dirs: tuple[str, ...]
    index_dirs: tuple[str, ...] | None = None
    instance_id: str | None = None


def decode(data: bytes) -> Cookie:
    r"""Return the cookie; `CorruptionError` if it is invalid, or of a version outside 3..5.

    >>> decode(b"3\nb1:3181\n/j\n1\t/l\n").ledger_dirs
    ('/l',)
    """
    try:
        first_line, _, body = data.decode("utf-8").partition("\n")
    except UnicodeDecodeError as error:
        raise CorruptionError(None, error.start, "cookie is not UTF-8 text") from error
    digits = first_line.strip(" \r\t")
    if not _NUMBER.fullmatch(digits):
        raise CorruptionError(None, 0, f"cookie does not begin with a version: {first_line[:40]!r}")
    version = int(digits)
    if not _OLDEST_VERSION <= version <= NEWEST_VERSION:
        raise CorruptionError(None, 0, f"cookie version {version} is outside 3..5")
    if version == _OLDEST_VERSION:
        return _decode_version_3(body)
    body_offset = len(data) - len(body.encode())
    return _decode_text(version, data, body_offset)


def _decode_version_3(text: str) -> Cookie:
    """Return the cookie of three lines: host, journal directories, ledger directories."""
    lines = text.splitlines()
    if len(lines) != 3:
        raise CorruptionError(None, 0, f"cookie of version 3 has {len(lines)} more lines")
    return Cookie(3, lines[0], tuple(lines[1].split(",")), _decode_paths(lines[2]))


def _decode_text(version: int, data: bytes, body_offset: int) -> Cookie:
    """Return the cookie in a protobuf message in text format, which begins at `body_offset`."""
    message = _Message()
    proto_text.parse_into(data, body_offset, message, "cookie")
    check_complete(message, body_offset, "cookie")
    return Cookie(
        version=version,
        bookie_id=message.bookieHost,
        journal_dirs=tuple(message.journalDir.split(",")),
        ledger_dirs=_decode_paths(message.ledgerDirs),
        index_dirs=_decode_paths(message.indexDirs) if message.HasField("indexDirs") else None,
        instance_id=message.instanceId if message.HasField("instanceId") else None,
    )


def _decode_paths(text: str) -> tuple[str, ...]:
    """Return the paths of a list in a cookie: their number, then each, separated by tabs."""
    count, *paths = text.split("\t")
    if not _NUMBER.fullmatch(count) or int(count) != len(paths):
        raise CorruptionError(None, 0, f"cookie's directory list is invalid: {text[:80]!r}")
    return tuple(paths)


def encode(cookie: Cookie) -> bytes:
    r"""Return the file's bytes, as `Cookie.toString` writes them; `decode` gives the cookie back.
    Raises `InvalidArgument` for a version outside 3..5, an instance id or index directories in
    version 3, which has no fields for them, and names that the file cannot hold: empty, not UTF-8,
    with a TAB or line break, or journal directories with a comma.

    >>> encode(Cookie(5, "b1:3181", ("/j",), ("/a", "/b"), instance_id="x")).decode().split("\n")[3]
    'ledgerDirs: "2\\t/a\\t/b"'
    """
    if not _OLDEST_VERSION <= cookie.version <= NEWEST_VERSION:
        raise InvalidArgument(f"cookie version {cookie.version} is outside 3..5")
    journals = ",".join(_check_names(cookie.journal_dirs, ","))
    (bookie_id,) = _check_names((cookie.bookie_id,))
    ledger_dirs = _encode_paths(cookie.ledger_dirs)
    if cookie.version == _OLDEST_VERSION:
        if cookie.index_dirs is not None or cookie.instance_id is not None:
            raise InvalidArgument("a cookie of version 3 has no index directories or instance id")
        lines = ("3", bookie_id, journals, ledger_dirs)
        return "".join(f"{line}\n" for line in lines).encode()
    message = _Message(bookieHost=bookie_id, journalDir=journals, ledgerDirs=ledger_dirs)
    if cookie.instance_id is not None:
        message.instanceId = cookie.instance_id
    if cookie.index_dirs is not None:
        message.indexDirs = _encode_paths(cookie.index_dirs)
    return b"%d\n" % cookie.version + proto_text.to_bytes(message)


def _encode_paths(paths: tuple[str, ...]) -> str:
    return "\t".join((str(len(paths)), *_check_names(paths)))


def _check_names(names: tuple[str, ...], forbidden: str = "") -> tuple[str, ...]:
    """Return the names; `InvalidArgument` unless each would be read back unchanged: as one line of
    UTF-8 text without a tab, the separator of lists, or a `forbidden` character."""
    for name in names:
        reads_back = name.splitlines() == [name] and name == name.encode(errors="replace").decode()
        if not reads_back or any(character in name for character in "\t" + forbidden):
            raise InvalidArgument(f"a cookie cannot hold the name {name!r}")
    if not names:
        raise InvalidArgument("a cookie names at least one directory of each kind")
    return names
