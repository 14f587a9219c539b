"""What a `bk_server.conf` says of `bkstore serve`, where its command line says nothing.

`choices` completes the command's arguments; `upkeep` has those of checkpoints and garbage.
"""

__all__ = ["choices", "upkeep"]
