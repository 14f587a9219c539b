"""What commands share: how they are asked, and how they answer.

`parser` is argparse's with rules of its own, one of them where nothing may be written.
`shared_options` opens the directory that a command names, `ledger_options` says which ledger is
meant, `metadata_options` where metadata are, `output_options` how to answer; `table_output` writes
tables in five formats. `messages` is all that is said on standard error, `progress` the bar there,
`secrets` keeps passwords and keys where they are, `needed_packages` says which optional packages
are missing, `exit_codes` has the exit codes.
"""

__all__ = [
    "exit_codes",
    "ledger_options",
    "messages",
    "metadata_options",
    "needed_packages",
    "output_options",
    "parser",
    "progress",
    "secrets",
    "shared_options",
    "table_output",
]
