"""`bkstore repair`: the plan for a running cluster as rows, its exit codes, and wrong usage."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bkstore.cli.main import main
from bkstore.cli.terminal.table_output import write_tables
from bkstore.cluster import DirectoryStore
from bkstore.cluster.audit import Auditor
from bkstore.network import Client
from bkstore.tables import VIOLATIONS
from tests.cli.screen.drawn_tables import terminal, without_styles
from tests.network.bookies_on_sockets import Served

Capsys = pytest.CaptureFixture[str]


class MadeCluster(NamedTuple):
    """A metadata store's folder, bookies on sockets, and a ledger of three of them."""

    folder: str
    served: Served
    ledger: int
    ensemble: tuple[str, ...]

    def lose(self, bookie: str) -> None:
        """Delete the ledger at a bookie."""
        self.served.running[bookie][0].delete_ledger(self.ledger)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[MadeCluster]:
    """Yield four bookies, and a ledger that is whole."""
    folder, served = str(tmp_path / "store"), Served(tmp_path, 4)
    store = DirectoryStore(folder)
    for bookie in served.running:
        store.register_bookie(bookie)
    with Client(store) as client:
        with client.create_ledger(3, 2, 2) as ledger:
            ledger.append_many(b"payload %d" % number for number in range(6))
        ensemble = ledger.metadata.segments[0].ensemble
        yield MadeCluster(folder, served, ledger.ledger.ledger, ensemble)
    served.close()


def _run(capsys: Capsys, *words: str) -> tuple[int, list[dict[str, Any]], str]:
    """Return the exit code of repair, its rows, and what it writes to stderr."""
    code = main(["repair", *words, "--retries", "0", "--format", "json"])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else [], err


def test_nothing_to_repair(made: MadeCluster, capsys: Capsys) -> None:
    """A whole cluster has no rows, and exit code 0."""
    assert (0, []) == _run(capsys, made.folder)[:2]
    assert 0 == main(["repair", made.folder, "--retries", "0"])
    assert ("", "Nothing to repair\n1 ledger: 1 checked\n") == capsys.readouterr()


def test_plan(made: MadeCluster, capsys: Capsys) -> None:
    """A lost ledger has a row for each source, and exit code 1; nothing is changed by that."""
    made.lose(made.ensemble[0])
    code, rows, err = _run(capsys, made.folder)
    expected = {
        (made.ensemble[1], "[[0, 0], [3, 3]]"),
        (made.ensemble[2], "[[2, 2], [5, 5]]"),
    }

    assert 1 == code
    assert expected == {(row["source_bookie"], str(row["missing"])) for row in rows}
    assert {("write", "planned", made.ensemble[0])} == {
        (row["action"], row["status"], row["target_bookie"]) for row in rows
    }
    assert "planned: 4 replicas of entries in 1 ledger" in err
    assert 1 == _run(capsys, made.folder)[0]


def test_apply(made: MadeCluster, capsys: Capsys) -> None:
    """With --apply the entries are back, the rows say so, and nothing is left to repair."""
    made.lose(made.ensemble[0])
    code, rows, err = _run(capsys, made.folder, "--apply", "--bytes-per-second", "1e6")

    assert 0 == code
    assert {"repaired"} == {row["status"] for row in rows}
    assert "repaired: 4 replicas of entries in 1 ledger" in err
    assert [0, 2, 3, 5] == made.served.running[made.ensemble[0]][0].entries(made.ledger).tolist()
    assert (0, []) == _run(capsys, made.folder)[:2]


def test_apply_to_what_has_no_copy(made: MadeCluster, capsys: Capsys) -> None:
    """What no bookie has stays in the rows, with exit code 1."""
    for bookie in made.ensemble[:2]:
        made.lose(bookie)
    code, rows, _ = _run(capsys, made.folder, "--apply")
    left = [row for row in rows if row["status"] == "impossible"]

    assert 1 == code
    assert {str([[0, 0], [3, 3]])} == {str(row["missing"]) for row in left}
    assert {None} == {row["source_bookie"] for row in left}
    assert left == _run(capsys, made.folder)[1]


