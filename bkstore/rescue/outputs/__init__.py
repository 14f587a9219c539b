"""Where rescued ledgers go: a `RescueOutput` for each form.

`folders` writes a folder for each ledger, `parquet_files` one table of all entries; both leave out
headers and digests, as `payloads` reads them. `bookie_directories` writes the directories of new
bookies, `placement` says which, and `registration` makes them known to a metadata store.
`running_cluster` sends the ledgers to running bookies.
"""

from bkstore.rescue.outputs.bookie_directories import BookieDirectoriesOutput
from bkstore.rescue.outputs.folders import FolderOutput
from bkstore.rescue.outputs.parquet_files import ParquetOutput
from bkstore.rescue.outputs.running_cluster import RunningClusterOutput

__all__ = ["BookieDirectoriesOutput", "FolderOutput", "ParquetOutput", "RunningClusterOutput"]
