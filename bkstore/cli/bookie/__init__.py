"""Commands about one bookie's directories, as in the bookie shell: a module a command.

`inspect` is the overview: read it first.
`log_choice` is what `readlog` and `readlogmetadata` share: which entry logs are meant.
"""

__all__ = [
    "availability",
    "inspect",
    "lastmark",
    "ledger",
    "ledgers",
    "listfiles",
    "log_choice",
    "readjournal",
    "readledger",
    "readlog",
    "readlogmetadata",
    "where",
]
