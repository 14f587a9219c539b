"""Syntaxes that several formats are written in, none of them BookKeeper's own.

`framing` finds whole frames, each behind its size; `json_text` reads JSON from outside, whatever
its bytes are; `proto_messages` declares protobuf messages without generated code; `proto_text` is
protobuf's text format, as Java writes it. `properties_text` reads the files of settings of
commons-configuration, `variables` replaces what stands for other values in them, `java_values`
are numbers and truths as Java reads them, and `configuration` puts these together.
"""

__all__ = [
    "configuration",
    "framing",
    "java_values",
    "json_text",
    "properties_text",
    "proto_messages",
    "proto_text",
    "variables",
]
