"""What a `bk_server.conf` says of `bkstore serve`, where its command line says nothing.

`choices` completes the command's arguments with it.
"""

__all__ = ["choices"]
