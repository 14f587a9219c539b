"""Loads and waves of stream look-ups by strategy: `python -m tools.lookups`.

Three series: over the length of a node's list, over the number of streams, over the rate of
false positives. A world each, all on one node, 5 to 15 streams in an object; random look-ups of
up to 4 objects, asked twice: the first time warms index and filters up. The reader answers at
once, so that the times are those of the search itself. JSON first; the picture is drawn from it.
"""

from __future__ import annotations

import argparse
import io
import json
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bkstore.files.user_outputs import write_output
from bkstore.streams import STRATEGIES, ImageReader, ObjectFilters, StreamImage, StreamLookup
from bkstore.testing.stream_worlds import WorldShape, random_queries, stream_image

__all__ = ["draw", "main", "measure"]

FORMAT = "bkstore-lookups/1"
CLAIM = {"objects": 500, "streams": 300}


class Size(NamedTuple):
    """How much is measured."""

    lengths: tuple[int, ...]
    streams: tuple[int, ...]
    rates: tuple[float, ...]
    queries: int
    objects: int
    claim_queries: int


SIZES = {
    "tiny": Size((10, 20), (10, 20), (0.5, 0.01), 10, 20, 12),
    "small": Size((50, 100, 200, 400), (40, 100, 300), (0.5, 0.1, 0.01), 80, 200, 390),
    "large": Size(
        (50, 100, 200, 500, 1000, 2000),
        (40, 100, 300, 1000),
        (0.5, 0.2, 0.1, 0.03, 0.01, 0.001),
        200,
        500,
        390,
    ),
}


def _world(objects: int, streams: int, seed: int) -> StreamImage:
    shape = WorldShape(nodes=1, streams=streams, per_object=(5, 15), alone=0.0, lost=0.0, moved=0.0)
    return stream_image(shape, objects, seed)


def _run(
    image: StreamImage, strategy: Any, queries: Sequence[tuple[int, int, int, int]], fpp: float
) -> dict[str, Any]:
    """Return what the queries cost the first time and, index and filters kept, again."""
    row: dict[str, Any] = {"strategy": strategy, "queries": len(queries), "fpp": fpp}
    filters = ObjectFilters(fpp=fpp)
    with StreamLookup(image, ImageReader(image), strategy, filters=filters) as lookup:
        for turn in ("first", "again"):
            results = [lookup.get_objects(*query).stats for query in queries]
            row[turn] = {
                "loads": statistics.mean(one.loads for one in results),
                "waves": statistics.mean(one.waves for one in results),
                "refusals": statistics.mean(one.filter_refusals for one in results),
                "false_positives": statistics.mean(one.filter_false_positives for one in results),
                "seconds": statistics.median(one.seconds for one in results),
            }
        row["filter_bytes"] = lookup.stats["filter_bytes"]
    return row


def _series(
    name: str, points: Sequence[dict[str, Any]], queries: int, seed: int
) -> list[dict[str, Any]]:
    rows = []
    for point in points:
        print(f"{name} {point} ...", file=sys.stderr)
        image = _world(point["objects"], point["streams"], seed)
        asked = random_queries(image, queries, seed)
        for strategy in point.get("strategies", STRATEGIES):
            row = _run(image, strategy, asked, point.get("fpp", 0.01))
            rows.append({"series": name, **_shape(point), **row})
    return rows


def _shape(point: dict[str, Any]) -> dict[str, int]:
    return {name: point[name] for name in ("objects", "streams")}


def measure(size: Size, seed: int) -> list[dict[str, Any]]:
    """Return a row for each series, point and strategy; the claim's world comes last."""
    ratio = 3 / 5  # streams to objects, as in the claim's world
    lengths = [{"objects": n, "streams": max(15, int(n * ratio))} for n in size.lengths]
    streams = [{"objects": size.objects, "streams": n} for n in size.streams]
    rates = [
        {**_shape(streams[-1]), "fpp": fpp, "strategies": ("index", "bloom")} for fpp in size.rates
    ]
    return [
        *_series("length", lengths, size.queries, seed),
        *_series("streams", streams, size.queries, seed),
        *_series("rate", rates, size.queries, seed),
        *_series("claim", [CLAIM], size.claim_queries, seed),
    ]


