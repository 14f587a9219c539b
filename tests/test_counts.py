"""Counts as they are read, in the function and where commands print them."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

from bkstore.cli.main import main
from bkstore.counts import format_count
from bkstore.index.hierarchical import HierarchicalIndex
from tests.paths import ROOT

PLURAL = re.compile(
    r" (?:(?!of )\w+ )?(answers|bookies|bytes|directories|entries|files|findings|groups|ledgers"
    r"|loads|locations|marks|objects|ranges|replicas|rows|segments|stretches|tables|waves)\b"
)
CHECKED = [
    *ROOT.glob("bkstore/cli/bookie/*.py"),
    *ROOT.glob("bkstore/cli/datasets/*.py"),
    *ROOT.glob("bkstore/cli/terminal/*.py"),
    ROOT / "bkstore/cli/audit.py",
    ROOT / "bkstore/cli/streams.py",
    ROOT / "bkstore/cluster/audit/auditor.py",
    ROOT / "bkstore/cluster/audit/report.py",
    ROOT / "bkstore/storage/read_only/locations_past_end.py",
]


def test_one_and_many() -> None:
    """One is one, all else is many; thousands are set apart where that is asked for."""
    assert ["0 rows", "1 row", "2 rows", "1200 rows", "-1 rows"] == [
        format_count(number, "row") for number in (0, 1, 2, 1200, -1)
    ]
    assert ["1 entry", "2 entries"] == [format_count(n, "entry", "entries") for n in (1, 2)]
    assert ["1 row", "1,200 rows"] == [format_count(n, "row", grouped=True) for n in (1, 1200)]


def _plurals(path: Path) -> list[str]:
    """Return the counts in a module's f-strings whose noun is a plural, whatever the count."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        parts = node.values if isinstance(node, ast.JoinedStr) else []
        for at, (value, text) in enumerate(pairwise(parts)):
            before = parts[at - 1] if at else None
            of = isinstance(before, ast.Constant) and str(before.value).endswith(" of ")
            if isinstance(value, ast.FormattedValue) and isinstance(text, ast.Constant):
                name = ast.unparse(value.value)
                if PLURAL.match(str(text.value)) and not of and not name.isupper():
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {{{name}}}{text.value}")
    return found


@pytest.mark.parametrize("path", CHECKED, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_count_has_a_fixed_noun(path: Path) -> None:
    """What a command prints goes through `format_count`, where a count may be one."""
    assert [] == _plurals(path)


def test_the_look_finds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fixed plural behind a count is found, a part of a whole is none."""
    monkeypatch.setattr("tests.test_counts.ROOT", tmp_path)
    module = tmp_path / "module.py"
    module.write_text('a = f"{n} ledgers"\nb = f"{n} more rows"\nc = f"{n} of {m} ledgers"\n')

    assert ["module.py:1: {n} ledgers", "module.py:2: {n} more rows"] == _plurals(module)


def test_commands_count_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A dump, a load and an analysis of one entry of one ledger say so."""
    pytest.importorskip("duckdb")
    with HierarchicalIndex(tmp_path / "b", writable=True) as index:
        index.put(7, 0, 1028)
    dumped, made = str(tmp_path / "dumped"), str(tmp_path / "made")

    assert 0 == main(["dump", str(tmp_path / "b"), dumped])
    assert "1 entry, 1 group, 1 ledger, 0 entry_logs" in capsys.readouterr().err
    assert 0 == main(["load", dumped, made, "--to", "idx"])
    assert "1 entry of 1 ledger of bookie b" in capsys.readouterr().err
    assert 0 == main(["analyze", dumped, "--format", "csv"])
    said = capsys.readouterr().out

    assert "1 entry in 1 stretch, 1.0 each" in said
    assert "1 entry in 1 sequence group" in said
    assert '"1 bookie, 1 entry; 0 bytes of entry logs"' in said
    assert 0 == main(["analyze", dumped, "--out", str(tmp_path / "out"), "--only", "holes"])
    assert capsys.readouterr().err.endswith("/out: 1 table\n")
