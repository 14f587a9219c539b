"""What a bookie says to what: the rules of upstream's request processors over a `Bookie`.

`BookieRules` takes operations and returns answers. `reads` has what only reads, the reads that
fence, and which error is which status; `writes` adds the rest and the grouping of adds. All of it
runs in threads of the server's pools.
"""

from bkstore.wire.server.rules.writes import BookieRules

__all__ = ["BookieRules"]
