"""Which request gets which answer: the rules of BookKeeper's request processors for a `Bookie`.

`BookieRules` takes operations and returns answers. `reads` has reads, fencing reads, and the
status of each error; `writes` adds all that changes something, and the batching of adds. All of
it runs in threads of the server's pools.
"""

from bkstore.wire.server.rules.writes import BookieRules

__all__ = ["BookieRules"]
