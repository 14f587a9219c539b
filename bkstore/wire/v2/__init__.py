"""The v2 protocol: messages of fixed fields after a packet header of version, opcode and flags.

`header` has the packet header and the opcodes. `requests` and `responses` have the messages, which
they encode and decode; `batches` handles many similar messages as arrays. The `parts` of a message
are joined by `wire.frames.frame`. v2 has no scopes: a ledger in one raises `IllegalOperation`.
"""

from bkstore.wire.v2.batches import (
    AddRequests,
    ReadRequests,
    decode_leading_group,
    encode_add_responses,
    encode_read_responses,
    group_requests,
)
from bkstore.wire.v2.header import CURRENT_VERSION, Flags, Opcode, PacketHeader
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
    "CURRENT_VERSION",
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
    "decode_leading_group",
    "decode_request",
    "decode_response",
    "encode_add_responses",
    "encode_read_responses",
    "group_requests",
]
