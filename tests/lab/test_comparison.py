"""What differs between two results of one experiment: settings, rows, counts and figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bkstore.lab import LabRun
from bkstore.lab.documents.comparison import list_differences
from bkstore.lab.documents.document import build_document
from tests.lab.toys import TOY, measure_toys

Document = dict[str, Any]


@pytest.fixture
def document(tmp_path: Path) -> Document:
    """Return the document of a run of the toy."""
    run = LabRun(tmp_path, rounds=2)
    return build_document(TOY, run, measure_toys(run), ["--rounds", "2"], 1.5)


def test_what_differs_between_two_results(document: Document) -> None:
    """Counts that differ at all, figures that moved by a quarter, rows and settings of one only."""
    old = json.loads(json.dumps(document))
    assert [] == list_differences(TOY, document, old)
    old["seed"] = 3
    old["rows"][0]["bytes"] += 1
    old["rows"][1]["time"] *= 1.1
    old["rows"][2]["time"] *= 2
    old["rows"][3]["size"] = 11

    assert [
        "seed: 3 then, 20260801 now",
        "two & <three>, 11: only then",
        "two & <three>, 10: only now",
        "one, 10: room, bytes 11 then, 10 now",
        "one, 1,000: playing, ms 286 then, 143 now: 0.50x",
    ] == list_differences(TOY, document, old)


def test_a_row_without_one_of_the_given_values(document: Document) -> None:
    """Its name is the values that it has."""
    new, old = json.loads(json.dumps(document)), json.loads(json.dumps(document))
    new["rows"][0]["size"] = old["rows"][0]["size"] = None
    old["rows"][0]["bytes"] += 1

    assert ["one: room, bytes 11 then, 10 now"] == list_differences(TOY, new, old)


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        (
            {"machine": {"processor": "Z80", "cores": 1, "load_average": [9.0]}},
            ["processor: Z80 then, {processor} now", "cores: 1 then, {cores} now"],
        ),
        ({"dump": "old"}, ["dump: old then, none now"]),
        ({"trace": "reads"}, ["trace: reads then, none now"]),
        ({"data": "One toy."}, ["data: One toy. then, Two toys. now"]),
        ({"packages": {"numpy": "1"}}, ["numpy: 1 then, {numpy} now"]),
        ({"absent": []}, ["absent: none then, no_such_library now"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_was_otherwise_then(
    change: dict[str, Any], lines: list[str], document: Document
) -> None:
    """Another machine, other data, another version are told though no figure moved."""
    old = {
        name: {**value, **change.get(name, {})} if isinstance(value, dict) else value
        for name, value in document.items()
    }
    old |= {name: value for name, value in change.items() if not isinstance(value, dict)}
    known = document["machine"] | document["packages"]

    assert [line.format(**known) for line in lines] == list_differences(TOY, document, old)


def test_older_results_can_be_compared(document: Document) -> None:
    """One of before dumps were noted is as one without."""
    old = {name: value for name, value in document.items() if name not in ("dump", "trace")}

    assert [] == list_differences(TOY, document, old)
