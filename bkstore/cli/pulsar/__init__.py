"""Commands for operators of Apache Pulsar over BookKeeper.

`leaks` lists the ledgers that nobody needs any more, as rows of `leak_rows` with their bytes on
disks (`leak_bytes`); `delete` deletes those of a reviewed list, which `reviewed_list` reads.
`entry_rows` has the rows of `bkstore readledger --as pulsar`.
`durations` parses times and durations; `age_options` has the options --grace and --as-of,
`location_options` where Pulsar's metadata are.
"""

__all__ = [
    "age_options",
    "delete",
    "durations",
    "entry_rows",
    "leak_bytes",
    "leak_rows",
    "leaks",
    "location_options",
    "reviewed_list",
]
