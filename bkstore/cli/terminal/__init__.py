"""What commands share: how they are asked, and how they answer.

`shared_options` opens the directory that a command names, `ledger_options` says which ledger is
meant, `output_options` how to answer; `secrets` keeps passwords and keys where they are.
`table_output` writes tables in five formats, `screen_tables` those for people: `default_columns`
says what a screen has of each table, `column_choice` what of it fits, `cells` how a value reads,
`screen_stream` what the terminal takes. `messages` is all that is said on standard error,
`progress` the bar there.
"""

__all__ = [
    "cells",
    "column_choice",
    "default_columns",
    "ledger_options",
    "messages",
    "needed_packages",
    "parser",
    "output_options",
    "progress",
    "screen_stream",
    "screen_tables",
    "secrets",
    "shared_options",
    "table_output",
]
