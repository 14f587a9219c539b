"""Entries that clusters lose over years: `bkstore lab losses`. Clusters of the simulation lose
replicas and bookies at given rates, under each policy of repair."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from bkstore.lab.experiment import Experiment, LabRun, Panel, ResultColumn, Row, Rows
from bkstore.lab.simulation.cluster_years import (
    HOURS_PER_YEAR,
    REPAIR_POLICIES,
    RepairPolicy,
    simulate,
)
from bkstore.lab.simulation.loss_formulas import (
    loss_share_of_failed_bookies,
    loss_share_of_lost_replicas,
)
from bkstore.lab.simulation.replicas import ClusterModel

DAY, WEEK, MONTH = 24, 168, 720  # hours
REPAIR_HOURS = (1, DAY, WEEK, MONTH)
QUORUMS = ((3, 2, 2), (5, 2, 2), (3, 3, 2), (5, 3, 2), (3, 3, 3))
FORMULA = "closed formula"
FORMULA_SERIES = ("lost replicas", "failed bookies")
_CLUSTERS, _MIN_CLUSTERS, _MIN_LEDGERS = 100, 10, 4
_PERIODIC: tuple[RepairPolicy, ...] = ("periodic check", "bkstore repair")
_FORMULA_RATE = 0.1  # losses per replica, or failures per bookie, and year: enough to be counted


class _Point(NamedTuple):
    """A simulation: a model, a policy, and the hours between two checks or repairs, None for
    policies that have none."""

    model: ClusterModel
    policy: RepairPolicy
    repair_hours: int | None

    @property
    def given_columns(self) -> Row:
        """The columns of the result that name the point."""
        model = self.model
        quorums = f"{model.ensemble_size}, {model.write_quorum}, {model.ack_quorum}"
        return {"quorums": quorums, "repairs": self.policy, "repair_hours": self.repair_hours}


def _add_options(parser: ArgumentParser) -> None:
    """Declare the options of the simulated clusters."""
    add = parser.add_argument
    add("--years", type=float, default=5.0, help="simulated years (default: 5)")
    add("--bookies", type=int, default=10, help="bookies of a cluster (default: 10)")
    add("--ledgers", type=int, default=100, help="ledgers of a cluster (default: 100)")
    add("--entries", type=int, default=100, help="entries of a ledger (default: 100)")
    add(
        "--loss-rate",
        type=float,
        default=0.002,
        metavar="RATE",
        help="losses per replica and year on bookies in service (default: 0.002)",
    )
    add(
        "--entries-per-loss",
        type=int,
        default=10,
        metavar="N",
        help="entries of a ledger that a bookie loses at once (default: 10)",
    )
    add(
        "--failure-rate",
        type=float,
        default=0.1,
        metavar="RATE",
        help="failures per bookie and year, which take its disks (default: 0.1)",
    )
    add(
        "--copying-hours",
        type=float,
        default=4.0,
        metavar="HOURS",
        help="from a failure until the bookie's replicas are on others (default: 4)",
    )
    add(
        "--short-share",
        type=float,
        default=0.001,
        metavar="SHARE",
        help="share of the entries that have no more replicas than acknowledged (default: 0.001)",
    )


def _make_model(run: LabRun, quorums: tuple[int, int, int]) -> ClusterModel:
    """Return the cluster of the options with these sizes of ensemble, write and ack quorum."""
    options = run.options
    return ClusterModel(
        *quorums,
        bookies=options.bookies,
        ledgers=run.scaled(options.ledgers, minimum=_MIN_LEDGERS),
        entries_per_ledger=options.entries,
        loss_rate=options.loss_rate,
        entries_per_loss=options.entries_per_loss,
        failure_rate=options.failure_rate,
        short_share=options.short_share,
    )


def _simulate_point(run: LabRun, series: str, point: _Point, years: list[float]) -> Iterator[Row]:
    """Simulate a point once, and yield a row for each year of the result: float, ascending."""
    hours = point.repair_hours
    interval = "" if hours is None else f" every {hours} hours"
    run.report_progress(f"{series}: {point.given_columns['quorums']}, {point.policy}{interval}")
    clusters = run.scaled(_CLUSTERS, minimum=_MIN_CLUSTERS)
    record = simulate(
        point.model,
        point.policy,
        years=years[-1],
        repair_hours=point.repair_hours or DAY,
        copying_hours=run.options.copying_hours,
        clusters=clusters,
        seed=run.seed,
    )
    replicas = point.model.entries * point.model.write_quorum
    for year in years:
        yield {
            "series": series,
            **point.given_columns,
            "year": year,
            "clusters": clusters,
            "loss_probability": record.loss_probability(year),
            "lost_entries": record.count_lost(year),
            "lost_share": record.count_lost(year) / point.model.entries,
            "copied": record.copied_replicas / clusters / replicas / years[-1],
        }


def _formula_points(run: LabRun) -> Iterator[tuple[str, _Point, float]]:
    """Yield series, simulations that have a closed formula, and the share of lost entries by it."""
    years = run.options.years
    plain = replace(_make_model(run, (3, 2, 2)), entries_per_loss=1, short_share=0.0)
    losses_only = replace(plain, loss_rate=_FORMULA_RATE, failure_rate=0.0)
    replicas = plain.write_quorum
    for repair_hours in (DAY, WEEK, MONTH, 12 * MONTH):
        interval = repair_hours / HOURS_PER_YEAR
        share = loss_share_of_lost_replicas(replicas, _FORMULA_RATE, years, interval)
        yield "lost replicas", _Point(losses_only, "bkstore repair", repair_hours), share
    share = loss_share_of_lost_replicas(replicas, _FORMULA_RATE, years, repair_interval=None)
    yield "lost replicas", _Point(losses_only, "nothing", None), share
    failures_only = replace(plain, loss_rate=0.0, failure_rate=_FORMULA_RATE)
    share = loss_share_of_failed_bookies(_FORMULA_RATE, years, None)
    yield "failed bookies", _Point(failures_only, "nothing", None), share


def measure(run: LabRun) -> Iterator[Row]:
    """Yield a row for each series, quorums, policy, repair interval and year."""
    years = run.options.years
    steps = [years * step / 10 for step in range(1, 11)]
    formula_points = list(_formula_points(run))
    daily_points = {
        quorums: [
            _Point(_make_model(run, quorums), policy, DAY if policy in _PERIODIC else None)
            for policy in REPAIR_POLICIES
        ]
        for quorums in QUORUMS
    }
    interval_points = [
        _Point(_make_model(run, QUORUMS[0]), policy, hours)
        for policy in _PERIODIC
        for hours in REPAIR_HOURS
    ]
    run.expect_steps(
        len(REPAIR_POLICIES) * (1 + len(QUORUMS)) + len(interval_points) + len(formula_points)
    )
    for point in daily_points[QUORUMS[0]]:
        yield from _simulate_point(run, "years", point, steps)
    for point in chain.from_iterable(daily_points.values()):
        yield from _simulate_point(run, "quorums", point, [years])
    for point in interval_points:
        yield from _simulate_point(run, "interval", point, [years])
    for series, point, formula_share in formula_points:
        for row in _simulate_point(run, series, point, [years]):
            yield row
            yield {
                **dict.fromkeys(row),
                **{name: row[name] for name in ("series", "quorums", "repair_hours", "year")},
                "repairs": FORMULA,
                "lost_share": formula_share,
            }


def _formula_differences(rows: Rows) -> Iterator[float]:
    """Yield by how much the share of lost entries differs from the formula's: 0.1 is 10 % more."""
    # The shares by series and repair interval, and whether the formula gives them (True).
    shares: dict[tuple[str, int | None], dict[bool, float]] = {}
    for row in rows:
        if row["series"] in FORMULA_SERIES:
            by_formula = shares.setdefault((row["series"], row["repair_hours"]), {})
            by_formula[row["repairs"] == FORMULA] = row["lost_share"]
    for by_formula in shares.values():
        yield by_formula[False] / by_formula[True] - 1


