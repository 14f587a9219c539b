"""Arguments of `bkstore serve` from a `bk_server.conf`, unless the command line gives them.

`serve_arguments` completes the command's arguments, `checkpoint_and_garbage_options` has some.
"""

__all__ = ["checkpoint_and_garbage_options", "serve_arguments"]
