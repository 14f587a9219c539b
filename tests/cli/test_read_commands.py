"""`readledger`, `readlog`, `readlogmetadata`, `listfiles`: the real shell's items, and errors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkstore.cli.main import main
from bkstore.formats.entry import Coder
from bkstore.ids import LedgerId
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.storage.options import StorageOptions

Shell = dict[tuple[str, str], bytes]
Unpack = Callable[[str], tuple[Path, Any]]
Capsys = pytest.CaptureFixture[str]

SCOPED = LedgerId(5, 7)
_RECORD = re.compile(
    rb"--------- Lid=(-?\d+), Eid=(-?\d+), ByteOffset=(\d+), EntrySize=(\d+) ---------\n"
    rb"Type: +DATA\nLastConfirmed: +(-?\d+)\n(?:Data:\n\n(.*?)\n)?(?=\n---------|\n?\Z)",
    re.DOTALL,
)
_OPTIONS = {"-l": "--ledger-id", "-e": "--entry-id", "-sp": "--start-pos", "-ep": "--end-pos"}


def _run(capsys: Capsys, *words: object) -> tuple[int, list[dict[str, Any]], str]:
    """Return (exit code, rows, what went to stderr)."""
    code = main([*map(str, words), "--format", "jsonl"])
    out, err = capsys.readouterr()
    return code, [json.loads(line) for line in out.splitlines()], err


def _rows(capsys: Capsys, *words: object) -> list[dict[str, Any]]:
    """Return the rows of a command that has nothing to say but which digest type it found."""
    code, rows, err = _run(capsys, *words)

    assert (0, []) == (code, [line for line in err.splitlines() if "digest type" not in line])
    return rows


def _commands(shell: Shell, name: str, printed: bool = True) -> list[tuple[str, list[str], bytes]]:
    """Return (tree, arguments, text) of one command's runs; those that failed if not `printed`."""
    found = [
        (tree, command.split()[1:], text)
        for (tree, command), text in shell.items()
        if command.split()[0] == name and (b"Got an exception" in text) != printed
    ]

    assert found
    return found


def _readable(text: str) -> list[str]:
    """Return the characters that both languages' lenient UTF-8 decoders agree on."""
    return [character for character in text if character.isascii() and character != "\r"]


# -- what the real shell prints


def test_readlog_gives_what_the_shell_prints(
    shell_output: Shell, unpack: Unpack, capsys: Capsys
) -> None:
    """Ids, offsets, sizes, LACs and payloads agree, with the same choice of records."""
    for tree, words, text in _commands(shell_output, "readlog"):
        root, document = unpack(f"bookkeeper/{tree}")
        options = [_OPTIONS.get(word, word) for word in words[:-1]]
        rows = _rows(capsys, "readlog", root / document["tree"], words[-1], *options)
        shown = _RECORD.findall(text)
        head = re.match(rb"Scan entry log (\d+) \((\w+\.log)\)", text)

        assert head is not None
        assert {(int(head[1]), head[2].decode())} == {(r["log_id"], r["file"]) for r in rows}
        assert text.count(b"Lid=") == len(shown) == len(rows)
        for record, row in zip(shown, rows):
            names = ("ledger_id", "entry_id", "offset", "bytes", "lac")

            assert list(map(int, record[:5])) == [row[name] for name in names]
            assert row["offset"] + 4 == row["position"]
            if "-m" in words:
                data = bytes.fromhex(row["payload"])
                shown_text, text_here = record[5].decode(), data.decode(errors="replace")
                start = max(len(_readable(shown_text)) - len(_readable(text_here)), 0)
                assert _readable(shown_text)[start:] == _readable(text_here)  # after its digest
            else:
                assert row["payload"] is None


def test_readlogmetadata_gives_what_the_shell_prints(
    shell_output: Shell, unpack: Unpack, capsys: Capsys
) -> None:
    """Log id, total size and the bytes of each ledger agree; the shell takes ids in hex."""
    for tree, (log,), text in _commands(shell_output, "readlogmetadata"):
        root, document = unpack(f"bookkeeper/{tree}")
        rows = _rows(capsys, "readlogmetadata", root / document["tree"], f"{log}.log")
        head = re.search(rb"entryLogId: (\d+), total size: (\d+)\n", text)
        ledgers = re.findall(rb"Lid=(-?\d+), TotalSizeOfEntriesOfLedger=(\d+)", text)

        assert head is not None
        assert {tuple(map(int, head.groups()))} == {(r["log_id"], r["total_bytes"]) for r in rows}
        assert {(int(ledger), int(size)) for ledger, size in ledgers} == {
            (row["ledger_id"], row["bytes"]) for row in rows
        }