def _claims(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the figures of the claim's world, of the second turn."""
    warm = {row["strategy"]: row["again"] for row in rows if row["series"] == "claim"}
    bloom, sparse = warm["bloom"], warm["sparse-index"]
    return {
        "load_all_loads_per_bloom_load": warm["load-all"]["loads"] / bloom["loads"],
        "sparse_index_loads_per_bloom_load": sparse["loads"] / bloom["loads"],
        "bloom_waves": bloom["waves"],
        "bloom_milliseconds": bloom["seconds"] * 1e3,
        "sparse_index_milliseconds": sparse["seconds"] * 1e3,
    }


# -- what is shown


def _print(document: dict[str, Any]) -> None:
    names = "series", "objects", "streams", "fpp", "strategy", "loads", "waves", "refused", "ms"
    print(("{:>8} {:>7} {:>7} {:>6}  {:<13}" + "{:>9}" * 4).format(*names))
    for row in document["rows"]:
        warm = row["again"]
        print(
            f"{row['series']:>8} {row['objects']:>7} {row['streams']:>7} {row['fpp']:>6}  "
            f"{row['strategy']:<13}{warm['loads']:>9.1f}{warm['waves']:>9.2f}"
            f"{warm['refusals']:>9.1f}{warm['seconds'] * 1e3:>9.3f}"
        )
    claims = document["claims"]
    print(
        f"\n{CLAIM['objects']} objects, {CLAIM['streams']} streams, warm: bloom needs "
        f"{claims['load_all_loads_per_bloom_load']:.0f}x fewer loads than load-all, "
        f"{claims['bloom_waves']:.2f} waves on average, "
        f"{claims['bloom_milliseconds']:.2f} ms a look-up; sparse-index "
        f"{claims['sparse_index_milliseconds']:.2f} ms (readers that answer at once)"
    )


_PANELS = (("length", "objects", "objects of the node"), ("streams", "streams", "streams"))
_COLOURS = dict(zip(STRATEGIES, ("#555555", "#d95f02", "#1b9e77", "#7570b3", "#e7298a", "#0868ac")))


def draw(document: dict[str, Any], target: Path) -> None:
    """Draw a document's series: loads above, waves below; an SVG."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    mpl.rcParams.update({"svg.hashsalt": "bkstore", "font.size": 11})
    figure, axes = plt.subplots(2, 3, figsize=(15, 8.5), layout="constrained")
    for column, (series, field, label) in enumerate(_PANELS):
        rows = [row for row in document["rows"] if row["series"] == series]
        for line, cost in enumerate(("loads", "waves")):
            axis = axes[line][column]
            for strategy in STRATEGIES:
                own = [row for row in rows if row["strategy"] == strategy]
                axis.plot(
                    [row[field] for row in own],
                    [max(row["again"][cost], 0.05) for row in own],
                    marker="o",
                    color=_COLOURS[strategy],
                    label=strategy,
                )
            axis.set(xscale="log", yscale="log", xlabel=label, ylabel=f"{cost} a look-up")
            axis.set_xticks([row[field] for row in own], [str(row[field]) for row in own])
            axis.minorticks_off()
            axis.grid(alpha=0.3)
    _draw_rates(document, axes[0][2], axes[1][2])
    lines, names = axes[0][0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside upper center", ncols=len(STRATEGIES), frameon=False)
    drawn = io.BytesIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    write_output(target, drawn.getvalue())
    plt.close(figure)


def _draw_rates(document: dict[str, Any], loads: Any, room: Any) -> None:
    rows = [row for row in document["rows"] if row["series"] == "rate"]
    for strategy in ("index", "bloom"):
        own = [row for row in rows if row["strategy"] == strategy]
        rates = [row["fpp"] for row in own]
        costs = [row["again"]["loads"] for row in own]
        loads.plot(rates, costs, marker="o", color=_COLOURS[strategy])
    room.plot(rates, [row["filter_bytes"] for row in own], marker="o", color=_COLOURS["bloom"])
    loads.set(ylabel="loads a look-up", ylim=(0, None))
    room.set(ylabel="bytes of all filters", ylim=(0, None))
    for axis in (loads, room):
        axis.set(xscale="log", xlabel="wanted rate of false positives")
        axis.set_xticks(rates, [str(rate) for rate in rates])
        axis.minorticks_off()
        axis.grid(alpha=0.3)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.lookups", description="Loads and waves of look-ups by strategy."
    )
    parser.add_argument("--size", choices=SIZES, default="small", help="default: small, some 40 s")
    parser.add_argument("--seed", type=int, default=20260801)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result here")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw it here")
    parser.add_argument(
        "--read", type=Path, metavar="FILE", help="draw and print this result, measure nothing"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, or read a result; print it; write and draw it where asked."""
    given = sys.argv[1:] if argv is None else list(argv)
    arguments = _parser().parse_args(given)
    if arguments.read is not None:
        document = json.loads(arguments.read.read_text())
    else:
        begin = time.perf_counter()
        rows = measure(SIZES[arguments.size], arguments.seed)
        document = {
            "format": FORMAT,
            "command": shlex.join(["python", "-m", "tools.lookups", *given]),
            "python": platform.python_version(),
            "machine": platform.machine(),
            "seed": arguments.seed,
            "claims": _claims(rows),
            "rows": rows,
            "seconds": time.perf_counter() - begin,
        }
    if arguments.json is not None:
        write_output(arguments.json, (json.dumps(document, indent=1) + "\n").encode())
    if arguments.svg is not None:
        draw(document, arguments.svg)
    _print(document)
    return 0


if __name__ == "__main__":
    sys.exit(main())
