"""Requests as operations: what a client asks, whichever protocol it says it in.

`operations` has what can be asked, and what an answer is; `of_v2` and `of_v3` make operations of
the messages of a protocol, and frames of the answers.
"""

__all__ = ["of_v2", "of_v3", "operations"]
