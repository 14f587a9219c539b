"""`python -m bkstore`: the command line, as `bkstore` runs it."""

import sys

from bkstore.cli.main import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
