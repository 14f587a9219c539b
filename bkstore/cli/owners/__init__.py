"""Owners of ledgers in commands: filters by topic, and columns beside the ids of ledgers.

`owner_options` has the options --topic, --namespace, --tenant and --component, `ledger_choice` the
ledgers that they choose in the metadata, `owner_columns` the columns of owners; a `row_counter`
notices that nothing was shown.
"""

__all__ = ["ledger_choice", "owner_columns", "owner_options", "row_counter"]