def summarize(rows: Rows) -> list[str]:
    """Return the findings, at the end of the simulated years."""
    last_year = max(row["year"] for row in rows)
    at_end = [row for row in rows if row["year"] == last_year]
    end = {row["repairs"]: row for row in at_end if row["series"] == "years"}
    quorums = end["nothing"]["quorums"]
    intervals = {
        (row["repairs"], row["repair_hours"]): row for row in at_end if row["series"] == "interval"
    }
    worst = max(map(abs, _formula_differences(at_end)))
    checked, repaired = end["periodic check"], end["bkstore repair"]
    hourly, monthly = intervals["bkstore repair", 1], intervals["bkstore repair", MONTH]
    return [
        f"E, W, A = {quorums}, {last_year:g} years: a cluster loses "
        f"{end['nothing']['lost_entries']:.1f} entries if nothing is repaired, "
        f"{end['failed bookies']['lost_entries']:.1f} if failed bookies are copied, "
        f"{checked['lost_entries']:.1f} with BookKeeper's check every day, "
        f"{repaired['lost_entries']:.2f} with bkstore repair every day.",
        f"The probability to lose an entry within {last_year:g} years is "
        f"{checked['loss_probability']:.0%} with BookKeeper's check and "
        f"{repaired['loss_probability']:.0%} with bkstore repair; repaired every hour "
        f"{hourly['loss_probability']:.0%}, every month {monthly['loss_probability']:.0%}.",
        f"Repair traffic: BookKeeper's check copies {checked['copied']:.2%} of all replicas a "
        f"year, bkstore repair {repaired['copied']:.2%}.",
        f"Where there is a closed formula, the simulation differs from it by {worst:.0%} at most.",
    ]


