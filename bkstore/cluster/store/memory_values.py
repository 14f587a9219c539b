"""Versioned values in memory."""

from __future__ import annotations

import threading

from bkstore.cluster.store.api import Value
from bkstore.errors import BadVersion


def check_version(key: str, found: int | None, expected: int | None) -> None:
    """Raise `BadVersion` unless `found` is `expected`; None = not there."""
    if found != expected:
        there = "is not there" if found is None else f"has version {found}"
        wanted = "none was to be there" if expected is None else f"version {expected} was meant"
        raise BadVersion(f"{key} {there}, {wanted}")


class MemoryValues:
    """`KeyValues` in a dict under a lock; `keys` is O(n log n), the rest O(1)."""

    def __init__(self) -> None:
        self._values: dict[str, Value] = {}
        self._lock = threading.Lock()

    def get(self, key: str) -> Value | None:
        """As `KeyValues.get`."""
        return self._values.get(key)

    def put(self, key: str, data: bytes, expected: int | None) -> int:
        """As `KeyValues.put`."""
        with self._lock:
            there = self._values.get(key)
            check_version(key, None if there is None else there.version, expected)
            version = 0 if there is None else there.version + 1
            self._values[key] = Value(bytes(data), version)
        return version

    def delete(self, key: str, expected: int | None) -> bool:
        """As `KeyValues.delete`."""
        with self._lock:
            there = self._values.get(key)
            if there is None:
                return False
            if expected is not None:
                check_version(key, there.version, expected)
            del self._values[key]
        return True

    def keys(self, prefix: str) -> list[str]:
        """As `KeyValues.keys`."""
        with self._lock:
            found = [key for key in self._values if key.startswith(prefix)]
        return sorted(found)

    def where(self, key: str) -> str:
        """Return the key itself."""
        return key
