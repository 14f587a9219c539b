"""Clients of a cluster's bookies that note what they are asked, and can fail before it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from bkstore.cluster import Cluster

__all__ = ["Calls"]

_ABOUT_BYTES = ("add_entry", "add_batch", "read_entry", "read_entries", "read_many")


class Calls:
    """`clients` by bookie; `made` are the calls so far, (bookie, method, arguments).

    `before` is called with bookie and method, and may raise what the call is to raise.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.made: list[tuple[str, str, tuple[Any, ...]]] = []
        self.bytes = 0
        """Bytes of records that reads returned."""
        self.by_caller = 0
        """Calls by the main thread."""
        self.before: Callable[[str, str], object] = lambda bookie, method: None
        self._lock = threading.Lock()
        self.clients: dict[str, Any] = {
            name: _Watched(self, name, cluster.bookies[name]) for name in cluster.bookies
        }

    def of(self, bookie: str, *methods: str) -> list[str]:
        """Return the methods that were called of a bookie, in order; only these, if given."""
        called = [method for name, method, _ in self.made if name == bookie]
        return [method for method in called if not methods or method in methods]

    def note(self, bookie: str, method: str, arguments: tuple[Any, ...]) -> None:
        """Take note of a call."""
        with self._lock:
            self.made.append((bookie, method, arguments))
            self.by_caller += threading.current_thread() is threading.main_thread()
        self.before(bookie, method)


class _Watched:
    def __init__(self, calls: Calls, bookie: str, inner: Any) -> None:
        self._calls, self._inner = calls, inner
        self.bookie_id = bookie
        for method in _ABOUT_BYTES:
            setattr(self, method, self._noting(method))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _noting(self, method: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self._calls.note(self.bookie_id, method, arguments)
            answer = getattr(self._inner, method)(*arguments, **options)
            if method in ("read_entries", "read_many"):
                self._calls.bytes += int(answer.sizes.sum())
            return answer

        return call