@pytest.mark.parametrize(("command", "base"), [("readlog", 10), ("readlogmetadata", 16)])
def test_logs_that_the_shell_does_not_find(
    shell_output: Shell, unpack: Unpack, capsys: Capsys, command: str, base: int
) -> None:
    """A log that is not there is wrong usage, and named in both forms."""
    for tree, (log,), _ in _commands(shell_output, command, printed=False):
        root, document = unpack(f"bookkeeper/{tree}")
        number = int(log, base)
        code, rows, err = _run(capsys, command, root / document["tree"], number)

        assert (2, []) == (code, rows)
        assert f"no entry log {number} ({number:x}.log) is here" in err


def test_listfiles_gives_what_the_shell_prints(
    shell_output: Shell, unpack: Unpack, capsys: Capsys
) -> None:
    """The same journal, log and index files; what it takes for logs in a database is index."""
    options = {"-txn": "--journal", "-log": "--entrylog", "-idx": "--index"}
    compared = 0
    for tree, words, text in _commands(shell_output, "listfilesondisc"):
        root, document = unpack(f"bookkeeper/{tree}")
        top = root / document["tree"]
        rows = _rows(capsys, "listfiles", top, *(options[word] for word in words))
        files = {str(Path(row["file"]).relative_to(root)) for row in rows}
        shown = {line for line in text.decode().splitlines() if line and line[0] != "-"}
        databases = {line for line in shown if Path(line).parent.name != "current"} & {
            line for line in shown if line.endswith(".log")
        }
        compared += len(shown)

        if words:
            assert shown - databases == files
        index = [r["file"] for r in _rows(capsys, "listfiles", top, "--index")]
        for folder in {Path(line).parent for line in databases}:
            assert any(Path(f).parent == root / folder and f.endswith(".log") for f in index)

    assert 30 <= compared


# -- on directories of our own


def _written(
    top: Path, storage: Any = "sorted", ledger: int | LedgerId = 7, **options: Any
) -> list[bytes]:
    """Write entries 0..4 and 6..9, and return their records."""
    entries = [0, 1, 2, 3, 4, 6, 7, 8, 9]
    payloads = [b"payload of %d" % entry for entry in entries]
    records = Coder("CRC32C", "pw").encode_many(ledger, entries, payloads)
    with LedgerStorage.open(top, storage, options=StorageOptions(**options)) as written:
        written.add_entries(records, master_key=b"k" * 20)
    return records


def test_readledger(tmp_path: Path, capsys: Capsys) -> None:
    """A row an entry: place, numbers, payload; digests are verified where a type is given."""
    records = _written(tmp_path)
    plain = _rows(capsys, "readledger", tmp_path, "--ledger-id", 7)
    words = ("--digest-type", "CRC32C", "--password", "pw")
    verified = _rows(capsys, "readledger", tmp_path, "--ledger-id", 7, *words)

    assert [0, 1, 2, 3, 4, 6, 7, 8, 9] == [row["entry_id"] for row in plain]
    assert [record[36:].hex() for record in records] == [row["payload"] for row in plain]
    assert [record[36:].hex() for record in records] == [row["payload"] for row in verified]
    assert [True] * 9 == [row["digest_ok"] for row in plain]
    assert [True] * 9 == [row["digest_ok"] for row in verified]
    assert [len(record) for record in records] == [row["bytes"] for row in plain]
    assert [-1, 0, 1, 2, 3, 4, 6, 7, 8] == [row["lac"] for row in plain]
    assert [12 * n for n in range(1, 10)] == [row["length"] for row in plain]
    assert {(0, 7, 0)} == {(r["scope_id"], r["ledger_id"], r["dir_index"]) for r in plain}
    for row, record in zip(plain, records):
        log = tmp_path / "current" / f"{row['log_id']:x}.log"
        assert record == log.read_bytes()[row["position"] :][: row["bytes"]]


