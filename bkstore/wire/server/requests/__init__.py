"""Requests as operations, the same for both protocols.

`operations` has the operations and their answers; `of_v2` and `of_v3` turn the messages of one
protocol into operations, and answers into frames.
"""

__all__ = ["of_v2", "of_v3", "operations"]
