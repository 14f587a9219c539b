"""Requests as operations, the same for both protocols.

`operations` has the operations and their answers; `v2_requests` and `v3_requests` turn the messages
of one protocol into operations, and answers into frames.
"""

__all__ = ["of_v2", "of_v3", "operations"]
