"""An ensemble on loopback: a real ZooKeeper and bookies, each a process of its own.

`ensemble` has `Ensemble`, which starts, kills and stops them: read it first. `bookie_process` is
one bookie, `process_group` lets all processes end with the one that started them, `state_file` is
what the directory of an ensemble says of it, while it runs and for the next start. `from_outside`
is what another process does with it by its directory: look, stop, remove; `background` starts
`bkstore ensemble up` as a process that stays. `factory` makes ensembles for tests.
"""

from bkstore.testing.ensemble.bookie_process import BookieProcess
from bkstore.testing.ensemble.ensemble import Ensemble

__all__ = ["BookieProcess", "Ensemble"]
