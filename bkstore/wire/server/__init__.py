"""A bookie's server: requests of both protocols from sockets, answered by a `Bookie`.

`observer` is what it tells of each request.
"""

__all__ = ["observer"]
