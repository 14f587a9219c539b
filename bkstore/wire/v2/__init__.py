"""The v2 protocol: messages laid out by hand, behind a word of version, opcode and flags.

`header` has that word and the opcodes; `requests` and `responses` the messages, encoded and
decoded both ways; `many` those that are alike, as arrays. A message says its `parts`, which
`wire.frames.frame` puts together. v2 cannot say a scope: `IllegalOperation`.
"""

from bkstore.wire.v2.header import CURRENT, Flags, Opcode, PacketHeader
from bkstore.wire.v2.many import (
    AddRequests,
    ReadRequests,
    add_responses,
    group_requests,
    leading_window,
    read_responses,
)
from bkstore.wire.v2.requests import (
    AddRequest,
    AuthRequest,
    BatchReadRequest,
    ReadRequest,
    Request,
    decode_request,
)
from bkstore.wire.v2.responses import (
    AddResponse,
    AuthResponse,
    BatchReadResponse,
    ReadResponse,
    Response,
    decode_response,
)

__all__ = [
    "CURRENT",
    "AddRequest",
    "AddRequests",
    "AddResponse",
    "AuthRequest",
    "AuthResponse",
    "BatchReadRequest",
    "BatchReadResponse",
    "Flags",
    "Opcode",
    "PacketHeader",
    "ReadRequest",
    "ReadRequests",
    "ReadResponse",
    "Request",
    "Response",
    "add_responses",
    "decode_request",
    "decode_response",
    "group_requests",
    "leading_window",
    "read_responses",
]
