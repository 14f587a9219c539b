"""BookKeeper's bookie protocols: frames, v2 and v3 messages, status codes; server, client, admin.

`frames` splits a byte stream into messages and frames messages: read it first. `v2` has the
messages of fixed fields, `v3` the protobuf ones (declared in `v3_schema`); `protocol_detection`
decides which of the two protocols a connection uses; `status_codes` maps status codes to errors;
`sasl` authenticates clients. None of these does I/O, except that `sasl` reads a file;
`docs/formats/wire.md` describes the bytes. `server` serves a bookie over sockets, `client` sends
requests to bookies; `tls` makes the contexts of both, `listening` accepts connections. `admin` is
the HTTP admin of a bookie.
"""

__all__ = [
    "admin",
    "client",
    "frames",
    "listening",
    "protocol_detection",
    "sasl",
    "server",
    "status_codes",
    "tls",
    "v2",
    "v3",
    "v3_schema",
]
