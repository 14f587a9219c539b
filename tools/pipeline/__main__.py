"""`python -m tools.pipeline`."""

import sys

from tools.pipeline.run import main

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
