"""What commands share: options, output, messages and exit codes.

`parser` extends argparse's parser, among others with a check that no output lies in an input.
`shared_options` opens the directory that a command names, `ledger_options` choose a ledger,
`metadata_options` parses where metadata are stored, and owners; `output_options` the format;
`table_output` writes tables in five formats. `standard_streams` prints messages and texts,
`progress` shows a bar, `signals` ends a command in order, `secrets` reads passwords and hides keys,
`needed_packages` checks for optional packages, `exit_codes` defines the exit codes.
"""

__all__ = [
    "exit_codes",
    "ledger_options",
    "metadata_options",
    "needed_packages",
    "output_options",
    "parser",
    "progress",
    "secrets",
    "shared_options",
    "signals",
    "standard_streams",
    "table_output",
]
