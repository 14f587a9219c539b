"""BookKeeper's bookie protocols as bytes: frames, v2 and v3 messages, status codes; no I/O.

`frames` cuts a byte stream into messages and puts them together: read it first. `v2` has the
hand-made messages, `v3` the protobuf ones (declared in `schema`); `detection` decides which of
the two a connection speaks; `status` is the one table of status codes and of the errors that
they stand for. The bytes are in `docs/formats/wire.md`.
"""

__all__ = ["detection", "frames", "schema", "status", "v2", "v3"]
