"""JAAS files: login modules and their options by section, as Java's `Configuration` reads them.

    Bookie {
      org.apache.zookeeper.server.auth.DigestLoginModule required
        user_bookkeeper="secret";
    };

ZooKeeper's `DigestLoginModule` is the only login module that is supported. Source:
`sasl/SaslServerState`, `sasl/SASLClientProviderFactory`, Java's `ConfigFile`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from bkstore.arguments import path as as_path, text as as_text
from bkstore.errors import InvalidArgument
from bkstore.files.disk_changes import StrPath
from bkstore.files.opening import read_file
from bkstore.files.os_errors import convert_read_errors

BOOKIE_SECTION = "Bookie"
"""The default of `saslJaasBookieSectionName`."""

CLIENT_SECTION = "BookKeeper"
"""The default of `saslJaasClientSectionName`."""

_MAX_FILE_BYTES = 1 << 20
_FLAGS = ("required", "requisite", "sufficient", "optional")

_TOKEN = re.compile(
    r"""
      (?P<blank> [\x00-\x20]++ | //[^\r\n]*+ | /\*.*?\*/ )
    | (?P<text> "(?:[^"\\\r\n]|\\[^\r\n])*+" )
    | (?P<word> [A-Za-z$_*\xa0-\U0010ffff] [A-Za-z0-9$_*.\xa0-\U0010ffff-]*+ )
    | (?P<sign> [{}=;] )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)")
_ESCAPED_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class LoginModule(NamedTuple):
    """A login module of a section, and its options. The options may be passwords."""

    name: str
    options: dict[str, str]


class _Token(NamedTuple):
    kind: str
    value: str
    line: int


def read_jaas(file: StrPath) -> dict[str, list[LoginModule]]:
    """Return the login modules of a JAAS file by section.

    Raises `InvalidArgument` with the line number of a syntax error, without the line;
    `CorruptionError` unless it is a regular file of at most 1 MiB; the error of
    `convert_read_errors`.
    """
    path = as_path("JAAS file", file)
    with convert_read_errors(path):
        data = read_file(path, _MAX_FILE_BYTES)
    try:
        return parse_jaas(data.decode("utf-8"))
    except UnicodeDecodeError:
        raise InvalidArgument(f"{path}: is not UTF-8, as JAAS files are") from None
    except InvalidArgument as error:
        raise InvalidArgument(f"{path}, {error}") from None


def parse_jaas(text: str) -> dict[str, list[LoginModule]]:
    """Return the login modules in the text of a JAAS file by section. Raises `InvalidArgument`.

    >>> parse_jaas('BookKeeper { a.Module required username="hd" password=pw; };')
    {'BookKeeper': [LoginModule(name='a.Module', options={'username': 'hd', 'password': 'pw'})]}
    """
    reader = _TokenReader(text)
    sections: dict[str, list[LoginModule]] = {}
    while not reader.at_end:
        section = reader.expect_word("the name of a section")
        modules = list(_parse_modules(reader))
        if section in sections:
            raise reader.refuse(f"section {section!r} appears twice")
        sections[section] = modules
    return sections


def _parse_modules(reader: _TokenReader) -> Iterator[LoginModule]:
    """Yield the login modules of a section, from its opening brace on."""
    reader.expect_sign("{")
    while not reader.skip_if("}"):
        name = reader.expect_word("the class of a login module")
        if reader.expect_word("a control flag").lower() not in _FLAGS:
            raise reader.refuse(f"not a control flag ({', '.join(_FLAGS)})")
        options: dict[str, str] = {}
        while not reader.skip_if(";"):
            option = reader.expect_word("the name of an option")
            reader.expect_sign("=")
            options[option] = reader.expect_word("the value of an option")
            if "${" in options[option]:
                reason = "refers to a JVM's system property, unknown to bkstore"
                raise reader.refuse(f"option {option} {reason}")
        yield LoginModule(name, options)
    reader.expect_sign(";")


class _TokenReader:
    """Reads the tokens of a text one after the other."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokenize(text)
        self._line = 1
        self._next = next(self._tokens)

    @property
    def at_end(self) -> bool:
        return self._next.kind == "end"

    def _take_token(self) -> str:
        value, self._line = self._next.value, self._next.line
        self._next = next(self._tokens)
        return value

    def expect_word(self, description: str) -> str:
        """Take and return a word or quoted text. Raises `InvalidArgument` if it is missing."""
        if self._next.kind not in ("word", "text"):
            raise self._missing_token_error(description)
        return self._take_token()

    def expect_sign(self, sign: str) -> None:
        """Take a sign. Raises `InvalidArgument` if the next token is another."""
        if not self.skip_if(sign):
            raise self._missing_token_error(f"{sign!r}")

    def skip_if(self, sign: str) -> bool:
        """Take a sign if it is the next token; return whether it was."""
        if (self._next.kind, self._next.value) != ("sign", sign):
            return False
        self._take_token()
        return True

    def _missing_token_error(self, description: str) -> InvalidArgument:
        self._line = self._next.line
        return self.refuse(f"{description} is expected")

    def refuse(self, reason: str) -> InvalidArgument:
        """Return an error at the line of the last token taken."""
        return InvalidArgument(f"line {self._line}: not a JAAS configuration: {reason}")


def _tokenize(text: str) -> Iterator[_Token]:
    """Yield tokens, then one of kind ``end``, or of kind ``other`` at invalid input."""
    offset, line = 0, 1
    while offset < len(text):
        match = _TOKEN.match(text, offset)
        if match is None:
            yield _Token("other", "", line)
            return
        kind, value = str(match.lastgroup), match[0]
        if kind == "text":
            value = _ESCAPE.sub(_unescape, value[1:-1])
        if kind != "blank":
            yield _Token(kind, value, line)
        line += match[0].count("\n")
        offset = match.end()
    yield _Token("end", "", line)


def _unescape(match: re.Match[str]) -> str:
    """Return the character of an escape: octal digits, a letter such as ``n``, or itself."""
    escaped = match[1]
    if escaped.isascii() and escaped.isdigit() and escaped < "8":  # octal; 8 and 9 are themselves
        return chr(int(escaped, 8))
    return _ESCAPED_LETTERS.get(escaped, escaped)


def read_digest_options(file: StrPath, section: str) -> dict[str, str]:
    """Return the DIGEST-MD5 options of a section, from all its login modules together. Raises what
    `read_jaas` raises, and `InvalidArgument` if the section is missing or has another module, such
    as Kerberos."""
    sections = read_jaas(file)
    modules = sections.get(as_text("section", section))
    if not modules:
        section_names = ", ".join(sorted(sections)) or "none"
        raise InvalidArgument(f"{file}: has no section {section!r} (existing: {section_names})")
    options: dict[str, str] = {}
    for module in modules:
        name = module.name.rpartition(".")[2]
        if name == "Krb5LoginModule":
            reason = "which is not supported, only DIGEST-MD5 is (DigestLoginModule)"
            kerberos = f"{file}: section {section} uses Kerberos ({module.name})"
            raise InvalidArgument(f"{kerberos}, {reason}")
        if name != "DigestLoginModule":
            raise InvalidArgument(
                f"{file}: section {section} has the login module {module.name}, which is not "
                "supported, only DigestLoginModule is"
            )
        options |= module.options
    return options
