"""Templates, style sheet and script of the page: read from files, filled with escaped text.

The files lie in `bkstore/report/template/`. Whatever a template shows is escaped, unless it is
markup that this package made itself, and shows every character that it has
(`bkstore.tables.safe_text.shown`): a bookie id or a detail can never become markup.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from bkstore.errors import MissingDependency
from bkstore.tables.safe_text import shown

if TYPE_CHECKING:
    from jinja2 import Environment


def require_jinja() -> Any:
    """Return the jinja2 module, or raise `MissingDependency` naming the extra."""
    try:
        import jinja2
    except ImportError as error:
        raise MissingDependency.of("jinja2", "report", "A report") from error
    return jinja2


def template_file(name: str) -> str:
    """Return the text of one of the page's files.

    >>> "@media print" in template_file("style.css")
    True
    """
    found = resources.files("bkstore.report") / "template" / name
    return found.read_text(encoding="utf-8")


def policy(script: str) -> str:
    """Return the page's policy: nothing is loaded, and no script runs but this one.

    >>> policy("1")[:48]
    "default-src 'none'; style-src 'unsafe-inline'; s"
    """
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )


def own_markup(text: str) -> str:
    """Return text that templates take as it is. Only for what this package wrote itself."""
    from markupsafe import Markup

    return Markup(text)  # noqa: S704


def filled(name: str, **values: Any) -> str:
    """Return a template with its values in place; a value that it asks for in vain is an error.

    Raises `MissingDependency` without Jinja2.
    """
    return _environment().get_template(name).render(**values)


@cache
def _environment() -> Environment:
    """Return what keeps the templates, each of which is compiled once."""
    jinja2 = require_jinja()
    made: Environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bkstore.report", "template"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return made


def _visible(value: Any) -> Any:
    """Return what a template shows, no character of it unseen; markup of our own as it is."""
    return value if hasattr(value, "__html__") else shown(str(value))
