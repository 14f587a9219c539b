"""An ensemble on loopback: a real ZooKeeper and bookies, each a process of its own.

`ensemble` has `Ensemble`, which starts, kills and stops them: read it first. `bookie_process` is
one bookie, `zookeeper` the ZooKeeper that an ensemble runs or finds; `process_group` ends all
processes with the one that started them; `state_file` keeps an ensemble's state in its directory,
for other processes and for the next start. `stop_and_remove` lets another process stop or
remove an ensemble, given its directory, and `bookies_elsewhere` see and change the condition of its
bookies, as in the `process_table`. `faults` has the faults and the files by which bookies get them,
`faulty_process` what they do in the bookie's process. `background` starts `bkstore ensemble up` as
a background process. `factory` makes ensembles for tests.
"""

from bkstore.testing.ensemble.bookie_process import BookieProcess
from bkstore.testing.ensemble.ensemble import Ensemble

__all__ = ["BookieProcess", "Ensemble"]
