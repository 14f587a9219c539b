"""The benchmark runs, and its document has what a reader of it needs. Never a time."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT
from tools.bench.cli import choose_rows, main
from tools.bench.rows import ROWS
from tools.bench.rows.start import cpu_seconds

ROUNDS = 1
STORAGES = ("sorted", "interleaved", "db")


IN_PROCESSES = (
    "start",
    "wire-reads",
    "wire-adds",
    "ensemble-appends",
    "ensemble-reads",
    "leak-search",
)
"""Rows whose samples need processes of their own."""

LATER = (*(row.name for row in ROWS if row.long), *IN_PROCESSES)
"""Rows that run in the long tests only: these, and those that are long themselves."""


def _measured(rows: list[str], folder: Path) -> dict[str, Any]:
    """Run some rows at a thousandth of their size."""
    file = folder / "result.json"
    row_options = [word for name in rows for word in ("--row", name)]
    arguments = ["--size", "0.001", "--rounds", str(ROUNDS), "--json", str(file), *row_options]
    assert main(arguments) == 0
    loaded: dict[str, Any] = json.loads(file.read_text())
    return loaded


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The quick rows, at a thousandth of their size."""
    rows = [row.name for row in ROWS if row.name not in LATER]
    return _measured(rows, tmp_path_factory.mktemp("bench"))


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The other rows, at a thousandth of their size."""
    return _measured(list(LATER), tmp_path_factory.mktemp("bench-later"))


def cases(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows that compare two forms of the same work."""
    return [row for row in document["rows"] if row["ours"]]


def cases_of(document: dict[str, Any], name: str) -> dict[str, dict[str, Any]]:
    """The cases of one row by name: its ratio's target, and its facts by theirs."""
    found: dict[str, dict[str, Any]] = {}
    for row in document["rows"]:
        if row["row"] == name:
            case = found.setdefault(row["case"], {"target": None, "ours": None, "facts": {}})
            if row["ours"]:
                case |= {"target": row["target"], "ours": row["ours"]}
            else:
                case["facts"][row["what"]] = row
    return found


def values_of(case: dict[str, Any]) -> dict[str, Any]:
    """The values of a case's facts by name."""
    return {name: row["value"] for name, row in case["facts"].items()}


def test_document_says_where_and_how(document: dict[str, Any]) -> None:
    """A figure names its command, machine, versions, seed and size."""
    wanted = {"command", "made", "machine", "python", "packages", "seed", "scale", "rounds"}

    assert wanted <= document.keys()
    assert {"numpy", "rocksdict", "sortedcontainers", "pyroaring"} <= document["packages"].keys()
    assert document["command"].startswith("python -m tools.bench --size 0.001")


def test_every_row_is_there_with_its_method(document: dict[str, Any]) -> None:
    """Each row gives figures, and says in words what is included on both sides."""
    names = [row.name for row in ROWS if row.name not in LATER]

    assert names == list(dict.fromkeys(row["row"] for row in document["rows"]))
    assert all(row.method and row.title for row in ROWS)


@pytest.mark.long
def test_the_other_rows_are_there_too(later: dict[str, Any]) -> None:
    """They keep to what all rows keep to."""
    assert set(LATER) == {row["row"] for row in later["rows"]}
    test_every_sample_is_kept(later)
    test_one_baseline_counts(later)
    test_verdict_follows_the_target(later)


def test_every_sample_is_kept(document: dict[str, Any]) -> None:
    """Ratios can be made again from the samples: one CPU and one wall time a round."""
    for case in cases(document):
        for side in case["samples"]:
            assert ROUNDS == len(side["cpu_seconds"]) == len(side["wall_seconds"])
            assert min(side["wall_seconds"]) > 0


def test_one_baseline_counts(document: dict[str, Any]) -> None:
    """Of several baselines the fastest is the one compared with, and the ratio is theirs."""
    for case in cases(document):
        ours, *others = (statistics.median(side["cpu_seconds"]) for side in case["samples"])
        expected = min(others) / ours if case["is"] == "baseline / ours" else ours / min(others)

        assert (ours * 1e3, min(others) * 1e3) == (case["ours_ms"], case["baseline_ms"])
        assert pytest.approx(expected) == case["ratio"]


def test_verdict_follows_the_target(document: dict[str, Any]) -> None:
    """`holds` is what target and ratio say; a case without a target has no verdict."""
    for case in cases(document):
        if case["target"] is None:
            assert case["holds"] is None
            continue
        sign, limit = case["target"].split()
        reached = case["ratio"] >= float(limit) if sign == ">=" else case["ratio"] <= float(limit)

        assert reached is case["holds"]


