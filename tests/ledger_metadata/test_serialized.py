"""Ledger metadata: the value, what contradicts itself, its serialized forms, the JSON file."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from bkstore.cluster.store.directory_values import encode_value
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.metadata import store_paths as paths
from bkstore.formats.metadata.json_file import decode_file
from bkstore.formats.metadata.serialized import decode, encode
from bkstore.formats.metadata.underreplication import (
    UnderreplicatedMark,
    decode_mark,
    encode_mark,
    mark_path,
    parse_mark_path,
)
from bkstore.ids import MAX_ENTRY_ID, LedgerId
from bkstore.ledger_metadata import LedgerMetadata, Segment
from tests.docs.format_pages import shown_bytes, shown_text
from tests.ledger_metadata.samples import CLOSED, ledger_ids, metadata, texts

PAGE = "ledgermetadata.md"
# -- the value


def test_immutable() -> None:
    """Neither a field nor the custom metadata can be changed; copies are equal, hashes too."""
    given_custom = {"a": b"1"}
    made = replace(CLOSED, custom_metadata=given_custom)
    given_custom["a"] = b"2"
    copied = pickle.loads(pickle.dumps(made))

    assert made == copied
    assert hash(made) == hash(copied)
    assert {"a": b"1"} == made.custom_metadata
    with pytest.raises(FrozenInstanceError):
        made.length = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        made.custom_metadata["a"] = b"3"  # type: ignore[index]


def test_password_is_not_shown() -> None:
    """The password is neither in the repr nor in the printable form."""
    made = replace(CLOSED, password=b"hush")

    assert "hush" not in repr(made)
    assert "password=OMITTED" in made.to_safe_string()


def test_ends_of_segments() -> None:
    """A segment ends before the next begins, none after the last entry; empty ones are there."""
    at = {
        25: [(0, 9, False), (10, 25, False)],
        9: [(0, 9, False), (10, 9, True)],
        5: [(0, 5, False), (10, 5, True)],
    }
    for last, expected in at.items():
        found = replace(CLOSED, last_entry_id=last).segments_with_ends()

        assert expected == [(part.first_entry, part.last_entry, part.is_empty) for part in found]
        assert [part.ensemble for part in CLOSED.segments] == [part.ensemble for part in found]
    empty = replace(CLOSED, segments=CLOSED.segments[:1], last_entry_id=-1, length=0)

    assert [(0, -1, ("b1", "b2", "b3"))] == empty.segments_with_ends()
    assert [] == empty.problems()
    with pytest.raises(InvalidArgument, match="IN_RECOVERY"):
        replace(CLOSED, state="IN_RECOVERY").segments_with_ends()


@given(st.lists(st.integers(0, 60), min_size=1, max_size=6, unique=True), st.integers(-1, 80))
def test_ensemble_at(firsts: list[int], entry: int) -> None:
    """An entry's ensemble is that of the last segment that begins at or before it."""
    made = replace(CLOSED, segments=tuple(Segment(first, (str(first),)) for first in firsts))
    begun = [first for first in firsts if first <= entry]
    if not begun:
        with pytest.raises(InvalidArgument, match="no segment"):
            made.ensemble_at(entry)
        return

    assert (str(max(begun)),) == made.ensemble_at(entry)


_LINES = "quorumSize: 3 ensembleSize: 5 length: 0 lastEntryId: -1 state: OPEN"
_SEGMENT = " ".join(f'ensembleMember: "b{n}"' for n in range(5))
_FIELDS = bytes.fromhex("0803 1005 1800 20ffffffffffffffffff01 2801")
_MEMBERS = b"".join(b"\x0a\x02b%d" % n for n in range(5)) + b"\x10\x00"


@pytest.mark.parametrize(
    ("ack", "text", "field"),
    [
        (3, "", b""),
        (2, "ackQuorumSize: 2", b"\x48\x02"),
        (0, "ackQuorumSize: 0", b"\x48\x00"),
    ],
)
def test_metadata_without_ack_quorum(ack: int, text: str, field: bytes) -> None:
    """What says no ack quorum, as old metadata do, has that of the write quorum.

    One that says 0 has 0, which is a problem of its own. Version 1 never says it.
    """
    second = f"{_LINES} segment {{ {_SEGMENT} firstEntryId: 0 }} {text}".encode()
    third = _FIELDS + b"\x32" + bytes([len(_MEMBERS)]) + _MEMBERS + field
    head = b"BookieMetadataFormatVersion\t%d\n"
    for version, body in ((2, second), (3, bytes([len(third)]) + third)):
        found = decode(head % version + body, LedgerId.of(7))

        assert (5, 3, ack) == (found.ensemble_size, found.write_quorum_size, found.ack_quorum_size)
        assert (ack == 0) == any("ack quorum 0" in problem for problem in found.problems())
    first = head % 1 + b"3\n5\n0\n0\tb0\tb1\tb2\tb3\tb4\n"

    assert 3 == decode(first, LedgerId.of(7)).ack_quorum_size


