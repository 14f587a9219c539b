"""Contracts as tests: `index`, ledger `storage`, clients of a bookie (`bookie_client`)."""

__all__ = ["bookie_client", "index", "storage"]
