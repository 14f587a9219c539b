"""Commands that read one bookie's directories, as in the bookie shell: one module per command.

`inspect` prints an overview; read it first. `log_arguments` has the arguments of `readlog` and
`readlogmetadata` that choose entry logs.
"""

__all__ = [
    "availability",
    "inspect",
    "lastmark",
    "ledger",
    "ledgers",
    "listfiles",
    "log_arguments",
    "readjournal",
    "readledger",
    "readlog",
    "readlogmetadata",
    "where",
]
