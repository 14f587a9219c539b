"""The contracts as tests: of the index in `index`, of ledger storage in `storage`, of clients of
one bookie in `bookie_client`."""

__all__ = ["bookie_client", "index", "storage"]
