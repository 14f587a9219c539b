"""How a command is asked to answer: formats by suffix, typed JSON, ledgers as words."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bkstore import Bookie, LedgerId
from bkstore.cli.main import main
from bkstore.formats.entry import Coder, encode_explicit_lac, explicit_lac_or_none, master_key
from bkstore.index.api import LedgerState
from bkstore.index.hierarchical import HierarchicalIndex

Capsys = pytest.CaptureFixture[str]

WIDE = LedgerId.parse("c0ffee00-feed-4bad-9e55-0123456789ab")
SAME = ("7", "0x7", "0" * 31 + "7", "00000000-0000-0000-0000-000000000007")


@pytest.fixture(scope="module")
def bookie(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a bookie of ledgers 7 and `WIDE`, with journal, cookie and one entry log."""
    top = tmp_path_factory.mktemp("output") / "bookie-1"
    coder, key = Coder("CRC32C", "secret"), master_key("secret")
    with Bookie.open(top, storage="db") as made:
        for ledger in (7, WIDE):
            made.add_entries(coder.encode_many(ledger, range(3), [b"x"] * 3), key)
            lac = encode_explicit_lac(ledger, 1, "CRC32C", "secret")
            made.set_explicit_lac(ledger, lac, key)
    return top


def _json(capsys: Capsys, *words: object, code: int = 0) -> Any:
    assert code == main([*map(str, words), "--format", "json"])

    return json.loads(capsys.readouterr().out)


# -- formats


@pytest.mark.parametrize("suffix", ["csv", "json", "jsonl", "parquet", "CSV", "txt", ""])
def test_suffixes(bookie: Path, suffix: str, tmp_path: Path) -> None:
    """The suffix of -o says the format; a name without one that says any is a table."""
    target = tmp_path / f"x.{suffix}"
    if suffix == "parquet":
        pytest.importorskip("pyarrow")

    assert 0 == main(["ledgers", str(bookie), "-o", str(target)])
    data = target.read_bytes()
    begins = {"csv": b"bookie,", "json": b"[\n{", "jsonl": b'{"bookie"', "parquet": b"PAR1"}

    assert data.startswith(begins.get(suffix.lower(), b"bookie: bookie-1   layout"))


@pytest.mark.parametrize("command", ["ledgers", "inspect", "readlog", "listfiles"])
def test_a_suffix_that_says_no_format(
    bookie: Path, command: str, tmp_path: Path, capsys: Capsys
) -> None:
    """An unknown suffix is a usage error that names the known ones; --format makes it good."""
    target = tmp_path / "x.foo"
    with pytest.raises(SystemExit) as stopped:
        main([command, str(bookie), "-o", str(target)])
    said = capsys.readouterr().err.splitlines()[-1]

    assert 2 == stopped.value.code
    assert (
        "suffix .foo selects no format: use .txt, .json, .jsonl, .csv, .parquet, or --format"
        in said
    )
    assert not target.exists()
    assert 0 == main([command, str(bookie), "-o", str(target), "--format", "csv"])
    assert target.exists()


def test_a_suffix_is_looked_at_first(tmp_path: Path, capsys: Capsys) -> None:
    """A wrong suffix ends a command that would work long before it has read anything."""
    with pytest.raises(SystemExit):
        main(["audit", "no such file", f"b={tmp_path}/b", "-o", str(tmp_path / "x.xlsx")])

    assert "suffix .xlsx selects no format" in capsys.readouterr().err


