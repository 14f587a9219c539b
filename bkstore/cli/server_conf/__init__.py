"""What a `bk_server.conf` says of `bkstore serve`, where its command line says nothing.

`choices` completes the command's arguments with it; `upkeep` has those of checkpoints and garbage
collection.
"""

__all__ = ["choices", "upkeep"]
