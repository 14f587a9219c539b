"""`python -m tests.interop.own_tests STORAGE|real [CLASS...]`: a line a test, counts at the end.

`real` runs the classes as they are, with BookKeeper's own bookies: the control. Without classes all
of `classes.txt` are run. What the tests say is kept in a folder below TMPDIR, which is named.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import cast

from tests.interop.own_tests.peer import Storage, control, listed, missing, on_ours


def _tell(*words: str) -> None:
    sys.stdout.write("  ".join(words).rstrip() + "\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    """Run classes and return 1 if a test failed."""
    if (reason := missing()) is not None or not arguments:
        sys.stderr.write(f"{reason or __doc__}\n")
        return 2
    kind, *names = arguments
    folder = Path(tempfile.mkdtemp(prefix="own-tests-"))
    _tell(f"logs are in {folder}")
    counts: Counter[str] = Counter()
    for name in names or listed():
        if kind == "real":
            results = control(name, folder / kind)
        else:
            results = on_ours(name, cast(Storage, kind), folder / kind, folder / "bookie")
        for result in results:
            counts[result.status] += 1
            _tell(result.status, result.test, result.detail)
        counts["classes without a test"] += not results
    _tell(", ".join(f"{count} {status.lower()}" for status, count in sorted(counts.items())))
    return int(counts["FAILED"] + counts["ENDED"] > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