EXPERIMENT = Experiment(
    name="losses",
    question="How many entries does a cluster lose over years, and which repair prevents it?",
    method=(
        "A simulation, not a measurement: it does not run the library. Bookies in service lose "
        "replicas, and bookies fail, at random times. An entry is lost when none of its replicas "
        "is left. AutoRecovery copies the replicas of a failed bookie, all of a ledger's segment "
        "or, if one entry is lost, none. BookKeeper's check reads the first and the last entry of "
        "each bookie and segment, and copies the segment if one is missing. bkstore repair writes "
        "every missing replica of which there is another. Probabilities are shares of the "
        "simulated clusters."
    ),
    data=(
        "At scale 1, 100 clusters of 10 bookies and 100 closed ledgers of 100 entries, one segment "
        "each. Rates, sizes and years are options; those used are higher than of most disks, so "
        "that losses are counted."
    ),
    columns=(
        ResultColumn("series", "series", kind="given"),
        ResultColumn("quorums", "E, W, A", kind="given"),
        ResultColumn("repairs", "repairs", kind="given"),
        ResultColumn("repair_hours", "repair interval", "hours", "given"),
        ResultColumn("year", "year", kind="given"),
        ResultColumn("clusters", "clusters", kind="count"),
        ResultColumn("loss_probability", "probability of a loss", kind="count"),
        ResultColumn("lost_entries", "lost entries", "a cluster", "count"),
        ResultColumn("lost_share", "lost entries", "share", "count"),
        ResultColumn("copied", "copied replicas", "share a year", "count"),
    ),
    panels=(
        Panel(
            "Probability of a loss, repair every day",
            "year",
            "loss_probability",
            "repairs",
            {"series": "years"},
        ),
        Panel(
            "Lost entries by repair interval",
            "repair_hours",
            "lost_entries",
            "repairs",
            {"series": "interval"},
            log="xy",
        ),
        Panel(
            "Lost entries by quorums",
            "quorums",
            "lost_entries",
            "repairs",
            {"series": "quorums"},
            log="y",
        ),
        Panel("Repair traffic by quorums", "quorums", "copied", "repairs", {"series": "quorums"}),
        Panel(
            "Simulated and by the closed formula",
            "repair_hours",
            "lost_share",
            "repairs",
            {"series": "lost replicas"},
            log="xy",
        ),
    ),
    measure=measure,
    summarize=summarize,
    add_options=_add_options,
)
