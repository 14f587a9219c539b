"""`bkstore audit`: rows, transcripts, exit codes, and input that is wrong."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bkstore.cli.main import main
from bkstore.cli.screen.short_ids import short_ledger_id
from bkstore.cluster import DirectoryStore, MemoryStore, snapshot
from bkstore.cluster.audit import Auditor
from bkstore.formats.cookie import Cookie, encode as encode_cookie
from bkstore.formats.metadata.json_file import decode_file, encode_file
from bkstore.formats.metadata.serialized import decode
from bkstore.formats.metadata.underreplication import UnderreplicatedMark
from bkstore.ids import LedgerId
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks import RocksIndex
from bkstore.ledger_metadata import LedgerMetadata

Capsys = pytest.CaptureFixture[str]
WIDE = LedgerId(5, 2**63 + 7)
ENSEMBLE = ("b1", "b2", "b3")


def _metadata(ledger: int | LedgerId = 7, **fields: Any) -> LedgerMetadata:
    given = {"segments": ((0, ENSEMBLE),), "state": "CLOSED", "last_entry_id": 5, "length": 60}
    made: Any = LedgerMetadata
    result: LedgerMetadata = made(LedgerId.of(ledger), 3, 2, 2, **given | fields)
    return result


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Return a folder with bookies b1 to b3, two layouts, and their metadata; b3 lost entry 4."""
    store = MemoryStore()
    for ledger in (7, WIDE):
        store.create(_metadata(ledger))
    for bookie in ENSEMBLE:
        store.register_bookie(bookie)
    (tmp_path / "metadata.json").write_bytes(encode_file(snapshot(store)))
    held = {"b1": [0, 2, 3, 5], "b2": [0, 1, 3, 4], "b3": [1, 2, 4, 5]}
    for name, entries in held.items():
        kind = RocksIndex if name == "b2" else HierarchicalIndex
        with kind(tmp_path / name, writable=True) as index:
            for ledger in (7, WIDE):
                kept = [e for e in entries if (name, ledger, e) != ("b3", 7, 4)]
                index.put_many(ledger, kept, [1028 + 100 * e for e in kept])
    return tmp_path


def _words(made: Path, *names: str) -> list[str]:
    places = [f"{name}={made / name}" for name in names or ENSEMBLE]
    return ["audit", str(made / "metadata.json"), *places]


def _run(capsys: Capsys, *words: object) -> tuple[int, list[dict[str, Any]], str]:
    code = main([*map(str, words), "--format", "json"])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else [], err


def _fails(capsys: Capsys, *words: object) -> str:
    """Return the one line of an error; nothing goes to stdout, the exit code is 2."""
    code = main([*map(str, words)])
    out, err = capsys.readouterr()

    assert (2, "", 1) == (code, out, err.count("\n"))
    return err


def test_a_row_says_it_all(made: Path, capsys: Capsys) -> None:
    """A loss is a row with category, ids, segment, bookie, ranges and groups; exit code 1. The
    owner of the ledger is not known."""
    code, rows, err = _run(capsys, *_words(made))

    assert 1 == code
    assert [
        {
            "category": "below_ack_quorum",
            "scope_id": 0,
            "ledger_id": 7,
            "qualified_name": f"{7:032x}",
            "first_entry": 0,
            "bookie": "b3",
            "missing_entries": 1,
            "first_missing": 4,
            "last_missing": 4,
            "missing": [[4, 4]],
            "missing_groups": [[4, 4, 1, 0]],
            "detail": "index 2 of b1 b2 b3; W 2, A 2; entry 4 of the ledger lacks 1 of 2 replicas",
            **dict.fromkeys(("owner", "application", "component", "tenant", "namespace")),
            **dict.fromkeys(("topic", "partition", "cursor", "schema")),
        }
    ] == rows
    assert "below_ack_quorum: 1 ledger\n" in err
    assert "2 of 2 ledgers checked (0 of them empty), 6 answers of bookies" in err


def test_the_table_fits_a_screen(made: Path, capsys: Capsys) -> None:
    """By default rows are a table; ids with a scope are shortened."""
    shutil.rmtree(made / "b3")
    HierarchicalIndex(made / "b3", writable=True).close()
    code = main(_words(made))
    out, _ = capsys.readouterr()
    lines = out.splitlines()

    assert 1 == code
    names = "category ledger_id first_entry bookie missing_entries missing detail"

    assert names.split() == lines[0].split()
    assert ["below_ack_quorum", "7", "0", "b3", "4", "1-2,", "4-5"] == lines[2].split()[:7]
    assert short_ledger_id(*WIDE.signed) == lines[3].split()[1]


