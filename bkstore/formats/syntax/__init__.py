"""Syntaxes that several formats share, none of them BookKeeper's own.

`framing` finds whole frames by their size fields; `json_text` parses untrusted JSON;
`proto_messages` declares protobuf messages, `field_columns` reads fields of many messages at once;
`proto_text` is protobuf's text format, as Java writes it. `properties_text` parses
commons-configuration's properties files, `variables` replaces variables in values, `java_values`
parses numbers and booleans, `configuration` combines these.
"""

__all__ = [
    "configuration",
    "field_columns",
    "framing",
    "java_values",
    "json_text",
    "properties_text",
    "proto_messages",
    "proto_text",
    "variables",
]