def test_bookies() -> None:
    """All bookies of all segments, once each."""
    assert frozenset({"b1", "b2", "b3", "b4"}) == CLOSED.bookies


S0 = ("b1", "b2", "b3")
PROBLEMS: list[tuple[dict[str, Any], str]] = [
    ({"write_quorum_size": 4}, "write quorum 4 is outside 1..3, the ensemble size"),
    ({"write_quorum_size": 0}, "write quorum 0 is outside 1..3"),
    ({"ack_quorum_size": 3}, "ack quorum 3 is outside 1..2, the write quorum"),
    ({"ack_quorum_size": 0}, "ack quorum 0 is outside 1..2"),
    ({"ensemble_size": 0}, "ensemble size 0 is below 1"),
    ({"ensemble_size": 4}, "segment 0 has 3 bookies, not 4"),
    ({"segments": ()}, "no segment"),
    ({"segments": ((1, S0),)}, "the first segment begins at entry 1, not at 0"),
    ({"segments": ((0, S0), (0, S0))}, "segment 0 does not begin after the previous one, 0"),
    ({"segments": ((0, S0), (9, S0), (5, S0))}, "segment 5 does not begin after"),
    ({"segments": ((0, S0), (-5, S0))}, "segment -5 begins outside"),
    ({"segments": ((0, ("b1", "b1", "b2")),)}, "segment 0 names a bookie twice"),
    ({"segments": ((0, ("b1", "", "b2")),)}, "segment 0 has a bookie with an empty id"),
    ({"last_entry_id": 8}, "last entry 8 is before segment 10"),
    ({"last_entry_id": -2}, "last entry -2 is outside"),
    ({"last_entry_id": MAX_ENTRY_ID + 1}, f"last entry {MAX_ENTRY_ID + 1} is outside"),
    ({"length": -1}, "length -1 is negative"),
    ({"last_entry_id": -1, "segments": ((0, S0),)}, "length 2600 without an entry"),
    ({"state": "OPEN"}, "OPEN, but with a last entry (25) or a length (2600)"),
    ({"digest_type": None}, "a password requires a digest type"),
    ({"version": 4}, "metadata format version 4 is outside 1..3"),
]


@pytest.mark.parametrize(("change", "expected"), PROBLEMS, ids=lambda value: str(value)[:40])
def test_problems(change: dict[str, Any], expected: str) -> None:
    """Each contradiction is named; metadata with one can be held, but not checked."""
    made = replace(CLOSED, **change)

    assert [] == CLOSED.problems()
    assert any(problem.startswith(expected) for problem in made.problems()), made.problems()
    with pytest.raises(InvalidArgument, match="ledger 7: "):
        made.validate()


def test_sound_metadata() -> None:
    """An ensemble change may begin one past the last entry, and no later."""
    assert CLOSED is CLOSED.validate()
    assert [] == replace(CLOSED, last_entry_id=9).problems()
    assert [] == replace(CLOSED, digest_type="MAC").problems()
    assert "HMAC" == replace(CLOSED, digest_type="MAC").digest_type


@pytest.mark.parametrize(
    "change",
    [
        {"state": "GONE"},
        {"digest_type": "MD5"},
        {"length": 1.5},
        {"length": 2**63},
        {"segments": ((0, "b1"),)},
        {"segments": ((0, (1, 2, 3)),)},
        {"segments": (("0", S0),)},
        {"custom_metadata": {1: b""}},
        {"ledger": -1},
    ],
    ids=str,
)
def test_values_that_are_none(change: dict[str, Any]) -> None:
    """A value of which nobody knows what it means is refused at once."""
    with pytest.raises(InvalidArgument):
        replace(CLOSED, **change)


# -- serialized forms


@settings(max_examples=60)
@given(metadata())
def test_round_trip_of_version_3(made: LedgerMetadata) -> None:
    """What version 3 is written from is what is read back, contradictions too."""
    data = encode(made, incomplete=True)

    assert made == decode(data, made.ledger)
    assert data == encode(decode(data, made.ledger), incomplete=True)


