"""Declaring proto2 messages through the protobuf library, without generated code."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

BOOL, STRING, BYTES = 8, 9, 12
OPTIONAL, REQUIRED = 1, 2


def declare(name: str, *fields: tuple[str, int, int, int]) -> type[Any]:
    """Return a message class; each field is (name, number, type, label)."""
    file = descriptor_pb2.FileDescriptorProto(
        name=f"bkstore/{name}.proto", package="bkstore", syntax="proto2"
    )
    message = file.message_type.add(name=name)
    for field, number, kind, label in fields:
        message.field.add(name=field, number=number, type=kind, label=label)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = pool.FindMessageTypeByName(f"bkstore.{name}")
    return message_factory.GetMessageClass(found)
