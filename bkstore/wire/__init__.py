"""BookKeeper's bookie protocols: frames, v2 and v3 messages, status codes; server, client, admin.

`frames` cuts a byte stream into messages and puts them together: read it first. `v2` has the
hand-made messages, `v3` the protobuf ones (declared in `schema`); `detection` decides which of
the two a connection speaks; `status` is the one table of status codes and of the errors that
they stand for; `sasl` is how clients prove who they are. None of these does I/O, but that `sasl`
reads a file; the bytes are in `docs/formats/wire.md`. `server` answers such messages out of a
bookie, over sockets; `client` asks bookies by them; `tls` makes the contexts of both, `listening`
takes clients in. `admin` answers HTTP about a bookie.
"""

__all__ = [
    "admin",
    "client",
    "detection",
    "frames",
    "listening",
    "sasl",
    "schema",
    "server",
    "status",
    "tls",
    "v2",
    "v3",
]
