"""Contracts as tests: the index in `index`, ledger storage in `storage`, clients of a bookie in
`bookie_client`."""

__all__ = ["bookie_client", "index", "storage"]
