"""The command line that all experiments have: measure or read again, print, save, draw, compare."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bkstore.errors import BkstoreError, InvalidArgument
from bkstore.files.user_outputs import check_output, write_output
from bkstore.report.charts import require_matplotlib
from tools.lab.comparison import differences
from tools.lab.document import Document, keep, kept, made, read, save
from tools.lab.experiment import Experiment, Run
from tools.lab.page import page
from tools.lab.picture import drawn
from tools.lab.table import markdown, print_document

_OWN_DATA = {
    "dump": ("DIR", "a dump's entries as data"),
    "trace": ("FILE", "recorded reads as one more order of reading"),
}


def main(experiment: Experiment, words: Sequence[str] | None = None) -> int:
    """Run an experiment's command line; 2 for what cannot be read or written.

    1 if a row has an `error` in place of figures, 0 otherwise.
    """
    given = sys.argv[1:] if words is None else list(words)
    parser = _parser(experiment)
    options = parser.parse_args(given)
    try:
        old = _checked(experiment, options)
        if options.read is not None:
            document = read(experiment, options.read)
        else:
            document = _measured(experiment, options, given)
        if options.json is not None:
            save(document, options.json)
        if options.into is not None:
            keep(experiment, document, options.into)
        _printed(experiment, options, document, old)
        if options.picture is not None:
            write_output(options.picture, _picture(experiment, document, options.picture.suffix))
    except BkstoreError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    return int(any(row.get("error") for row in document["rows"]))


def _checked(experiment: Experiment, options: argparse.Namespace) -> Document | None:
    """Refuse what could not be done once all is measured; return the result to compare with."""
    given = [name for name in _OWN_DATA if getattr(options, name) is not None]
    for name in given:
        if name not in experiment.takes:
            raise InvalidArgument(f"--{name}: {experiment.name} takes none")
    if len(given) > 1:
        raise InvalidArgument("--dump and --trace both say what the data are: one of them, please")
    if options.picture is not None:
        require_matplotlib()
    kept_as = None if options.into is None else options.into / f"{experiment.name}.json"
    for target in (options.json, options.picture, kept_as):
        if target is not None:
            check_output(target)
    if options.into is not None:
        list(kept(experiment, options.into))
    return None if options.compare is None else read(experiment, options.compare)


def _printed(
    experiment: Experiment, options: argparse.Namespace, document: Document, old: Document | None
) -> None:
    if options.markdown:
        print(markdown(document["columns"], document["rows"], experiment.parted))
    else:
        print_document(document, experiment.parted)
    if old is not None:
        print(f"\nagainst {old['command']} ({old['made']}):")
        lines = differences(experiment, document, old) or ["nothing moved"]
        print(*(f"  {line}" for line in lines), sep="\n")


def _measured(
    experiment: Experiment, options: argparse.Namespace, words: Sequence[str]
) -> Document:
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix=f"bkstore-{experiment.name}-") as top:
        run = Run(
            Path(top),
            options.scale,
            options.seed,
            rounds=options.rounds,
            dump=options.dump,
            trace=options.trace,
            options=options,
        )
        rows = list(experiment.measure(run))
    return made(experiment, run, rows, words, time.perf_counter() - begin)


def _picture(experiment: Experiment, document: Document, suffix: str) -> bytes:
    if suffix == ".html":
        return page(document, drawn(experiment, document, "svg"), experiment.parted)
    return drawn(experiment, document, "png" if suffix == ".png" else "svg")


def _picture_path(text: str) -> Path:
    path = Path(text)
    if path.suffix not in (".svg", ".html", ".png"):
        raise argparse.ArgumentTypeError(f"{text}: a picture ends with .svg, .html or .png")
    return path


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: no number") from None
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: not above 0")
    return value


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: no whole number") from None


def _rounds(text: str) -> int:
    if _whole(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: not 1 or more")
    return _whole(text)


def _seed(text: str) -> int:
    if _whole(text) < 0:
        raise argparse.ArgumentTypeError(f"{text}: below 0")
    return _whole(text)


def _parser(experiment: Experiment) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m tools.{experiment.name}",
        description=f"{experiment.question} {experiment.method}",
    )
    add = parser.add_argument
    add(
        "--scale",
        "--size",
        type=_positive,
        default=1.0,
        help="times the usual amount of data (default: 1)",
    )
    add("--seed", type=_seed, default=20260801, help="of all that is random (default: %(default)s)")
    add("--rounds", type=_rounds, default=5, help="medians are of so many (default: %(default)s)")
    for name, (metavar, said) in _OWN_DATA.items():
        told = said if name in experiment.takes else argparse.SUPPRESS
        add(f"--{name}", type=Path, metavar=metavar, help=told)
    add("--json", type=Path, metavar="FILE", help="write the result here")
    add("--into", type=Path, metavar="DIR", help="add it to these results, in place of older rows")
    add("--picture", type=_picture_path, metavar="FILE", help="draw it here: .svg, .html or .png")
    add("--markdown", action="store_true", help="print the tables as a page has them")
    add("--from", dest="read", type=Path, metavar="JSON", help="take this result, measure nothing")
    add("--compare", type=Path, metavar="JSON", help="say what differs from this earlier result")
    if experiment.add_options is not None:
        experiment.add_options(parser)
    return parser
