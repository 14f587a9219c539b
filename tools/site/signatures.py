"""What a name looks like in the source: signatures, fields, values, without bodies."""

from __future__ import annotations

import griffe

_WIDTH = 88
_LONGEST_VALUE = 400
_SHOWN = ("property", "cached_property", "classmethod", "staticmethod", "abstractmethod")
_SHOWN_CONTEXT = ("contextmanager", "contextlib.contextmanager", "overload", "dataclass")
_MARKS = {"variadic positional": "*", "variadic keyword": "**"}


def of(item: griffe.Object) -> str:
    """Return the head of a class, function or attribute as Python source."""
    if isinstance(item, griffe.Class):
        return _class(item)
    if isinstance(item, griffe.Function):
        heads = [_function(each) for each in item.overloads or []] or [_function(item)]
        return "\n".join(heads)
    if isinstance(item, griffe.Attribute):
        return _property(item) if "property" in item.labels else _attribute(item)
    raise TypeError(f"{item.path}: no signature for a {item.kind.value}")


def _decorators(item: griffe.Class | griffe.Function | griffe.Attribute) -> list[str]:
    shown = []
    for decorator in getattr(item, "decorators", ()):
        text = str(decorator.value)
        name = text.partition("(")[0]
        if name.rpartition(".")[2] in _SHOWN or name in _SHOWN_CONTEXT:
            shown.append(f"@{text}")
    return shown


def _parameter(parameter: griffe.Parameter) -> str:
    kind = parameter.kind.value if parameter.kind else ""
    text = _MARKS.get(kind, "") + parameter.name
    if parameter.annotation is not None:
        text += f": {parameter.annotation}"
    if parameter.default is not None and kind not in _MARKS:
        text += f" = {parameter.default}" if parameter.annotation else f"={parameter.default}"
    return text


def _parameters(function: griffe.Function) -> list[str]:
    listed: list[str] = []
    kinds = [parameter.kind.value if parameter.kind else "" for parameter in function.parameters]
    for n, parameter in enumerate(function.parameters):
        if kinds[n] == "keyword-only" and not {"keyword-only", *_MARKS} & set(kinds[:n]):
            listed.append("*")
        listed.append(_parameter(parameter))
        if kinds[n] == "positional-only" and "positional-only" not in kinds[n + 1 :]:
            listed.append("/")
    return listed


def _function(function: griffe.Function) -> str:
    head = "async def" if "async" in function.labels else "def"
    tail = f" -> {function.returns}" if function.returns is not None else ""
    parameters = _parameters(function)
    line = f"{head} {function.name}({', '.join(parameters)}){tail}"
    if len(line) > _WIDTH:
        inside = "".join(f"    {parameter},\n" for parameter in parameters)
        line = f"{head} {function.name}(\n{inside}){tail}"
    return "\n".join([*_decorators(function), line])


def _attribute(item: griffe.Attribute) -> str:
    text = item.name
    if item.annotation is not None:
        text += f": {item.annotation}"
    if item.value is not None:
        value = str(item.value)
        text += f" = {value if len(value) <= _LONGEST_VALUE else '...'}"
    return text


def _property(item: griffe.Attribute) -> str:
    settable = "\n# may be set" if item.setter is not None else ""
    return f"@property\ndef {item.name}(self) -> {item.annotation}{settable}"


def _fields(owner: griffe.Class) -> list[str]:
    """Return the fields of the class body, and those that a method gives to `self` with a type.

    A value that a method gives is not the field's own, and left out.
    """
    fields = []
    for field in owner.attributes.values():
        line, typed = field.lineno or 0, field.annotation is not None
        if field.name.startswith("_") or "property" in field.labels:
            continue
        if not any((m.lineno or 0) <= line <= (m.endlineno or 0) for m in owner.functions.values()):
            fields.append(_attribute(field))
        elif typed or "class-attribute" in field.labels:
            fields.append(f"{field.name}: {field.annotation}" if typed else field.name)
    return fields


def _class(item: griffe.Class) -> str:
    bases = ", ".join(str(base) for base in item.bases)
    head = f"class {item.name}({bases})" if bases else f"class {item.name}"
    body = _fields(item)
    made = item.members.get("__init__")
    if isinstance(made, griffe.Function) and "dataclass" not in item.labels:
        body.extend(_function(made).split("\n"))
    lines = [head + ":" * bool(body), *(f"    {line}" for line in body)]
    return "\n".join([*_decorators(item), *lines])