def test_a_sound_cluster_exits_clean(made: Path, capsys: Capsys) -> None:
    """No rows, exit code 0, and stderr says what was checked and what was not judged."""
    with HierarchicalIndex(made / "b3", writable=True) as index:
        index.put(7, 4, 1428)
    code, rows, err = _run(capsys, *_words(made))

    assert (0, []) == (code, rows)
    assert err.startswith("Nothing is missing: 2 ledgers, 12 entries, 3 bookies\n")
    rule = "not judged: overdue marks: no grace period was given (--grace-period SECONDS)\n"
    assert f"{rule}2 of 2 ledgers checked" in err


def test_no_directory_given_is_no_pass(made: Path, capsys: Capsys) -> None:
    """A registered bookie without a directory is one row, whatever the ledgers and segments."""
    code, rows, err = _run(capsys, *_words(made, "b1", "b2"))
    (row,) = rows

    assert 1 == code
    assert ("bookie_unavailable", "b3") == (row["category"], row["bookie"])
    assert (
        "no directory was given for b3 (b3=DIR), and no address is known; "
        "it is registered, and it is not listed as unavailable: "
        "2 segments of 2 ledgers judged without it"
    ) == row["detail"]
    nothing = ["scope_id", "ledger_id", "qualified_name", "first_entry"]
    nothing += ["missing_entries", "first_missing", "last_missing", "missing", "missing_groups"]
    assert {None} == {row[name] for name in nothing}
    assert "bookie_unavailable: 2 ledgers\n" in err
    assert main(_words(made, "b1", "b2")) == 1
    assert ["bookie_unavailable", "b3", "no"] == (
        capsys.readouterr().out.splitlines()[2].split()[:3]
    )


def test_marks_and_grace_period(made: Path, capsys: Capsys) -> None:
    """An old mark is overdue, and its ledger not judged further."""
    store = MemoryStore()
    store.create(_metadata())
    store.mark_underreplicated(7, UnderreplicatedMark(1_000_000.0, ("b3",)))
    (made / "metadata.json").write_bytes(encode_file(snapshot(store)))
    code, rows, err = _run(capsys, *_words(made), "--grace-period", "3600")

    assert (1, ["overdue"]) == (code, [row["category"] for row in rows])
    assert rows[0]["first_entry"] is None
    assert "skipped: 1 underreplicated" in err


def test_placement_by_racks_and_regions(made: Path, capsys: Capsys) -> None:
    """With a file of places ensembles are judged, strictly and softly."""
    places = made / "places"
    places.write_text("# bookie place\nb1 /eu/r1\nb2 /eu/r2 # ours\n\nb3 /us/r1\n")
    words = [*_words(made), "--places", places]
    _, rows, _ = _run(capsys, *words, "--placement", "region")
    reasons = {row["detail"] for row in rows if row["category"] == "placement"}

    assert {"ensemble b1 b2 b3: b1 b2: 1 of 2 regions"} == reasons
    _, rows, _ = _run(capsys, *words, "--placement", "rack")
    assert "placement" not in {row["category"] for row in rows}
    _, rows, _ = _run(capsys, *words, "--placement", "rack", "--spread", "3")
    assert "placement" not in {row["category"] for row in rows}  # W is 2


def test_compat_has_the_false_alarms(made: Path, capsys: Capsys) -> None:
    """With --compat db storage gives no answer, and nobody is asked twice."""
    code, rows, err = _run(capsys, *_words(made), "--compat", "bookkeeper")

    assert 1 == code
    assert {("b3", 7)} == {(row["bookie"], row["ledger_id"]) for row in rows}
    assert "2 ledgers judged in part: no answer from b2" in err


def test_golden_clusters(made: Path, tmp_path: Path, capsys: Capsys, unpack: Any) -> None:
    """The command reports what was removed from the golden clusters, metadata as dumped."""
    for kind in ("sorted", "db"):
        folder, document = unpack(f"bookkeeper/cluster_{kind}")
        store = DirectoryStore(tmp_path / f"store-{kind}")
        for each in document["after"]["state"]["ledgers"]:
            store.create(decode(bytes.fromhex(each["metadata_hex"]), each["ledger"]))
        bookies = [f"{name}={folder / kind / name}" for name in document["bookies"]]
        code, rows, _ = _run(capsys, "audit", tmp_path / f"store-{kind}", *bookies)
        removed = {(each["ledger"], each["bookie"]) for each in document["violations"]}

        assert (1, removed) == (code, {(row["ledger_id"], row["bookie"]) for row in rows})