@settings(max_examples=60)
@given(metadata())
def test_round_trip_of_version_2(made: LedgerMetadata) -> None:
    """Version 2 gives all but the c token back, whatever bytes names and passwords have."""
    made = replace(made, version=2, c_token=0)

    assert made == decode(encode(made, incomplete=True), made.ledger)
    assert encode(made, incomplete=True).isascii()


@settings(max_examples=60)
@given(metadata())
def test_round_trip_of_version_1(made: LedgerMetadata) -> None:
    """Version 1 gives back what it has a place for: sizes, segments, state, length and end."""
    if not all(part.ensemble for part in made.segments) or any(
        not bookie or bookie == "CLOSED" or set(bookie) & set("\t\r\n") for bookie in made.bookies
    ):
        return
    if made.closed and made.last_entry_id == -102:
        return
    kept = LedgerMetadata(
        made.ledger,
        made.ensemble_size,
        made.write_quorum_size,
        made.write_quorum_size,
        made.segments,
        state=made.state,
        last_entry_id=made.last_entry_id,
        length=made.length,
        version=1,
    )

    assert kept == decode(encode(made, 1), made.ledger)


def test_java_escapes() -> None:
    r"""Version 2 writes \a \b \v \f \n \r \t as letters, the rest in octal (TextFormatEscaper)."""
    made = replace(CLOSED, password=b"\x00\x07\x08\x09\x0a\x0b\x0c\x0d\x1f\"'\\010\x7f\xff z")

    assert (rb'password: "\000\a\b\t\n\v\f\r\037\"\'\\010\177\377 z"' b"\n") in encode(made, 2)


def test_text_of_version_2_may_say_a_field_twice() -> None:
    """Of a field that is there twice the last one counts, as in Java's text format."""
    data = encode(CLOSED, 2) + b"length: 5  # a comment\n"

    assert 5 == decode(data, 7).length


def test_line_ends_of_version_1() -> None:
    """Behind the header, lines may end as any reader of lines takes them."""
    data = encode(CLOSED, 1)
    head = data.index(b"\n") + 1

    assert decode(data, 7) == decode(data[:head] + data[head:].replace(b"\n", b"\r\n"), 7)


def test_ledger_that_is_not_closed() -> None:
    """The last entry and the length that an open ledger was written with do not count."""
    data = encode(replace(CLOSED, state="IN_RECOVERY"))

    assert (-1, 0) == (decode(data, 7).last_entry_id, decode(data, 7).length)


def test_strict() -> None:
    """Contradictions are kept unless strict reading is asked for."""
    data = encode(replace(CLOSED, write_quorum_size=5))

    assert 5 == decode(data, 7).write_quorum_size
    with pytest.raises(CorruptionError, match=r"write quorum 5 is outside 1\.\.3"):
        decode(data, 7, strict=True)


@pytest.mark.parametrize(
    ("change", "version"),
    [
        ({}, 0),
        ({}, 4),
        ({"ensemble_size": 2**31}, 3),
        ({"segments": ((0, ("\udc80",)),)}, 3),
        ({"segments": ((0, ("\udc80",)),)}, 2),
        ({"segments": ((0, ("\udc80",)),)}, 1),
        ({"segments": ((0, ("a\tb",)),)}, 1),
        ({"segments": ((0, ("a\nb",)),)}, 1),
        ({"segments": ((0, ("",)),)}, 1),
        ({"segments": ((0, ("CLOSED",)),)}, 1),
        ({"segments": ((0, ()),)}, 1),
        ({"password": None}, 3),
        ({"digest_type": None}, 2),
    ],
    ids=str,
)
def test_what_bytes_cannot_hold(change: dict[str, Any], version: int) -> None:
    """What would read back as something else is refused, not written."""
    with pytest.raises(InvalidArgument):
        encode(replace(CLOSED, **change), version)


@given(st.none() | st.integers(0, 2**53).map(lambda ms: ms / 1000), st.lists(texts, max_size=3))
def test_mark_round_trip(since: float | None, bookies: list[str]) -> None:
    """A mark gives back its bookies, and its time to the millisecond."""
    found = decode_mark(encode_mark(UnderreplicatedMark(since, tuple(bookies))))

    assert tuple(bookies) == found.missing_bookies
    assert (since is None) == (found.marked_at is None)
    assert found.marked_at == (None if since is None else round(since * 1000) / 1000)


# -- paths


