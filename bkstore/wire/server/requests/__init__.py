"""Requests as operations, the same for both protocols.

`operations` has the operations and their answers; `v2_requests` and `v3_requests` turn the messages
of one protocol into operations, and answers into frames; `auth_responses` has those to AUTH.
"""

__all__ = ["auth_responses", "operations", "v2_requests", "v3_requests"]