def test_an_interrupted_run_is_resumed(made: Path, capsys: Capsys) -> None:
    """--resume names a file that goes when the run ends."""
    kept = made / "kept"
    code, rows, _ = _run(capsys, *_words(made), "--resume", kept)

    assert (1, 1, False) == (code, len(rows), kept.exists())


def test_another_cluster_s_file_is_refused(
    made: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of other metadata or bookies is not gone on with: its verdicts are not theirs."""

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    kept, other = made / "kept", made / "other.json"
    other.write_bytes((made / "metadata.json").read_bytes())
    with monkeypatch.context() as patched:
        patched.setattr("bkstore.cluster.audit.availability_queries._query_bookie", stopped)

        assert 130 == main([*_words(made), "--resume", str(kept)])
    capsys.readouterr()
    before = kept.read_bytes()

    assert "other parameters" in _fails(capsys, *_words(made, "b1", "b2"), "--resume", kept)
    words = [word if word != str(made / "metadata.json") else str(other) for word in _words(made)]
    assert "other parameters" in _fails(capsys, *words, "--resume", kept)
    assert before == kept.read_bytes()
    assert 1 == _run(capsys, *_words(made), "--resume", kept)[0]


# -- wrong input


def test_the_same_directory_twice(made: Path, capsys: Capsys) -> None:
    """A directory given for two bookies, by whatever path, is refused."""
    (made / "link").symlink_to(made / "b1")
    err = _fails(capsys, *_words(made, "b1"), f"b2={made / 'link'}")

    assert "is given twice, as b1 and b2" in err


def test_the_same_bookie_twice(made: Path, capsys: Capsys) -> None:
    """A bookie with two directories is refused."""
    assert "bookie b1 is given twice" in _fails(capsys, *_words(made, "b1"), f"b1={made / 'b2'}")


@pytest.mark.parametrize(
    ("word", "reason"),
    [("b1=", "not a bookie and its directory"), ("=x", "not a bookie"), ("b1=none", "none")],
)
def test_words_that_name_no_directory(word: str, reason: str, made: Path, capsys: Capsys) -> None:
    """What is no BOOKIE=DIR, or no directory, is named."""
    assert reason in _fails(capsys, "audit", made / "metadata.json", word)


def test_a_directory_alone_needs_a_cookie(made: Path, capsys: Capsys) -> None:
    """DIR alone takes the cookie's id; without a cookie nothing says whose it is."""
    assert "no cookie identifies the bookie" in _fails(
        capsys, "audit", made / "metadata.json", made / "b1"
    )
    place = str(made / "b1")
    cookie = Cookie(5, bookie_id="b1", journal_dirs=(place,), ledger_dirs=(place,))
    (made / "b1" / "current" / "VERSION").write_bytes(encode_cookie(cookie))
    words = ["audit", made / "metadata.json", made / "b1", *_words(made, "b2", "b3")[2:]]

    assert 1 == _run(capsys, *words)[0]
    assert "according to its cookie this is bookie b1" in _fails(
        capsys, "audit", made / "metadata.json", f"b2={made / 'b1'}"
    )


@pytest.mark.parametrize("told", [True, False], ids=["registered", "not-told"])
def test_strangers_are_named(made: Path, capsys: Capsys, told: bool) -> None:
    """Given bookies that no segment of any ledger names are named, registered ones too."""
    store = MemoryStore()
    store.create(_metadata(segments=((0, ENSEMBLE), (3, ("b1", "b2", "b7")))))
    store.create(_metadata(8, segments=((0, ("b1", "b2", "b5")),), state="OPEN", last_entry_id=-1))
    store.register_bookie("b8")
    document = snapshot(store)
    if not told:
        document = replace(document, registered_bookies=None)
    (made / "metadata.json").write_bytes(encode_file(document))
    for name in ("b5", "b7", "b8", "b9"):
        HierarchicalIndex(made / name, writable=True).close()
    _, _, err = _run(capsys, *_words(made, *ENSEMBLE, "b9", "b8", "b7", "b5"))
    named = [line for line in err.splitlines() if "it is in no ensemble" in line]
    more = [", but it is registered", ", nor is it registered"] if told else ["", ""]

    assert [
        f"b8: it is in no ensemble{more[0]}",
        f"b9: it is in no ensemble{more[1]}",
    ] == named


def test_absent_bookies_are_rows_beside_others(made: Path, capsys: Capsys) -> None:
    """Bookies without a directory come first, a row each; what the others lack follows."""
    store = MemoryStore()
    segments = ((0, ("b1", "b4", "b3")), (2, ("b1", "b4", "b5")), (4, ENSEMBLE))
    for ledger in (7, 8):
        store.create(_metadata(ledger, segments=segments))
    (made / "metadata.json").write_bytes(encode_file(snapshot(store)))
    code, rows, err = _run(capsys, *_words(made), "--resume", made / "kept")
    said = [(row["bookie"], row["detail"].split(": ")[-1]) for row in rows[:2]]

    assert 1 == code
    assert [
        ("b4", "4 segments of 2 ledgers judged without it"),
        ("b5", "2 segments of 2 ledgers judged without it"),
    ] == said
    assert all(row["ledger_id"] in (7, 8) for row in rows[2:])
    assert len(rows) > 2
    assert "bookie_unavailable: 2 ledgers\n" in err


class _Case(NamedTuple):
    code: int
    err: str
    document: dict[str, Any] | None = None
    bookies: tuple[str, ...] = ENSEMBLE
    whole: bool = True
    words: tuple[str, ...] = ()


EXITS = {
    "clean": _Case(0, "2 of 2 ledgers checked", words=("--grace-period", "9")),
    "marks not asked": _Case(
        0, "not judged: overdue marks: no grace period was given (--grace-period"
    ),
    "store tells nothing": _Case(
        0,
        "not judged: registered bookies: the metadata do not list them (a JSON file can, as "
        '"registered_bookies")',
        {"registered_bookies": None, "unavailable_bookies": None, "underreplicated": None},
    ),
    "known to be unavailable": _Case(
        0,
        "2 ledgers judged in part: b3 is known to be unavailable",
        {
            "registered_bookies": frozenset({"b1", "b2"}),
            "unavailable_bookies": frozenset({"b3"}),
        },
        ("b1", "b2"),
    ),
    "loss": _Case(1, "below_ack_quorum: 1 ledger", whole=False),
    "loss in words": _Case(
        1,
        "Replicas are missing of 1 of 2 ledgers; at worst, entries with fewer replicas than the "
        "ack quorum\n",
        whole=False,
    ),
    "a part in words": _Case(
        1,
        "Nothing is missing of what could be judged: 2 ledgers, 12 entries, 2 bookies\n",
        {"registered_bookies": None, "unavailable_bookies": None},
        ("b1", "b2"),
    ),
    "none closed, in words": _Case(
        3,
        "Nothing was judged: no ledger is closed\n",
        {"ledgers": (_metadata(7, state="OPEN", last_entry_id=-1, length=0),)},
    ),
    "absent": _Case(1, "bookie_unavailable: 2 ledgers", bookies=("b1", "b2")),
    "absent, nobody tells": _Case(
        1,
        "2 ledgers judged in part: no answer from b3",
        {"registered_bookies": None, "unavailable_bookies": None},
        ("b1", "b2"),
    ),
    "contradiction": _Case(
        1,
        "not judged: its metadata",
        {"ledgers": (_metadata(7, segments=((0, ENSEMBLE), (99, ENSEMBLE))),)},
    ),
    "no ledger": _Case(3, "Nothing was judged: the metadata list no ledger\n", {"ledgers": ()}),
    "none closed": _Case(
        3,
        "0 of 1 ledger checked (0 of them empty), 0 answers of bookies; skipped: 1 open",
        {"ledgers": (_metadata(7, state="OPEN", last_entry_id=-1, length=0),)},
    ),
    "every bookie is known to be unavailable": _Case(
        3,
        "Nothing was judged: no bookie that should have entries answered\n",
        {"registered_bookies": frozenset(), "unavailable_bookies": frozenset(ENSEMBLE)},
        ("stranger",),
    ),
    "an empty ledger has nothing to lose": _Case(
        0,
        "1 of 1 ledger checked (1 of them empty)",
        {"ledgers": (_metadata(7, last_entry_id=-1, length=0),)},
    ),
    "no such directory": _Case(2, "no such directory", bookies=(*ENSEMBLE, "b4")),
    "no such file": _Case(2, "nowhere", words=("--places", "nowhere", "--placement", "rack")),
}


@pytest.mark.parametrize("case", EXITS.values(), ids=EXITS)
def test_exit_codes(made: Path, capsys: Capsys, case: _Case) -> None:
    """0 if nothing was found and no ledger or replica was left without a verdict, else 1, 2 for
    wrong input, and 3 where nothing was judged by an answer of a bookie.
    """
    path = made / "metadata.json"
    if case.whole:
        with HierarchicalIndex(made / "b3", writable=True) as index:
            index.put(7, 4, 1428)
    if case.document:
        path.write_bytes(encode_file(replace(decode_file(path.read_bytes()), **case.document)))
    HierarchicalIndex(made / "stranger", writable=True).close()
    code, rows, err = _run(capsys, *_words(made, *case.bookies), *case.words)

    assert case.code == code
    assert case.err in err
    if code == 0:
        assert [] == rows


def test_contradicting_metadata_are_named(made: Path, capsys: Capsys) -> None:
    """A ledger whose metadata contradict themselves is not judged; exit code 1, no pass."""
    store = MemoryStore()
    store.create(_metadata(9, segments=((0, ENSEMBLE), (99, ENSEMBLE))))
    (made / "metadata.json").write_bytes(encode_file(snapshot(store)))
    code, rows, err = _run(capsys, *_words(made))

    assert (1, []) == (code, rows)
    assert "ledger 9 not judged: its metadata: last entry 5 is before segment 99" in err
    assert "0 of 1 ledger checked" in err


def test_unreadable_metadata(made: Path, capsys: Capsys) -> None:
    """A metadata file that is none is one line with name, offset and reason."""
    (made / "metadata.json").write_bytes(b'{"ledgers": [}')
    err = _fails(capsys, *_words(made))

    assert "metadata.json: offset 13: metadata file is not JSON" in err


def test_an_unreadable_index_is_no_loss(made: Path, capsys: Capsys) -> None:
    """A corrupt index file is an answer that failed, with file and reason, not a loss."""
    (path,) = (made / "b1").rglob("7.idx")
    path.write_bytes(b"nonsense" * 200)
    code, rows, _ = _run(capsys, *_words(made))
    (row,) = (row for row in rows if row["bookie"] == "b1")

    assert (1, "bookie_unavailable") == (code, row["category"])
    assert [None] * 3 == [row[name] for name in ("missing_entries", "missing", "missing_groups")]
    assert "7.idx" in row["detail"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--placement", "rack"], "needs --places FILE"),
        (["--places", "x"], "requires --placement"),
        (["--placement", "rack", "--places", "places", "--spread", "0"], "1 or more, not 0"),
        (["--placement", "region", "--places", "places"], "not /region/rack"),
        (["--placement", "rack", "--places", "wrong"], "wrong: offset 7: not a bookie id"),
        (["--placement", "rack", "--places", "twice"], "twice: offset 7: bookie b1"),
        (["--grace-period", "-5"], "grace_period must be a number above 0"),
        (["--resume", "b1/current/kept"], "b1"),
        (["-o", "b1/current/out"], "b1"),
        (["--textfile", "b3/current/x.prom"], "b3"),
        (["-o", "metadata.json"], "metadata.json"),
        (["--resume", "metadata.json"], "metadata.json"),
        (["--placement", "rack", "--places", "places", "-o", "places"], "places"),
        (["-o", "kept", "--resume", "kept"], "kept"),
        (["--format", "csv", "-o", "x.prom", "--textfile", "x.prom"], "x.prom: is"),
        (["--resume", "x.prom", "--textfile", "./x.prom"], "x.prom"),
        (["-o", "nowhere/out"], "nowhere"),
        (["--textfile", "nowhere/x.prom"], "nowhere"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options_that_do_not_fit(
    words: list[str], reason: str, made: Path, capsys: Capsys, monkeypatch: Any
) -> None:
    """Options that do not go together, files that are none, outputs onto what is read or onto each
    other: one line; nothing is written, no bookie is asked."""
    monkeypatch.chdir(made)
    monkeypatch.setattr(Auditor, "run", lambda *_, **__: pytest.fail("bookies were asked"))
    Path("places").write_text("b1 /r1\nb2 /r2\n")
    Path("wrong").write_text("b1 /r1\nb2\n")
    Path("twice").write_text("b1 /r1\nb1 /r2\n")
    before = {p: p.read_bytes() for p in made.rglob("*") if p.is_file()}

    assert reason in _fails(capsys, *_words(made), *words)
    assert before == {p: p.read_bytes() for p in made.rglob("*") if p.is_file()}
    assert ["b1", "b2", "b3"] == sorted(p.name for p in made.iterdir() if p.is_dir())