def test_parquet_is_asked_for_first(monkeypatch: pytest.MonkeyPatch, capsys: Capsys) -> None:
    """Without pyarrow, Parquet is refused before anything is opened."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    assert 2 == main(["ledgers", "no such directory", "-o", "x.parquet"])
    assert (
        "bkstore: Parquet output needs pyarrow: pip install 'pyarrow>=18'\n"
        == capsys.readouterr().err
    )


def test_a_given_format_wins(bookie: Path, tmp_path: Path) -> None:
    """--format says the format whatever the suffix is."""
    target = tmp_path / "x.csv"

    assert 0 == main(["ledgers", str(bookie), "-o", str(target), "--format", "jsonl"])
    assert 7 == json.loads(target.read_text())["ledger_id"]


def test_ranges_by_suffix(tmp_path: Path) -> None:
    """What is written by suffix is what --format writes: above 10,000 ranges there are none."""
    with HierarchicalIndex(tmp_path / "b", writable=True) as index:
        index.put_many(1, range(0, 30_000, 2), [1028] * 15_000)
    target = tmp_path / "x.json"

    assert 0 == main(["availability", str(tmp_path / "b"), "1", "-o", str(target)])
    assert [None] == [row["ranges"] for row in json.loads(target.read_text())]


# -- inspect


def test_inspect_is_an_object(bookie: Path, capsys: Capsys) -> None:
    """Numbers are numbers, directories, files and findings lists."""
    current = str(bookie / "ledgers" / "current")
    Path(current, "5.log").mkdir()  # is no file, and a finding
    try:
        found = _json(capsys, "inspect", bookie, code=1)
    finally:
        Path(current, "5.log").rmdir()
    finding = found["findings"][0]

    assert {"ledger": [current], "index": [current]} == {
        role: found["directories"][role] for role in ("ledger", "index")
    }
    assert [str(bookie / "journal" / "current")] == found["directories"]["journal"]
    assert ("bookie-1", "rocksdb", 2, 0, 1, True, False) == tuple(
        found[name]
        for name in (
            "bookie",
            "layout",
            "ledgers",
            "fenced_ledgers",
            "other_scopes",
            "ledger_ids_of_128_bits",
            "dirty",
        )
    )
    assert {"version": 5, "instance_id": None} == found["cookie"]
    assert [(0, 0, f"{current}/0.log"), (0, 5, f"{current}/5.log")] == [
        (log["dir_index"], log["log_id"], log["file"]) for log in found["entry_logs"]
    ]
    assert found["entry_log_bytes"] == sum(log["bytes"] for log in found["entry_logs"]) > 0
    assert [f"{bookie}/journal/current"] == [
        str(Path(file).parent) for file in found["journal_files"]
    ]
    assert 6 == found["index_entries"]
    assert ("damage", f"{current}/5.log", None) == tuple(
        finding[name] for name in ("severity", "file", "ledger_id")
    )


def test_inspect_without_a_pass(bookie: Path, tmp_path: Path, capsys: Capsys) -> None:
    """What was not looked at, or is not there, is null; -o x.json writes the same object."""
    target = tmp_path / "x.json"
    with HierarchicalIndex(tmp_path / "index", writable=True) as index:
        index.put(7, 0, 1028)

    assert _json(capsys, "inspect", bookie, "--quick")["index_entries"] is None
    assert _json(capsys, "inspect", tmp_path / "index")["cookie"] is None
    assert 0 == main(["inspect", str(bookie), "-o", str(target)])
    assert _json(capsys, "inspect", bookie) == json.loads(target.read_text())
    assert 2 == main(["inspect", str(bookie), "-o", str(target), "--columns", "value"])


# -- ledgers


@pytest.mark.parametrize("command", ["ledger", "availability", "readledger", "where"])
def test_a_ledger_is_a_word(bookie: Path, command: str, capsys: Capsys) -> None:
    """LEDGER behind DIR says what --ledger-id does, in every text form, options between or not."""
    expected = _json(capsys, command, bookie, "--ledger-id", 7)
    wide = _json(capsys, command, bookie, "--ledger-qualified-name", WIDE.qualified_name)

    assert expected
    for form in SAME:
        assert expected == _json(capsys, command, bookie, form)
    assert expected == _json(capsys, command, bookie, "--live", 7)
    assert expected == _json(capsys, command, bookie, "7", "--ledger-scope-id", 0)
    assert wide == _json(capsys, command, bookie, WIDE.uuid)
    assert wide == _json(capsys, command, bookie, WIDE.ledger, "--ledger-scope-id", WIDE.scope)


@pytest.mark.parametrize("command", ["ledger", "availability", "readledger", "where"])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "one of the arguments LEDGER --ledger-id --ledger-qualified-name is required"),
        (("7", "--ledger-id", "7"), "argument LEDGER: not allowed with argument --ledger-id"),
        (
            ("7", "--ledger-qualified-name", "0" * 32),
            "argument LEDGER: not allowed with argument --ledger-qualified-name",
        ),
    ],
    ids=["none", "two", "name"],
)
def test_one_ledger_once(
    command: str, words: tuple[str, ...], message: str, capsys: Capsys
) -> None:
    """No ledger, or one named in two ways, is a usage error."""
    with pytest.raises(SystemExit) as stopped:
        main([command, "D", *words])

    assert 2 == stopped.value.code
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("command", ["ledger", "availability", "readledger", "where"])
def test_unknown_ledgers(bookie: Path, command: str, capsys: Capsys) -> None:
    """A ledger that is not there is exit code 1, and one line; one without entries is neither."""
    code = main([command, str(bookie), "99"])
    err = capsys.readouterr().err

    assert (1, 1) == (code, err.count("\n"))
    assert "ledger 99" in err


# -- explicit LACs


def test_explicit_lacs_are_numbers(bookie: Path, capsys: Capsys) -> None:
    """Beside an explicit LAC's bytes stands its entry, of `ledgers` and of journal records."""
    listed = _json(capsys, "ledgers", bookie, "--all-scopes")
    journal = _json(capsys, "readjournal", bookie)
    bodies = [encode_explicit_lac(ledger, 1, "CRC32C", "secret").hex() for ledger in (7, WIDE)]

    assert [(body, 1) for body in bodies] == [
        (row["explicit_lac"], row["explicit_lac_entry"]) for row in listed
    ]
    assert [(body, 1) for body in bodies] == [
        (row["explicit_lac"], row["explicit_lac_entry"])
        for row in journal
        if row["kind"] == "explicit_lac"
    ]
    assert {None} == {row["explicit_lac_entry"] for row in journal if row["kind"] != "explicit_lac"}


@pytest.mark.parametrize("body", [b"", b"\x80" * 24], ids=["none", "short"])
def test_bodies_that_say_no_entry(body: bytes, tmp_path: Path, capsys: Capsys) -> None:
    """Bytes that are no body of an explicit LAC have no number, and stay as they are."""
    with HierarchicalIndex(tmp_path, writable=True) as index:
        index.set_state(7, LedgerState(b"k" * 20, explicit_lac=body))
    main(["ledgers", str(tmp_path), "--format", "jsonl"])
    row = json.loads(capsys.readouterr().out)

    assert explicit_lac_or_none(body) is None
    assert row["explicit_lac_entry"] is None
    assert row["explicit_lac"] in (None, body.hex())