def test_facts_that_are_no_times(document: dict[str, Any]) -> None:
    """A stripe takes 88 bytes at any size; a scope takes 8 bytes more a row in the log."""
    facts = {row["what"]: row for row in document["rows"]}

    assert 88 == facts["encoded bytes"]["value"]
    assert facts["peak bytes, missing"]["holds"]
    assert 8 <= facts["write-ahead log, bytes an entry, more for a scope"]["value"] < 8.2


def test_what_a_scope_takes_in_a_ledger_storage(document: dict[str, Any]) -> None:
    """9 bytes an entry in journal and entry log, 8 in the key of the index."""
    case = cases_of(document, "ledger-scope")["bytes an entry"]
    found = {name: fact["value"] for name, fact in case["facts"].items() if fact["target"]}
    expected = {
        "entry log, bytes an entry, more for a scope": 9,
        "journal, bytes an entry, more for a scope": 9,
        "index key, bytes, more for a scope": 8,
    }

    assert expected == found


def test_reads_are_measured_on_every_storage(document: dict[str, Any]) -> None:
    """From disk all three, from cache the two that have one; each with the design's limit."""
    sizes = (100, 1024)
    from_disk = {f"{s}, from disk, {n} bytes" for s in STORAGES for n in sizes}
    from_cache = {f"{s}, from cache, {n} bytes" for s in ("sorted", "db") for n in sizes}
    batches = {name: case["target"] for name, case in cases_of(document, "batch-read").items()}
    singles = {name: case["target"] for name, case in cases_of(document, "single-read").items()}

    assert dict.fromkeys(from_disk, ">= 10") | dict.fromkeys(from_cache, ">= 3") == batches
    assert {f"{s}, {n} bytes": "<= 2" for s in STORAGES for n in sizes} == singles


def test_writes_and_upkeep_tell_rates(document: dict[str, Any]) -> None:
    """Each case says entries and megabytes a second, which agree on the size of an entry."""
    for row in ("ledger-write", "ledger-upkeep"):
        for name, case in cases_of(document, row).items():
            entries, megabytes = values_of(case).values()
            payload = int(name.split()[-2])

            assert case["target"] in (None, "<= 1", "<= 2", "<= 3")
            assert pytest.approx(payload + 36, rel=0.01) == megabytes * 1e6 / entries


@pytest.mark.long
def test_memory_is_held_against_what_is_configured(later: dict[str, Any]) -> None:
    """The peak of a process of its own, which begins below it, and a limit in words."""
    expected = {
        "sorted": "<= 214: write cache 64 + 150",
        "interleaved": "<= 150: 150",
        "db": "<= 534: write cache 64 + block cache 64 + write buffers 256 + 150",
    }
    found = cases_of(later, "ledger-memory")
    peaks = {name: next(iter(case["facts"].values())) for name, case in found.items()}

    assert {
        f"{name}, {size}M": target for name, target in expected.items() for size in (10, 50)
    } == {name: peak["target"] for name, peak in peaks.items()}
    assert all(peak["holds"] for peak in peaks.values())
    for case in found.values():
        peak, before, _ = values_of(case).values()

        assert 20 < before <= peak


def test_memory_of_a_larger_load_shows(tmp_path: Path) -> None:
    """What waits for its flush is in the peak: 50,000 records more take some megabytes more."""
    peaks = []
    for count in (1_000, 60_000):
        command = [
            sys.executable,
            "-m",
            "tools.bench.inputs.load_process",
            "sorted",
            str(tmp_path / str(count)),
        ]
        ran = subprocess.run([*command, str(count), "2"], cwd=ROOT, capture_output=True)
        assert 0 == ran.returncode, ran.stderr
        loaded = json.loads(ran.stdout)
        assert count == loaded["entries"]
        peaks.append(loaded["peak"])
    held = 59_000 * (100 + 36)

    assert held < peaks[1] - peaks[0] < 5 * held


def test_long_rows_run_when_they_are_asked_for() -> None:
    """Without `--long` or its name a long row does not run; there are some."""
    long = ["ledger-memory", "listing", "audit", "audit-directories", "audit-memory"]
    long += ["live-audit", "repair", "rescue", "dump", "dump-sizes", "leaked-ledgers", "care"]

    assert long == [row.name for row in ROWS if row.long]
    assert [row.name for row in ROWS] == choose_rows(None, long=True)
    assert set(long).isdisjoint(choose_rows(None, long=False))
    assert ["ledger-memory"] == choose_rows(["ledger-memory"], long=False)


