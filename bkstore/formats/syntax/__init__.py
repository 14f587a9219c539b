"""Syntaxes that several formats are written in, none of them BookKeeper's own.

`framing` finds whole frames, each behind its size; `json_text` reads JSON from outside, whatever
its bytes are; `proto_messages` declares protobuf messages without generated code; `proto_text` is
protobuf's text format, as Java writes it.
"""

__all__ = ["framing", "json_text", "proto_messages", "proto_text"]