def test_apply_to_a_bookie_that_is_gone(made: MadeCluster, capsys: Capsys) -> None:
    """The fourth bookie takes the place of one that is not registered, also from a report."""
    gone = made.ensemble[1]
    made.served.kill(gone)
    DirectoryStore(made.folder).unregister_bookie(gone)
    code, rows, _ = _run(capsys, made.folder, "--apply")
    (target,) = {row["target_bookie"] for row in rows}
    segments = DirectoryStore(made.folder).read(made.ledger).metadata.segments

    assert 0 == code
    assert {("replace", "repaired", gone)} == {
        (row["action"], row["status"], row["bookie"]) for row in rows
    }
    assert target not in made.ensemble
    assert [(0, (made.ensemble[0], target, made.ensemble[2]))] == list(segments)
    assert [0, 1, 3, 4] == made.served.running[target][0].entries(made.ledger).tolist()


def test_service(made: MadeCluster, tmp_path: Path) -> None:
    """With --every it repairs until a signal ends it, and writes metrics after each repair."""
    made.lose(made.ensemble[0])
    textfile = tmp_path / "repair.prom"
    words = [made.folder, "--apply", "--every", "1s", "--retries", "0", "--textfile", str(textfile)]
    process = subprocess.Popen(
        [sys.executable, "-m", "bkstore", "repair", *words], stdout=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    clean_runs = 'bkstore_repair_runs_total{result="clean"} 2.0'
    while not (textfile.exists() and clean_runs in textfile.read_text()):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.terminate()
    out, _ = process.communicate(timeout=30)

    assert 143 == process.returncode
    assert 2 == out.count("repaired")
    assert "bkstore_repair_copied_entries_total 4.0" in textfile.read_text()
    assert [0, 2, 3, 5] == made.served.running[made.ensemble[0]][0].entries(made.ledger).tolist()


def test_plan_of_a_report(made: MadeCluster, tmp_path: Path, capsys: Capsys) -> None:
    """The output of an audit leads to the same plan, without asking bookies."""
    made.lose(made.ensemble[0])
    rows = _run(capsys, made.folder)[1]
    bookies = {name: bookie for name, (bookie, _) in made.served.running.items()}
    table = Auditor(DirectoryStore(made.folder), bookies).run().table()
    report = tmp_path / "audit.jsonl"
    write_tables(VIOLATIONS, [table], "jsonl", report)
    made.served.close()

    assert (1, rows) == _run(capsys, made.folder, "--from", str(report))[:2]


def test_table(made: MadeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan fits a terminal of 80 columns, also with the addresses of three bookies."""
    out = terminal(80, monkeypatch)
    monkeypatch.setattr(sys, "stdout", out)
    made.lose(made.ensemble[0])
    main(["repair", made.folder, "--retries", "0"])
    lines = without_styles(out.getvalue().splitlines())

    assert 80 >= max(map(len, lines))
    assert made.ensemble[0] in out.getvalue()
    assert any(made.ensemble[1] in line and "0, 3 (2 entr" in line for line in lines)


def test_a_file_of_metadata(tmp_path: Path, capsys: Capsys) -> None:
    """It has no running bookies, so it is refused before any is waited for."""
    path = tmp_path / "metadata.json"
    path.write_bytes(b'{"ledgers": [], "registered_bookies": ["b1"]}')

    assert 2 == main(["repair", str(path)])
    message = f"bkstore: {path}: is a file of metadata; a repair needs the service URI of a running"
    assert capsys.readouterr().err.startswith(message)


def test_nothing_checked(tmp_path: Path, capsys: Capsys) -> None:
    """A store without ledgers is no success."""
    DirectoryStore(tmp_path / "store")

    assert 3 == _run(capsys, str(tmp_path / "store"))[0]


def test_owners(made: MadeCluster, capsys: Capsys) -> None:
    """Only ledgers of the given owners are planned: these have none."""
    made.lose(made.ensemble[0])

    assert (0, []) == _run(capsys, made.folder, "--topic", "*")[:2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--from", "absent.json"], "absent.json"),
        (["--every", "1h"], "--every and --textfile need --apply"),
        (["--apply", "--every", "0"], "--every needs a time above 0"),
        (["--apply", "--every", "1h", "--topic", "x"], "it takes no --from and no owners"),
        (["--apply", "--parallel", "0"], "parallel"),
        (["--places", "x"], "--places requires --placement rack or region"),
        (["--tls-ca", "x"], "need --tls"),
        (["--retry-delay", "-1"], "retry_delay"),
    ],
)
def test_wrong_usage(made: MadeCluster, capsys: Capsys, words: list[str], message: str) -> None:
    """Exit code 2 and the reason."""
    try:
        code = main(["repair", made.folder, *words])
    except SystemExit as ended:
        code = int(str(ended.code))

    assert 2 == code
    assert message in capsys.readouterr().err