def test_readledger_ranges(tmp_path: Path, capsys: Capsys) -> None:
    """--first and --last pick entries; --max-count and --max-size give one batch, up to a gap."""
    _written(tmp_path)

    def entries(*words: object) -> list[int]:
        rows = _rows(capsys, "readledger", tmp_path, "--ledger-id", 7, *words)
        return [row["entry_id"] for row in rows]

    assert [3, 4, 6] == entries("--first", 3, "--last", 6)
    assert [1, 2, 3, 4] == entries("--first", 1, "--max-count", 0)
    assert [1, 2] == entries("--first", 1, "--max-count", 2)
    assert [1, 2] == entries("--first", 1, "--max-count", 4, "--last", 2)
    assert [0] == entries("--max-count", 5, "--last", 0)
    assert [1, 2] == entries("--first", 1, "--max-count", 2, "--last", 4)
    assert [1, 2, 3] == entries("--first", 1, "--max-count", 3, "--last", 3)
    assert [6, 7] == entries("--first", 6, "--max-size", 36 + 2 * (4 + 48))
    assert [6] == entries("--first", 6, "--max-size", 36 + 2 * (4 + 48) - 1)


@pytest.mark.parametrize("storage", ["sorted", "interleaved", "db"])
def test_scoped_ledgers(tmp_path: Path, capsys: Capsys, storage: str) -> None:
    """Every command reads a ledger of another scope."""
    records = _written(tmp_path, storage, SCOPED)
    chosen = ("--ledger-id", 7, "--ledger-scope-id", 5)
    words = ("--digest-type", "CRC32C", "--password", "pw")
    entries = _rows(capsys, "readledger", tmp_path, *chosen, *words)
    logged = _rows(capsys, "readlog", tmp_path, *chosen, "--msg")
    (metadata,) = _rows(capsys, "readlogmetadata", tmp_path)

    assert [record[45:].hex() for record in records] == [row["payload"] for row in entries]
    assert [record[45:].hex() for record in records] == [row["payload"] for row in logged]
    assert [True] * 9 == [row["digest_ok"] for row in entries]
    for name in ("scope_id", "ledger_id", "entry_id", "lac", "length", "position", "bytes"):
        assert [row[name] for row in entries] == [row[name] for row in logged]
    assert (5, 7, sum(map(len, records)) + 4 * 9) == (
        metadata["scope_id"],
        metadata["ledger_id"],
        metadata["bytes"],
    )


def test_readledger_damage(tmp_path: Path, capsys: Capsys) -> None:
    """An entry that is not where the index says, and a bad digest: named; the rest comes."""
    records = _written(tmp_path)
    (log,) = (tmp_path / "current").glob("*.log")
    data = bytearray(log.read_bytes())
    wrong, flipped = data.index(records[2]), data.index(records[7])
    data[wrong + 15] ^= 1
    data[flipped + 40] ^= 1
    log.write_bytes(data)
    words = ("--ledger-id", 7, "--digest-type", "CRC32C", "--password", "pw")
    code, rows, err = _run(capsys, "readledger", tmp_path, *words)

    assert 1 == code
    assert [0, 1, 3, 4, 6, 7, 8, 9] == [row["entry_id"] for row in rows]
    assert [8] == [row["entry_id"] for row in rows if not row["digest_ok"]]
    assert f"offset {wrong}: entry 2 of ledger 7: the record here is not entry 2" in err
    assert "entry 8 of ledger 7: CRC32C digest of entry 8 does not match" in err

    code, rows, err = _run(capsys, "readledger", tmp_path, *words[:2], "--max-count", 0)

    assert (1, [0, 1]) == (code, [row["entry_id"] for row in rows])
    assert "is not entry 2 of ledger 7" in err


def test_readlog_damage(tmp_path: Path, capsys: Capsys) -> None:
    """Bytes that are no record are named, those around them come, and the exit code is 1."""
    records = _written(tmp_path)
    (log,) = (tmp_path / "current").glob("*.log")
    data = bytearray(log.read_bytes())
    start = data.index(records[4]) - 4
    data[start : start + 20] = b"\xff" * 20
    log.write_bytes(data)
    code, rows, err = _run(capsys, "readlog", log)

    assert 1 == code
    assert [0, 1, 2, 3, 6, 7, 8, 9] == [row["entry_id"] for row in rows]
    assert f"damage: {log}: offset {start}: " in err
    assert f"{4 + len(records[4])} bytes up to {start + 4 + len(records[4])} are skipped" in err


