"""The contracts as tests: of the index in `index`, of ledger storage in `storage`."""

__all__ = ["index", "storage"]
