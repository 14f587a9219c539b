"""`python -m tools.pipeline`, and the processes that it starts."""

import sys

if __name__ == "__main__":
    if sys.argv[1:2] == ["step"]:
        from tools.pipeline.step_process import main as run_step

        raise SystemExit(run_step(sys.argv[2:]))
    from bkstore.lab import main
    from tools.pipeline.experiment import EXPERIMENT

    raise SystemExit(main(EXPERIMENT))
