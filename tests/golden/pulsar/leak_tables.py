"""The table `leaked_ledgers` of a golden world, compared with what the world states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bkstore.ids import LedgerId
from bkstore.offline import analyses
from bkstore.offline.analyses import ANALYSES, Engine, Options, PulsarMetadata
from tests.golden.pulsar.worlds import OWNER_FIELDS, read_ledgers, world_nodes, world_store
from tests.worlds.random_dumps import DumpWorld, write_dump

_HIDDEN = ("referenced", "unreferenced-young")
_DELETABLE = ("leaked", "offloaded-copy")
_BOOKIES = ("b1", "b2")


def check_leaked_ledgers(engine: Engine, world: dict[str, Any], out: Path) -> None:
    """Run the analysis by an engine on a dump of two bookies, on which two ledgers share each log:
    every ledger that is shown has the class, the owner and the bytes of the world. Of a topic
    whose value is garbage nothing is a leak, and the garbage is a finding."""
    truth = {int(number): facts for number, facts in world["ledgers"].items()}
    garbage = (world["undecodable"] or "").removeprefix("/managed-ledgers/")
    doubtful = {
        n for n, facts in truth.items() if garbage and facts.get("managed_ledger") == garbage
    }
    pairs = _pair_ledgers(world)
    table = _run(engine, world, _write_logs(pairs, out))
    rows = {row["ledger_id"]: row for row in table.to_pylist()}

    assert table.num_rows == len(rows)
    assert {row["class"] for number, row in rows.items() if number in doubtful} <= {"undetermined"}

    certain = truth.keys() - doubtful
    classes = {n: truth[n]["class"] for n in certain if truth[n]["class"] not in _HIDDEN}
    assert classes == {n: row["class"] for n, row in rows.items() if n not in doubtful}

    deletable = {number for number, row in rows.items() if row["class"] in _DELETABLE}
    for number, row in rows.items():
        if row["class"] != "unknown-owner":
            stated = {field: truth[number].get(field) for field in OWNER_FIELDS}
            assert stated == {field: row[field] for field in OWNER_FIELDS}, (world["seed"], row)
        size = len(_BOOKIES) * _size_of(number) if row["class"] != "dangling" else 0
        goes = any(number in pair and deletable.issuperset(pair) for pair in pairs)
        assert (size, size * goes) == (row["bytes"], row["removable_bytes"]), (world["seed"], row)


def _run(engine: Engine, world: dict[str, Any], dump: Path) -> Any:
    """Return the table of a world, after a look at the findings about its nodes."""
    pulsar = PulsarMetadata(world_nodes(world))
    options = Options(grace=world["grace_ms"], as_of=world["now_ms"])
    inputs = analyses.open_inputs(dump, world_store(world), None, options, pulsar)
    table = engine.run(ANALYSES["leaked_ledgers"], inputs)
    garbage = [world["undecodable"]] if world["undecodable"] else []

    assert garbage == [finding.file for finding in pulsar.findings]

    return table


def _size_of(number: int) -> int:
    return 100 + number % 97


def _pair_ledgers(world: dict[str, Any]) -> list[tuple[int, ...]]:
    """Return the ledgers that BookKeeper has, two by two."""
    stored = sorted(metadata.ledger.ledger for metadata in read_ledgers(world))
    return [tuple(stored[start : start + 2]) for start in range(0, len(stored), 2)]


def _write_logs(pairs: list[tuple[int, ...]], out: Path) -> Path:
    """Write a dump in which each bookie has an entry log for each pair; return its path."""
    dump = DumpWorld(held={bookie: {} for bookie in _BOOKIES})
    for bookie in _BOOKIES:
        for log, pair in enumerate(pairs):
            sizes = {LedgerId.of(number): _size_of(number) for number in pair}
            dump.logs[bookie, 0, log] = (1024 + sum(sizes.values()), True, sizes)
    return write_dump(dump, out)