def test_readlog_choices(tmp_path: Path, capsys: Capsys) -> None:
    """All logs without LOG, one by decimal id or name, one directory's by --dir-index."""
    tops = [tmp_path / name for name in ("a", "b")]
    with LedgerStorage.open(tops, "db") as storage:
        for ledger in (2, 3):
            record = Coder("CRC32C", "pw").encode_many(ledger, [0], [b"x"])[0]
            storage.add_entry(record, master_key=b"k" * 20)

    def ledgers(*words: object) -> list[tuple[int, int]]:
        rows = _rows(capsys, "readlog", tmp_path, *words)
        return [(row["dir_index"], row["ledger_id"]) for row in rows]

    for at, ledger in enumerate((2, 3)):
        (row,) = _rows(capsys, "readledger", tmp_path, "--ledger-id", ledger)

        assert (at, 0, ledger) == (row["dir_index"], row["log_id"], row["ledger_id"])

    assert [(0, 2), (1, 3)] == ledgers()
    assert [(1, 3)] == ledgers("--dir-index", 1)
    assert [(1, 3)] == ledgers("0.log", "--dir-index", 1)
    assert [(0, 2)] == ledgers("--ledger-qualified-name", f"{2:032x}")
    assert [(1, 3)] == [
        (row["dir_index"], row["ledger_id"])
        for row in _rows(capsys, "readlogmetadata", tmp_path, 0, "--dir-index", 1)
    ]


@pytest.mark.parametrize("command", ["readlog", "readlogmetadata"])
@pytest.mark.parametrize("log", ["31", "0x1f", "0X1F", "0x0000001f", "1f.log", "1F.log"])
def test_log_ids(tmp_path: Path, capsys: Capsys, command: str, log: str) -> None:
    """A log id is decimal, or hex with 0x, or the file's name."""
    (tmp_path / "current").mkdir()
    (tmp_path / "current" / "lastId").write_text("1e\n")
    with LedgerStorage.open(tmp_path, "interleaved") as storage:
        storage.add_entry(Coder("CRC32C", "pw").encode_many(7, [0], [b"x"])[0], master_key=b"k")
    (row,) = _rows(capsys, command, tmp_path, log)

    assert (31, "1f.log", 7) == (row["log_id"], row["file"], row["ledger_id"])


@pytest.mark.parametrize("command", ["readlog", "readlogmetadata"])
def test_help_says_how_logs_are_named(capsys: Capsys, command: str) -> None:
    """The help tells of decimal ids, of 0x and of file names."""
    with pytest.raises(SystemExit):
        main([command, "--help"])
    told = " ".join(capsys.readouterr().out.split())

    assert "an id, decimal or with 0x, or a file name <hex id>.log" in told


