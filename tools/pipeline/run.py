"""The command: worlds, steps in processes, tables of what they took."""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tools.pipeline.measure import in_a_process, run_step
from tools.pipeline.other_programs import ASKED
from tools.pipeline.steps import SPARKS, STEPS
from tools.pipeline.world import opened_world

__all__ = ["main"]

MIB = 1 << 20


def _wanted(engines: Sequence[str], only: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    for engine in engines:
        for step in STEPS[engine]:
            if not only or step in only:
                yield engine, step


def _table(document: dict[str, Any]) -> str:
    lines = [
        "| step | engine | first | seconds | CPU | million entries a second | peak MiB |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in sorted(document["steps"], key=lambda found: found["step"]):
        if "error" in each:
            lines.append(f"| {each['step']} | {each['engine']} | {each['error']} | | | | |")
            continue
        first, *later = each["seconds"]
        best = min(later, default=first)
        spent = min(each["cpu"][1:], default=each["cpu"][0])
        count = document["entries"] if "load" not in each["step"] else each["rows"]
        times = f"{first:.2f} | {best:.2f} | {spent:.2f}"
        figures = f"{times} | {count / best / 1e6:.2f} | {each['peak'] // MIB}"
        lines.append(f"| {each['step']} | {each['engine']} | {figures} |")
    return "\n".join(lines)


def _side_by_side(found: list[dict[str, Any]]) -> str:
    """Return a table of a row a step: every engine's best seconds, and what they come to."""
    best: dict[str, dict[str, float]] = {}
    below: dict[str, int] = {}
    for each in (one for one in found if "error" not in one):
        times = best.setdefault(each["step"], {})
        times[each["engine"]] = min(each["seconds"][1:], default=each["seconds"][0])
        if each["engine"] in SPARKS:
            below[each["step"]] = max(below.get(each["step"], 0), each["below"])
    lines = [
        "| step | local | spark | spark / local | one executor | two | one / two "
        "| duckdb | DuckDB was asked | workers + JVM, MiB |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for step, times in sorted(best.items()):
        cells = [
            _shown(times.get("local")),
            _shown(times.get("spark")),
            _shown(times.get("spark"), times.get("local")),
            _shown(times.get("one executor")),
            _shown(times.get("two executors")),
            _shown(times.get("one executor"), times.get("two executors")),
            _shown(times.get("duckdb")),
            ASKED[step] if "duckdb" in times else "",
            str(below[step] // MIB) if step in below else "",
        ]
        lines.append(f"| {step} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _shown(seconds: float | None, by: float | None = 1.0) -> str:
    return "" if seconds is None or by is None else f"{seconds / by:.2f}"


@contextmanager
def _tidied() -> Iterator[None]:
    """Remove the folder that local-cluster leaves in the installed package."""
    found = find_spec("pyspark")
    work = Path(found.origin).parent / "work" if found is not None and found.origin else None
    there = work is None or work.exists()
    try:
        yield
    finally:
        if work is not None and not there:
            shutil.rmtree(work, ignore_errors=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.pipeline")
    parser.add_argument("entries", type=int, help="rows of all three bookies together")
    parser.add_argument("--ledgers", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engines", default="local,spark,duckdb,polars,write batch")
    parser.add_argument("--only", default="", help="steps, with commas between them")
    parser.add_argument("--world", type=Path, help="where the data go and stay (default: scratch)")
    parser.add_argument("--json", type=Path, help="where the figures go")
    return parser


def _chosen(parser: argparse.ArgumentParser, args: argparse.Namespace) -> list[tuple[str, str]]:
    engines = args.engines.split(",")
    if "polars" in engines and find_spec("polars") is None:
        engines.remove("polars")  # compared if it is installed
    only = args.only.split(",") if args.only else []
    unknown = [each for each in engines if each not in STEPS]
    unknown += [each for each in only if not any(each in of for of in STEPS.values())]
    if unknown:
        parser.error(f"no engine or step {unknown[0]!r}: there are {', '.join(STEPS)}")
    return list(_wanted(engines, only))


def main(words: list[str]) -> int:
    """Measure, write JSON, print the tables."""
    if words[:1] == ["step"]:
        engine, name, place, rounds = words[1:]
        print(json.dumps(run_step(engine, name, Path(place), int(rounds))))
        return 0
    from bkstore.files.user_outputs import write_output

    parser = _parser()
    args = parser.parse_args(words)
    wanted = _chosen(parser, args)
    with tempfile.TemporaryDirectory(prefix="bkstore-pipeline-") as scratch, _tidied():
        top = args.world or Path(scratch)
        rows = opened_world(top, args.entries, args.ledgers)
        found = [in_a_process(*each, top, args.rounds) for each in wanted]
    document = {"entries": rows, "ledgers": args.ledgers, "steps": found}
    if args.json is not None:
        write_output(args.json, json.dumps(document, indent=1).encode())
    print(f"{_table(document)}\n\n{_side_by_side(found)}")
    return int(any("error" in each for each in found))
