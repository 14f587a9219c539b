"""Where rescued ledgers go: a `RescueOutput` for each form.

`folders` writes a folder for each ledger, `parquet_files` one table of all entries; both leave out
headers and digests, as `payloads` reads them.
"""

from bkstore.rescue.outputs.folders import FolderOutput
from bkstore.rescue.outputs.parquet_files import ParquetOutput

__all__ = ["FolderOutput", "ParquetOutput"]
