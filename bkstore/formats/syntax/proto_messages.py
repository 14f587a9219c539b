"""Declaring proto2 messages through the protobuf library, without generated code. A message is a
line ``Name: label type field number, ...``, which indented lines continue. A nested type has the
name of its message before its own, ``Message.Type``, and is declared after it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

from bkstore.errors import CorruptionError

_LABELS = {"optional": 1, "required": 2, "repeated": 3}
_TYPES = {"int64": 3, "uint64": 4, "int32": 5, "bool": 8, "string": 9, "bytes": 12, "uint32": 13}
_MESSAGE_TYPE, _ENUM_TYPE = 11, 14


def declare(
    package: str, text: str, enums: Mapping[str, str] | None = None
) -> dict[str, type[Any]]:
    """Return the classes of the protobuf messages that are declared in `text`, by name. `enums` has
    the names and numbers of each enum. No generated code and no ``.proto`` file are needed.

    >>> messages = declare("example", "Lock: required string holder 1, optional State state 2",
    ...                    {"State": "FREE 1, HELD 2"})
    >>> messages["Lock"](holder="b1", state=2).SerializeToString()
    b'\\n\\x02b1\\x10\\x02'
    """
    return compile_messages(package, parse_messages(text), enums or {})


def parse_messages(text: str) -> dict[str, list[str]]:
    """Return the field declarations of each message, as text. A line is ``Name: declaration, ...``;
    an indented one continues the line before."""
    messages = {}
    for line in text.replace("\n    ", " ").splitlines():
        name, _, fields = line.partition(":")
        if name:
            messages[name] = [field.strip() for field in fields.split(",") if field.strip()]
    return messages


def compile_messages(
    package: str, messages: Mapping[str, Iterable[str]], enums: Mapping[str, str]
) -> dict[str, type[Any]]:
    """Return the classes of messages with these field declarations, such as ``optional int64 ctime
    1``, in a pool of their own. `enums` has values such as ``OPEN 1, CLOSED 2``. A message or enum
    ``Parent.Name`` is declared inside of another message."""
    file_name = f"{package.replace('.', '/')}.proto"
    file = FileDescriptorProto(name=file_name, package=package, syntax="proto2")
    # Messages. A nested one is declared in its parent, which comes before it.
    declared: dict[str, DescriptorProto] = {}
    for name, declarations in messages.items():
        parent, _, own_name = name.rpartition(".")
        siblings = declared[parent].nested_type if parent else file.message_type
        message = declared[name] = siblings.add(name=own_name)
        for declaration in declarations:
            label, type_name, field_name, number = declaration.split()
            type_number = _TYPES.get(type_name, _ENUM_TYPE if type_name in enums else _MESSAGE_TYPE)
            field = message.field.add(
                name=field_name, number=int(number), label=_LABELS[label], type=type_number
            )
            if type_name not in _TYPES:
                field.type_name = f".{package}.{type_name}"
    # Enums: "NAME NUMBER, NAME NUMBER", at the top or in a message.
    for name, values in enums.items():
        parent, _, own_name = name.rpartition(".")
        enum = (declared[parent] if parent else file).enum_type.add(name=own_name)
        for value in values.split(","):
            value_name, number = value.split()
            enum.value.add(name=value_name, number=int(number))
    # The classes get a pool of their own: protobuf's default pool refuses a second file that
    # declares the same names, such as another library's.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    descriptors = {name: pool.FindMessageTypeByName(f"{package}.{name}") for name in messages}
    return {name: message_factory.GetMessageClass(item) for name, item in descriptors.items()}


def check_complete(message: Any, offset: int, subject: str) -> None:
    """Raise `CorruptionError`, its reason starting with `subject`, if it lacks a required field."""
    if not message.IsInitialized():
        missing = ", ".join(message.FindInitializationErrors())
        raise CorruptionError(None, offset, f"{subject} lacks {missing}")
