"""Versioned values in memory."""

from __future__ import annotations

import threading

from bkstore.cluster.store.api import Value
from bkstore.errors import BadVersion


def check_version(key: str, actual: int | None, expected: int | None) -> None:
    """Raise `BadVersion` unless the version `actual` is `expected`; None = no such key."""
    if actual != expected:
        actual_text = "does not exist" if actual is None else f"has version {actual}"
        expected_text = (
            "but should not exist" if expected is None else f"version {expected} was expected"
        )
        raise BadVersion(f"{key} {actual_text}, {expected_text}")


class MemoryValues:
    """`KeyValues` in a dict under a lock; `keys` is O(n log n), the rest O(1)."""

    def __init__(self) -> None:
        self._values: dict[str, Value] = {}
        self._lock = threading.Lock()

    def get(self, key: str) -> Value | None:
        """As `KeyValues.get`."""
        return self._values.get(key)

    def put(self, key: str, data: bytes, expected: int | None) -> int:
        """Store a value and return its version. Raises `BadVersion` unless the stored version is
        `expected` (None: there is no value)."""
        with self._lock:
            current = self._values.get(key)
            check_version(key, None if current is None else current.version, expected)
            version = 0 if current is None else current.version + 1
            self._values[key] = Value(bytes(data), version)
        return version

    def delete(self, key: str, expected: int | None) -> bool:
        """Remove a key; return whether it was there. Raises `BadVersion` unless its version is
        `expected` (None: any)."""
        with self._lock:
            current = self._values.get(key)
            if current is None:
                return False
            if expected is not None:
                check_version(key, current.version, expected)
            del self._values[key]
        return True

    def keys(self, prefix: str) -> list[str]:
        """As `KeyValues.keys`."""
        with self._lock:
            matching_keys = [key for key in self._values if key.startswith(prefix)]
        return sorted(matching_keys)

    def location_of(self, key: str) -> str:
        """Return the key itself."""
        return key
