"""OPTIONS files: the settings with which a database was last opened.

    [Section "name"]        DBOptions, CFOptions "default", TableOptions/BlockBasedTable "default"
      name=value            a line for each; # begins a comment, \\ precedes a character like it

RocksDB writes a new file at each change and keeps the last two; the one of the highest number
counts. They say how new files are written, not how the existing ones are: each table file has its
own format, checksum and compression. Source: `options/options_parser.cc` of RocksDB.
"""

from __future__ import annotations

import re

from bkstore.errors import CorruptionError

_SECTION = re.compile(r'\[([^\]"]+?)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]')
_COMMENT = re.compile(r"(?<!\\)#.*")
_ESCAPED = re.compile(r"\\(.)")

DEFAULT_FAMILY = "default"

OptionSections = dict[tuple[str, str], dict[str, str]]
"""The options by section: (its title, its column family or "")."""


def decode_options(content: bytes) -> OptionSections:
    """Return the options in the bytes of an OPTIONS file, by the name and argument of their
    section. Raises `CorruptionError` with the offset of a line that is neither a section, an option
    nor a comment.

    >>> sections = decode_options(b'[CFOptions "default"]\\n  compression=kLZ4Compression\\n')
    >>> sections["CFOptions", "default"]
    {'compression': 'kLZ4Compression'}
    """
    sections: OptionSections = {}
    options: dict[str, str] | None = None
    offset = 0
    for raw_line in content.splitlines(keepends=True):
        line = _COMMENT.sub("", raw_line.decode("utf-8", "replace")).strip()
        section = _SECTION.fullmatch(line)
        if section is not None:
            options = sections.setdefault((section[1].strip(), section[2] or ""), {})
        elif line:
            option, equals, value = line.partition("=")
            if options is None or not equals:
                raise CorruptionError(
                    None, offset, f"neither a section nor an option: {line[:60]!r}"
                )
            options[option.strip()] = _ESCAPED.sub(r"\1", value.strip())
        offset += len(raw_line)
    return sections


def families(sections: OptionSections) -> list[str]:
    """Return the names of the column families that the options are for, in order.

    >>> families({("CFOptions", "default"): {}, ("DBOptions", ""): {}})
    ['default']
    """
    return [family for title, family in sections if title == "CFOptions"]


def summarize_options(sections: OptionSections) -> dict[str, str]:
    """Return the options that decide about bytes on disk, in a fixed order; those that the file
    does not state are left out. Of column families the default one counts.

    >>> summarize_options({("DBOptions", ""): {"wal_compression": "kNoCompression"}})
    {'wal_compression': 'kNoCompression'}
    """
    wanted = {
        ("Version", ""): ("rocksdb_version",),
        ("DBOptions", ""): ("wal_compression", "wal_recovery_mode"),
        ("CFOptions", DEFAULT_FAMILY): (
            "comparator",
            "compression",
            "num_levels",
            "merge_operator",
        ),
        ("TableOptions/BlockBasedTable", DEFAULT_FAMILY): (
            "format_version",
            "checksum",
            "block_size",
            "block_restart_interval",
            "filter_policy",
            "index_type",
        ),
    }
    return {
        option: sections[section][option]
        for section, options in wanted.items()
        for option in options
        if option in sections.get(section, {})
    }
