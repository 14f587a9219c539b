"""What commands share: how they are asked, and how they answer.

`parser` is argparse's with rules of its own, `shared_options` opens the directory that a command
names, `table_output` writes its tables in five formats, `screen_tables` those for people.
`messages` is all that is said on standard error, `progress` the bar there, `secrets` keeps
passwords and keys where they are, `needed_packages` says which optional packages are missing.
"""

__all__ = [
    "messages",
    "needed_packages",
    "parser",
    "progress",
    "screen_tables",
    "secrets",
    "shared_options",
    "table_output",
]
