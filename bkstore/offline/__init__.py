"""What is done with directories that are not running. `dump` writes their indexes to Parquet."""

__all__ = ["dump"]
