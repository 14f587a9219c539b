"""`python -m tools.pipeline`, and the processes that it starts."""

import sys

if __name__ == "__main__":
    if sys.argv[1:2] == ["step"]:
        from tools.pipeline import measure

        raise SystemExit(measure.main(sys.argv[2:]))
    from tools.lab import main
    from tools.pipeline.experiment import EXPERIMENT

    raise SystemExit(main(EXPERIMENT))
