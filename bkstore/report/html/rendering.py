"""Reads the page's templates, style sheet and script, and fills them with escaped text.

Every value is escaped, including unprintable characters
(`bkstore.tables.safe_text.escape_unprintable`), unless it is markup that this package made itself:
a bookie id or a detail can never become markup.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from bkstore.errors import MissingDependency
from bkstore.tables.safe_text import escape_unprintable

if TYPE_CHECKING:
    from jinja2 import Environment


def require_jinja() -> Any:
    """Return the jinja2 module, or raise `MissingDependency` naming the extra."""
    try:
        import jinja2
    except ImportError as error:
        raise MissingDependency.of("jinja2", "report", "A report") from error
    return jinja2


def read_template_file(name: str) -> str:
    """Return the text of one of the page's files.

    >>> "@media print" in read_template_file("style.css")
    True
    """
    path = resources.files("bkstore.report") / "template" / name
    return path.read_text(encoding="utf-8")


def content_security_policy(script: str) -> str:
    """Return a Content Security Policy that loads nothing and permits only this script.

    >>> content_security_policy("1")[:48]
    "default-src 'none'; style-src 'unsafe-inline'; s"
    """
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )


def mark_safe(text: str) -> str:
    """Mark text as markup that templates do not escape; only for text that this package wrote."""
    from markupsafe import Markup

    return Markup(text)  # noqa: S704


def render_template(name: str, **values: Any) -> str:
    """Return a filled template; raises for a missing value, `MissingDependency` without Jinja2."""
    return _template_environment().get_template(name).render(**values)


@cache
def _template_environment() -> Environment:
    """Return the environment of the package's templates; an undefined name is an error."""
    jinja2 = require_jinja()
    environment: Environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bkstore.report", "template"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_escape_unprintable,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment


def _escape_unprintable(value: Any) -> Any:
    """Return a value with unprintable characters escaped; our own markup is unchanged."""
    return value if hasattr(value, "__html__") else escape_unprintable(str(value))
