"""The survey of a rescue: all copies of the wanted ledgers' entries on the disks of bookies.

`survey` reads all files of all bookies, each once and several at a time, by `file_survey`: read
them first. `wanted_ledgers` are the ledgers with what verifies their records, `sources` the
bookies' directories, files and index rows. `verification` checks digests, `damaged_media` skips
unreadable sectors, `missing_parts` finds directories and journals that are not here, and `copies`
are the rows that a survey makes.
"""

__all__ = [
    "copies",
    "damaged_media",
    "file_survey",
    "missing_parts",
    "sources",
    "survey",
    "verification",
    "wanted_ledgers",
]
