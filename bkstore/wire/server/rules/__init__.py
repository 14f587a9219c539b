"""What a bookie says to what: the rules of upstream's request processors over a `Bookie`.

`BookieRules` takes operations and returns answers. `reads` has what only reads and the reads that
fence, `writes` adds the rest and the grouping of adds; `statuses` says which error is which status.
All of it runs in threads of the server's pools.
"""

from bkstore.wire.server.rules.writes import BookieRules

__all__ = ["BookieRules"]