@pytest.mark.long
def test_reads_over_the_wire_tell_both_processes(later: dict[str, Any]) -> None:
    """Batches of 100 and of 500 are held against single reads; what an entry takes of client,
    server and clock stands beside, and so do single reads under way together."""
    cases = cases_of(later, "wire-reads")
    for payload in (100, 1024):
        for size in (100, 500):
            case = cases[f"batches of {size}, {payload} bytes"]
            facts = case["facts"]

            assert ">= 10" == case["target"]
            assert ">= 10" == facts["entries a wall second, against single reads"]["target"]
            for what in ("client CPU", "server CPU", "wall"):
                assert 0 <= facts[f"batches of {size}: {what}, us an entry"]["value"]
                assert 0 < facts[f"single: {what}, us an entry"]["value"]
        assert cases[f"pipelined, {payload} bytes"]["target"] is None
    assert {"adds by v2", "adds by v3"} == cases_of(later, "wire-adds").keys()


@pytest.mark.long
def test_ensembles_are_told_on_sockets_and_in_process(later: dict[str, Any]) -> None:
    """Appends and ranges over three bookies tell entries a second, CPU of both sides and the
    clock, on sockets and in this process; ranges beside single reads."""
    appends = cases_of(later, "ensemble-appends")
    reads = cases_of(later, "ensemble-reads")
    where = ("three processes", "in this process")

    assert set(where) == appends.keys()
    assert {f"{place}, W {quorum} of 3" for place in where for quorum in (2, 3)} == reads.keys()
    for cases, names in (
        (appends, ("append_many", "append_later", "append, one by one")),
        (reads, ("range", "single reads")),
    ):
        for place, case in cases.items():
            facts = values_of(case)
            for name in names:
                clock = facts[f"{name}: clock, us an entry"]

                assert pytest.approx(1e6 / clock, rel=0.02) == facts[f"{name}: entries a second"]
                assert 0 < facts[f"{name}: client CPU, us an entry"]
                on_sockets = place.startswith("three processes")
                assert on_sockets is (facts[f"{name}: bookies' CPU, us an entry"] > 0)
    for case in reads.values():
        assert {
            "single reads / range, by the clock",
            "single reads / range, by CPU of the client",
        } <= case["facts"].keys()


@pytest.mark.long
def test_starts_are_ratios_to_numpy(later: dict[str, Any]) -> None:
    """Starts are medians of at least seven processes, and their ratios are those of the row."""
    (case,) = cases_of(later, "start").values()
    facts = values_of(case)
    numpy = "python -c 'import numpy'"

    assert 7 <= min(row["items"] for row in case["facts"].values())
    for name in ("import bkstore", "bkstore --help"):
        ratio = facts[f"{name}, ms"] / facts[f"{numpy}, ms"]

        assert pytest.approx(ratio, abs=0.02) == facts[f"{name} / {numpy}"]


def test_a_start_that_fails_is_no_figure() -> None:
    """A process that does not end well is an error, whatever it took."""
    with pytest.raises(subprocess.CalledProcessError):
        cpu_seconds(("-c", "raise SystemExit(3)"))


def test_rows_are_chosen_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--row` runs one row, the table goes to stdout, progress to stderr."""
    file = tmp_path / "one.json"
    assert main(["--row", "encoding", "--size", "0.001", "--rounds", "1", "--json", str(file)]) == 0

    printed = capsys.readouterr()
    assert {"encoding"} == {row["row"] for row in json.loads(file.read_text())["rows"]}
    assert "from_entries" in printed.out
    assert "encoding ...\n" == printed.err


def test_markdown_has_a_line_a_case(capsys: pytest.CaptureFixture[str]) -> None:
    """`--markdown` prints the tables of `docs/performance-figures.md`."""
    arguments = ["--row", "encoding", "--size", "0.001", "--rounds", "1", "--markdown"]
    assert main(arguments) == 0

    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| enc")]
    cases_and_facts = 2 + 2
    assert cases_and_facts == len(lines)


def test_list_and_unknown_row(capsys: pytest.CaptureFixture[str]) -> None:
    """`--list` names the rows; an unknown one is a usage error that names them too."""
    with pytest.raises(SystemExit) as stopped:
        main(["--list"])
    assert 0 == stopped.value.code
    listed = capsys.readouterr().out.splitlines()
    assert [row.name for row in ROWS] == [line.split()[0] for line in listed]
    assert [row.name for row in ROWS if row.long] == [
        line.split()[0] for line in listed if line.endswith("(long)")
    ]
    with pytest.raises(SystemExit) as stopped:
        main(["--row", "no-such-row"])

    assert 2 == stopped.value.code
    assert "idx-availability" in capsys.readouterr().err
