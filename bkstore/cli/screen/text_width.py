"""The width of texts on a terminal, where some characters take two cells: padding and wrapping."""

from __future__ import annotations

import re

_SPLIT_PATTERN = re.compile(r".*[=_/,:;.-](?=.)")
"""The beginning of a line of one long word, up to the last sign after which it can be split."""


def width(text: str) -> int:
    """Return the number of terminal cells that a printable text takes."""
    if _is_narrow(text):
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def max_width(cells: list[str]) -> int:
    """Return the number of terminal cells of the widest text, 0 if there is none."""
    return max(map(len if _is_narrow("".join(cells)) else width, cells), default=0)


def _is_narrow(text: str) -> bool:
    """Return whether the text surely takes one cell per character: ASCII and "…" do."""
    return text.isascii() or text.replace("…", "").isascii()


def pad_cells(cells: list[str], cell_width: int, right: bool) -> list[str]:
    """Return the texts padded to `cell_width` terminal cells; wider ones are unchanged."""
    if _is_narrow("".join(cells)):
        return [text.rjust(cell_width) if right else text.ljust(cell_width) for text in cells]
    gaps = [" " * (cell_width - width(text)) for text in cells]
    return [gap + text if right else text + gap for gap, text in zip(gaps, cells)]


def truncate(text: str, room: int, mark: str = "…", *, keep_end: bool = False) -> str:
    """Return the text cut to at most `room` terminal cells, with `mark` in place of its end, or of
    its beginning with `keep_end`, as ends distinguish paths.

    >>> truncate("bookie-1/current/0.log", 8), truncate("bookie-1/current/0.log", 8, keep_end=True)
    ('bookie-…', '…t/0.log')
    """
    if width(text) <= room:
        return text
    room = max(room - width(mark), 0)
    if keep_end:
        return mark + _prefix_of_width(text[::-1], room)[::-1]
    return _prefix_of_width(text, room) + mark


def _prefix_of_width(text: str, room: int) -> str:
    """Return the longest beginning of a text that fits into `room` terminal cells."""
    if _is_narrow(text):
        return text[:room]
    for length, character in enumerate(text):
        room -= width(character)
        if room < 0:
            return text[:length]
    return text


def wrap_text(text: str, room: int) -> list[str]:
    """Return the text wrapped to lines of `room` cells. Only words wider than that are split, after
    a sign such as "=" or "/" where a line has one.

    >>> wrap_text("rocksdb block_size=16384", 14)
    ['rocksdb', 'block_size=', '16384']
    """
    lines = [""]
    for word in re.findall(r" *[^ ]+", text):
        if lines[-1] and width(lines[-1] + word) > room:
            lines.append("")
            word = word.lstrip()
        if width(lines[-1]) + width(word) <= room:
            lines[-1] += word
            continue
        # A word wider than a line: fill the line, and break after a sign if there is one.
        for character in word:
            if width(character) + width(lines[-1]) > room:
                kept = _SPLIT_PATTERN.match(lines[-1])
                start = kept.end() if kept else len(lines[-1])
                lines.append(lines[-1][start:])
                lines[-2] = lines[-2][:start]
            lines[-1] += character
    return lines