def test_readlog_positions(tmp_path: Path, capsys: Capsys) -> None:
    """A record counts if one of its bytes, from its size field on, is in the range."""
    records = _written(tmp_path)
    first = 1024 + 4 + len(records[0])  # where the second begins
    second = first + 4 + len(records[1])

    def entries(*words: object) -> list[int]:
        return [row["entry_id"] for row in _rows(capsys, "readlog", tmp_path, 0, *words)]

    assert [1, 2] == entries("--start-pos", first, "--end-pos", second)
    assert [0, 1] == entries("--start-pos", first - 1, "--end-pos", second - 1)
    assert [1] == entries("--start-pos", second - 1, "--end-pos", second - 1)
    assert [0] == entries("--end-pos", first - 1)
    assert [] == entries("--end-pos", 1023)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("readlog", "D", "12"), "no entry log 12 (c.log) is here"),
        (("readlog", "D", "0"), "entry log 0 is in directories 0, 1: choose one"),
        (("readlog", "D", "x"), "not an entry log: 'x'"),
        (("readlog", "D", "1f"), "not an entry log: '1f'"),
        (("readlog", "D", "0x"), "not an entry log: '0x'"),
        (("readlog", "D", "0xc"), "no entry log 12 (c.log) is here"),
        (("readlog", "D", "--dir-index", "2"), "--dir-index 2: 2 are here"),
        (("readlog", "D", "--entry-id", "2"), "need a ledger"),
        (("readlog", "D/a/current/0.log", "0"), "omit LOG and --dir-index"),
        (("readlog", "D/nothing"), "no such directory"),
        (("readledger", "D", "--ledger-id", "2", "--first", "3", "--last", "2"), "is less than"),
        (("readledger", "D", "--ledger-id", "2", "--digest-type", "HMAC"), "password"),
        (("readledger", "D", "--ledger-id", "2", "--max-count", "-1"), "0 or more"),
        (("readledger", "D", "--ledger-id", "9", "--max-count", "1"), "ledger 9"),
        (("readledger", "D", "--ledger-id", "2", "--first", "1", "--max-count", "1"), "entry 1"),
        (("listfiles", "D", "-o", "D/a/current/out"), "which is only read"),
        (("readlog", "D/a/current/0.log", "-o", "D/a/current/out"), "which is only read"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_usage(tmp_path: Path, capsys: Capsys, words: tuple[str, ...], message: str) -> None:
    """What cannot be meant is one line on stderr, no rows, and exit code 2."""
    with LedgerStorage.open([tmp_path / "a", tmp_path / "b"], "db") as storage:
        for ledger in (2, 3):
            record = Coder("CRC32C", "pw").encode_many(ledger, [0], [b"x"])[0]
            storage.add_entry(record, master_key=b"k" * 20)
    code, rows, err = _run(capsys, *(w.replace("D", str(tmp_path), w[:1] == "D") for w in words))

    assert (2, [], 1) == (code, rows, err.count("\n"))
    assert message in err


def test_unknown_ledger(tmp_path: Path, capsys: Capsys) -> None:
    """A ledger that is not known has no rows, and is exit code 1; a line says why."""
    _written(tmp_path)
    code, rows, err = _run(capsys, "readledger", tmp_path, "--ledger-id", 9)

    assert (1, []) == (code, rows)
    assert "ledger 9 is not on this bookie\n" == err


def test_empty_log_has_a_row(tmp_path: Path, capsys: Capsys) -> None:
    """A log without entries is a row without a ledger."""
    _written(tmp_path)
    (tmp_path / "current" / "7.log").touch()
    (row,) = _rows(capsys, "readlogmetadata", tmp_path, 7)

    assert (7, "7.log", "scan", 0, 0, None) == tuple(
        row[name] for name in ("log_id", "file", "source", "total_bytes", "usage", "ledger_id")
    )
    assert [] == _rows(capsys, "readlog", tmp_path, "7.log")


def test_writer_is_noticed(tmp_path: Path, capsys: Capsys) -> None:
    """A directory that a writer holds is refused with advice, and read with --live."""
    _written(tmp_path)
    with LedgerStorage.open(tmp_path):
        code, rows, err = _run(capsys, "readledger", tmp_path, "--ledger-id", 7)
        live = _rows(capsys, "readledger", tmp_path, "--ledger-id", 7, "--live")

    assert (2, []) == (code, rows)
    assert "open for writing elsewhere" in err
    assert 9 == len(live)


@pytest.mark.parametrize("form", ["table", "json", "csv", "parquet"])
def test_formats(tmp_path: Path, capsys: Capsys, form: str) -> None:
    """Each command writes each format; payloads are hex in the text formats, text on screen."""
    if form == "parquet":
        pytest.importorskip("pyarrow")
    _written(tmp_path / "bookie")
    out = tmp_path / "out"
    ledger = ("--ledger-id", "7")
    for command in (
        ("readledger", *ledger),
        ("readlog", "-m"),
        ("readlogmetadata",),
        ("listfiles",),
    ):
        code = main(
            [command[0], str(tmp_path / "bookie"), *command[1:], "--format", form, "-o", str(out)]
        )

        printed = capsys.readouterr()

        assert (0, "") == (code, printed.out)
        assert ("digest type" in printed.err) == (command[0] in ("readledger", "readlog"))
        if form == "parquet":
            assert b"PAR1" == out.read_bytes()[:4]
        elif "-m" in command or ledger[0] in command:
            shown = "payload of 4" if form == "table" else b"payload of 4".hex()

            assert shown in out.read_text()
