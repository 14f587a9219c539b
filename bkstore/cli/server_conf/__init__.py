"""What a `bk_server.conf` says of `bkstore serve`, where its command line says nothing.

`serve_arguments` completes the command's arguments, `checkpoint_and_garbage_options` has some.
"""

__all__ = ["checkpoint_and_garbage_options", "serve_arguments"]
