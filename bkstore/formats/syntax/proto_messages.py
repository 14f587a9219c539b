"""Declaring proto2 messages through the protobuf library, without generated code."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from bkstore.errors import CorruptionError

BOOL, STRING, BYTES = 8, 9, 12
OPTIONAL, REQUIRED = 1, 2


def declare(name: str, *fields: tuple[str, int, int, int]) -> type[Any]:
    """Return a message class; each field is (name, number, type, label)."""
    file = FileDescriptorProto(name=f"bkstore/{name}.proto", package="bkstore", syntax="proto2")
    message = file.message_type.add(name=name)
    for field, number, field_type, label in fields:
        message.field.add(name=field, number=number, type=field_type, label=label)
    return classes_of(file, name)[0]


def declare_file(text: str, *names: str) -> list[type[Any]]:
    """Return the classes of messages of a file descriptor in protobuf's text format."""
    from google.protobuf import text_format  # which the messages of ledger rows do not need

    return classes_of(text_format.Parse(text, FileDescriptorProto()), *names)


def classes_of(file: FileDescriptorProto, *names: str) -> list[type[Any]]:
    """Return the classes of messages of a file descriptor, in a pool of their own."""
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    descriptors = (pool.FindMessageTypeByName(f"{file.package}.{name}") for name in names)
    return list(map(message_factory.GetMessageClass, descriptors))


def check_complete(message: Any, offset: int, subject: str) -> None:
    """Raise `CorruptionError`, its reason starting with `subject`, if required fields are
    missing."""
    if not message.IsInitialized():
        missing = ", ".join(message.FindInitializationErrors())
        raise CorruptionError(None, offset, f"{subject} lacks {missing}")
