"""Requests as operations, the same for both protocols.

`operations` has the operations and their answers; `v2_requests` and `v3_requests` turn the messages
of one protocol into operations, and answers into frames.
"""

__all__ = ["operations", "v2_requests", "v3_requests"]
