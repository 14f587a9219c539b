"""JAAS files, and the credentials that are read out of them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from bkstore.errors import BkstoreError, CorruptionError, InvalidArgument
from bkstore.wire.sasl import SaslUser, SaslUsers
from bkstore.wire.sasl.jaas import LoginModule, parse_jaas, read_jaas

DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"
FILE = f"""
// of a bookie and its clients
Bookie {{
  {DIGEST} required
    user_bookkeeper="se\\"cret" user_guest=plain
    "user_a@b"="x y";
}};
/* of
   clients */ BookKeeper {{ {DIGEST} REQUIRED username="bookkeeper" password="se\\"cret"; }};
Kerberos {{ com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true; }};
Other {{ com.example.Module optional; }};
Empty {{ }};
Nobody {{ {DIGEST} required; }};
"""


@pytest.fixture
def jaas(tmp_path: Path) -> Path:
    """Return a JAAS file."""
    path = tmp_path / "jaas.conf"
    path.write_text(FILE)
    return path


def test_credentials_of_a_file(jaas: Path) -> None:
    """The bookie's section has users by name, the client's the one user."""
    users = SaslUsers.from_jaas(jaas)

    assert {"bookkeeper": 'se"cret', "guest": "plain", "a@b": "x y"} == users.passwords
    assert [True, False] == [users.is_allowed(name) for name in ("bookkeeper", "guest")]
    assert SaslUser("bookkeeper", 'se"cret') == SaslUser.from_jaas(jaas)
    assert users.passwords == SaslUsers.from_jaas(str(jaas), "Bookie", ".*").passwords


def test_nothing_shows_a_password(jaas: Path) -> None:
    """Neither the text of credentials nor any error about them has a password in it."""
    shown = [repr(SaslUsers.from_jaas(jaas)), repr(SaslUser.from_jaas(jaas))]
    for password in ("secret\ud800", 5, None, b"secret"):
        for make in (lambda p: SaslUser("hd", p), lambda p: SaslUsers({"bookkeeper": p})):
            with pytest.raises(InvalidArgument) as caught:
                make(password)
            shown.append(str(caught.value))

    assert 10 == len(shown)
    assert not [text for text in shown if "secret" in text or 'se"cret' in text]


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        ("Kerberos", "uses Kerberos"),
        ("Other", "com.example.Module, which is not supported"),
        ("Missing", "has no section 'Missing' .existing: BookKeeper, Bookie, Empty, "),
        ("Empty", "has no section 'Empty'"),
        ("Nobody", "has no user|lacks username"),
    ],
)
def test_sections_that_are_refused(section: str, reason: str, jaas: Path) -> None:
    """A section that is not there, has nobody, or asks for what is not served, by name."""
    for read in (SaslUser.from_jaas, SaslUsers.from_jaas):
        with pytest.raises(InvalidArgument, match=reason):
            read(jaas, section)


@pytest.mark.parametrize(
    ("text", "line"),
    {
        "no brace": ("A a.B required x=y; };", 1),
        "no end": ("A {\n a.B required x=secret;\n}\n", 4),
        "no semicolon": ("A {\n a.B required x=secret\n};", 3),
        "flag": ("A {\n a.B needed x=secret;\n};", 2),
        "value": ("A {\n a.B required x=;\n};", 2),
        "number": ("A {\n a.B required x=12secret;\n};", 2),
        "quote": ('A {\n a.B required x="secret\n;\n};', 2),
        "single quotes": ("A {\n a.B required x='secret';\n};", 2),
        "property": ('A {\n a.B required x="${secret}";\n};', 2),
        "comment": ("A { a.B required; };\n/* secret", 2),
        "twice": ("A { a.B required; };\nA { a.B required; };", 2),
        "word": ("secret", 1),
    }.values(),
)
def test_files_that_are_none(text: str, line: int, tmp_path: Path) -> None:
    """The error names file and line, and shows nothing of what stands there."""
    path = tmp_path / "jaas.conf"
    path.write_text(text)

    with pytest.raises(InvalidArgument) as caught:
        read_jaas(path)

    assert str(caught.value).startswith(f"{path}, line {line}: not a JAAS configuration: ")
    assert "secret" not in str(caught.value).removeprefix(str(path))


def test_what_is_no_text(tmp_path: Path) -> None:
    """Bytes that are no UTF-8 and files without end are refused by name."""
    path = tmp_path / "jaas.conf"
    path.write_bytes(b'A { a.B required x="\xff"; };')
    with pytest.raises(InvalidArgument, match="not UTF-8"):
        read_jaas(path)
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(CorruptionError, match="longer than"):
        read_jaas(path)
    path.unlink()
    with pytest.raises(BkstoreError, match=r"jaas\.conf: cannot be read: No such file"):
        read_jaas(path)


@given(st.text(max_size=80))
def test_any_text(text: str) -> None:
    """Any text is read or refused."""
    for each in (text, f"A {{ a.B required x={text}; }};", f'A {{ a.B required x="{text}"; }};'):
        with suppress(InvalidArgument):
            parse_jaas(each)


PRINTED = st.text(st.characters(min_codepoint=32, exclude_categories=["Cs"]), max_size=20)


@given(st.dictionaries(PRINTED, PRINTED.filter(lambda text: "${" not in text), max_size=3))
def test_any_options(options: dict[str, str]) -> None:
    """What is written in quotes, with backslashes before quotes and backslashes, comes back."""

    def escaped(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    pairs = " ".join(f"{escaped(name)}={escaped(each)}" for name, each in options.items())
    module = LoginModule("a.B", options)

    assert {"A": [module]} == parse_jaas(f"A {{ a.B required {pairs}; }};")


@pytest.mark.parametrize(
    "pattern", ["(", "[a&&b]", "[[ab]]", r"\Qhd\E", r"\p{Alpha}+", "(?<name>hd)", "a{2,1}"]
)
def test_patterns_that_python_reads_otherwise(pattern: str) -> None:
    """A pattern of Java's that Python does not read, or reads in another way, is refused."""
    with pytest.raises(InvalidArgument, match="not a regular expression that Java and Python"):
        SaslUsers({"hd": "testpwd"}, pattern)


def test_a_server_that_nobody_could_enter() -> None:
    """The default lets in names with `bookkeeper` in them alone, as upstream's: say so at once."""
    with pytest.raises(InvalidArgument, match="no client could connect"):
        SaslUsers({"hd": "testpwd"})
    with pytest.raises(InvalidArgument, match="no client could connect"):
        SaslUsers({})


@pytest.mark.parametrize(
    ("pattern", "name", "allowed"),
    [
        (".*bookkeeper.*", "my-bookkeeper-1", True),
        ("hd", "hd", True),
        ("hd", "hdx", False),
        ("hd|root", "root", True),
        (r"\w+", "ä", False),
        ("(?i)HD", "hd", True),
    ],
)
def test_allowed_ids(pattern: str, name: str, allowed: bool) -> None:
    """The pattern has to match the whole name, classes in ASCII as in Java."""
    users = SaslUsers({"hd": "", "root": "", "my-bookkeeper-1": ""}, pattern)

    assert allowed is users.is_allowed(name)