@given(ledger_ids)
def test_paths_and_back(name: LedgerId) -> None:
    """Each form of path names its ledger, and no form is taken for another."""
    for form in (paths.tree_path, paths.uuid_path):
        assert name == paths.parse_path(form(name))
    assert name == parse_mark_path(mark_path(name))
    assert paths.parse_path(mark_path(name)) is None
    if name.scope:
        for short in (paths.flat_path, paths.short_path, paths.long_path):
            with pytest.raises(InvalidArgument, match="scope"):
                short(name)
    else:
        for form in (paths.flat_path, paths.long_path, paths.hierarchical_path):
            assert name == paths.parse_path(form(name))


@given(st.lists(ledger_ids, min_size=2, max_size=6, unique=True))
def test_paths_sort_as_ids(names: list[LedgerId]) -> None:
    """Text order of the paths of both layouts is the unsigned order of the ids."""
    for form in (paths.tree_path, paths.uuid_path):
        assert sorted(names) == [paths.parse_path(text) for text in sorted(map(form, names))]


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/LAYOUT",
        "/L123",
        "/L9999999999999999999",
        "/999/9999/9999/9999/L9999",
        "/000/0000/L0001",
        "/S0000000000000000/0000/0000/0000/L0001",
        "/S000000000000000A/0000/0000/0000/L0001",
        "/00000000-0000-0000-8000-000000000000",
        "/underreplication/ledgers/0000/0000/0000/0007/urL0000000008",
        "/underreplication/ledgers/8000/0000/0000/0000/urL9223372036854775808",
        "/00/0000/L0001/x",
    ],
)
def test_paths_of_no_ledger(path: str) -> None:
    """Other paths name none, those with an id that no ledger can have included."""
    assert paths.parse_path(path) is None
    assert parse_mark_path(path) is None


# -- the page


EXAMPLE = LedgerMetadata(
    LedgerId.of(4660),
    2,
    2,
    1,
    (Segment(0, ("b1:3181", "b2:3181")), Segment(5, ("b1:3181", "b3:3181"))),
    state="CLOSED",
    last_entry_id=9,
    length=1000,
    digest_type="CRC32C",
    password=b"pw",
    ctime=1_700_000_000_000,
    store_ctime=True,
    custom_metadata={"application": b"a\x08"},
)


def test_page_bytes() -> None:
    """The page's examples are what is written, and read as the same ledger."""
    three = shown_bytes(PAGE, "version-3")
    two = shown_text(PAGE, "version-2").replace("<TAB>", "\t").encode()
    one = shown_text(PAGE, "version-1").replace("<TAB>", "\t").encode().removesuffix(b"\n")

    assert three == encode(EXAMPLE)
    assert EXAMPLE == decode(three, 4660, strict=True)
    assert two == encode(EXAMPLE, 2)
    assert one == encode(EXAMPLE, 1)
    assert EXAMPLE.to_safe_string() == " ".join(shown_text(PAGE, "printed").split())


def test_page_paths() -> None:
    """The page's table of paths is what is made, for both ledgers."""
    names = [LedgerId.of(4660), LedgerId(1, 4660)]
    shown = dict(line.split() for line in shown_text(PAGE, "paths").splitlines())
    forms = {
        "flat": paths.flat_path(names[0]),
        "short": paths.short_path(names[0]),
        "long": paths.long_path(names[0]),
        "tree": paths.tree_path(names[1]),
        "keys-0": f"/ledgers{paths.uuid_path(names[0])}",
        "keys-1": f"/ledgers{paths.uuid_path(names[1])}",
        "mark-0": mark_path(names[0]),
        "mark-1": mark_path(names[1]),
    }

    assert shown == forms


def test_page_mark_and_value_file() -> None:
    """The page's mark and value file are what is written."""
    mark = shown_text(PAGE, "mark").encode()
    value = shown_text(PAGE, "value-file").replace("<TAB>", "\t").encode()

    assert UnderreplicatedMark(1_700_000_000.5, ("b2:3181",)) == decode_mark(mark)
    assert mark == encode_mark(decode_mark(mark))
    assert value == encode_value(mark_path(4660), 3, mark)


def test_page_file() -> None:
    """The page's metadata file reads as a ledger without problems, and three lists."""
    found = decode_file(shown_text(PAGE, "file").encode())

    assert [[]] == [each.problems() for each in found.ledgers]
    assert LedgerId(1, 7) == found.ledgers[0].ledger
    assert frozenset({"bookie-1", "bookie-2"}) == found.registered_bookies
    assert frozenset() == found.unavailable_bookies
    assert {LedgerId.of(9): UnderreplicatedMark(1_700_000_000)} == found.underreplicated
