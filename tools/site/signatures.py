"""Signatures, fields and values of public names as Python source, without bodies."""

from __future__ import annotations

import griffe

_MAX_LINE_LENGTH = 88
_MAX_VALUE_LENGTH = 400
_SHOWN_DECORATORS = ("property", "cached_property", "classmethod", "staticmethod", "abstractmethod")
_SHOWN_FULL_NAMES = ("contextmanager", "contextlib.contextmanager", "overload", "dataclass")
_VARIADIC_MARKS = {"variadic positional": "*", "variadic keyword": "**"}


def signature_of(item: griffe.Object) -> str:
    """Return the head of a class, function or attribute as Python source."""
    if isinstance(item, griffe.Class):
        return _class_source(item)
    if isinstance(item, griffe.Function):
        heads = [_function_source(f) for f in item.overloads or []] or [_function_source(item)]
        return "\n".join(heads)
    if isinstance(item, griffe.Attribute):
        return _property_source(item) if "property" in item.labels else _attribute_source(item)
    raise TypeError(f"{item.path}: no signature for a {item.kind.value}")


def _decorator_lines(item: griffe.Class | griffe.Function | griffe.Attribute) -> list[str]:
    """Return the decorators that matter to a caller."""
    lines = []
    for decorator in getattr(item, "decorators", ()):
        text = str(decorator.value)
        name = text.partition("(")[0]  # without arguments
        if name.rpartition(".")[2] in _SHOWN_DECORATORS or name in _SHOWN_FULL_NAMES:
            lines.append(f"@{text}")
    return lines


def _parameter_source(parameter: griffe.Parameter) -> str:
    kind = parameter.kind.value if parameter.kind else ""
    text = _VARIADIC_MARKS.get(kind, "") + parameter.name
    if parameter.annotation is not None:
        text += f": {parameter.annotation}"
    if parameter.default is not None and kind not in _VARIADIC_MARKS:
        text += f" = {parameter.default}" if parameter.annotation else f"={parameter.default}"
    return text


def _parameter_list(function: griffe.Function) -> list[str]:
    """Return the parameters as source, with "*" before the first keyword-only one unless it follows
    `*args`, and "/" behind the last positional-only one."""
    sources: list[str] = []
    kinds = [parameter.kind.value if parameter.kind else "" for parameter in function.parameters]
    for i, parameter in enumerate(function.parameters):
        if kinds[i] == "keyword-only" and not {"keyword-only", *_VARIADIC_MARKS} & set(kinds[:i]):
            sources.append("*")
        sources.append(_parameter_source(parameter))
        if kinds[i] == "positional-only" and "positional-only" not in kinds[i + 1 :]:
            sources.append("/")
    return sources


def _function_source(function: griffe.Function) -> str:
    head = "async def" if "async" in function.labels else "def"
    tail = f" -> {function.returns}" if function.returns is not None else ""
    parameters = _parameter_list(function)
    source = f"{head} {function.name}({', '.join(parameters)}){tail}"
    if len(source) > _MAX_LINE_LENGTH:  # then one line for each parameter
        inside = "".join(f"    {parameter},\n" for parameter in parameters)
        source = f"{head} {function.name}(\n{inside}){tail}"
    return "\n".join([*_decorator_lines(function), source])


def _attribute_source(item: griffe.Attribute) -> str:
    text = item.name
    if item.annotation is not None:
        text += f": {item.annotation}"
    if item.value is not None:
        value = str(item.value)
        text += f" = {value if len(value) <= _MAX_VALUE_LENGTH else '...'}"
    return text


def _property_source(item: griffe.Attribute) -> str:
    settable = "\n# may be set" if item.setter is not None else ""
    return f"@property\ndef {item.name}(self) -> {item.annotation}{settable}"


def _field_lines(owner: griffe.Class) -> list[str]:
    """Return the fields of the class body, and the typed ones that methods assign to `self`. The
    values that methods assign are left out."""
    fields = []
    methods = [(method.lineno or 0, method.endlineno or 0) for method in owner.functions.values()]
    for field in owner.attributes.values():
        line, is_typed = field.lineno or 0, field.annotation is not None
        if field.name.startswith("_") or "property" in field.labels:
            continue
        if not any(first <= line <= last for first, last in methods):  # in the class body
            fields.append(_attribute_source(field))
        elif is_typed or "class-attribute" in field.labels:
            fields.append(f"{field.name}: {field.annotation}" if is_typed else field.name)
    return fields


def _class_source(item: griffe.Class) -> str:
    """Return a class with its fields and its constructor, which a dataclass's fields show."""
    bases = ", ".join(str(base) for base in item.bases)
    head = f"class {item.name}({bases})" if bases else f"class {item.name}"
    body = _field_lines(item)
    constructor = item.members.get("__init__")
    if isinstance(constructor, griffe.Function) and "dataclass" not in item.labels:
        body.extend(_function_source(constructor).split("\n"))
    lines = [f"{head}:" if body else head, *(f"    {line}" for line in body)]
    return "\n".join([*_decorator_lines(item), *lines])
