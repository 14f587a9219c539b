"""The memtable beside threads: what the conformance suite, being single, cannot see."""

from __future__ import annotations

import sys
import threading

import pytest

from bkstore import InvalidArgument
from bkstore.index.memtable import MemtableIndex


def test_puts_beside_reads_are_kept() -> None:
    """No put is lost while another thread merges and reads."""
    index, total, stop = MemtableIndex(), 60_000, threading.Event()

    def read() -> None:
        while not stop.is_set():
            index.entries(7)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    reader = threading.Thread(target=read)
    reader.start()
    try:
        for entry in range(total):
            index.put(7, entry, 1028)
    finally:
        stop.set()
        reader.join()
        sys.setswitchinterval(before)

    assert total == index.entries(7).size


@pytest.mark.parametrize(("entry", "location"), [(1.5, 9), (1, 7.9), ("1", 9)])
def test_no_float_is_cut(entry: int, location: int) -> None:
    """An entry id or location that is no integer is refused, not cut to one."""
    with pytest.raises(InvalidArgument, match="is not an integer"):
        MemtableIndex().put(7, entry, location)
