"""Threads that take turns at each request: a seed says which interleaving it is."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["Turns"]

PATIENCE = 60.0


class Turns:
    """Runs works side by side, of which one goes on at a time; called, it gives the turn away.

    Where a work calls it, by whatever it asks, the seed chooses who goes on. Other threads than
    those of the works pass.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._changed = threading.Condition()
        self._numbers: dict[int, int] = {}
        self._going: list[int] = []
        self._turn = -1

    def __call__(self) -> None:
        """Give the turn to whom the seed chooses; return when it is the caller's again."""
        me = self._numbers.get(threading.get_ident())
        if me is not None:
            with self._changed:
                self._choose()
                self._wait(me)

    def run(self, *works: Callable[[], Any]) -> list[Any]:
        """Return what each work returned, or the exception that it raised."""
        results: list[Any] = [None] * len(works)

        def work(number: int) -> None:
            with self._changed:
                self._numbers[threading.get_ident()] = number
                self._wait(number)
            try:
                results[number] = works[number]()
            except Exception as error:  # noqa: BLE001  the caller looks at it
                results[number] = error
            finally:
                with self._changed:
                    del self._numbers[threading.get_ident()]
                    self._going.remove(number)
                    self._choose()

        self._going = list(range(len(works)))
        self._turn = -1
        threads = [threading.Thread(target=work, args=(number,)) for number in self._going]
        for thread in threads:
            thread.start()
        with self._changed:
            self._choose()
        for thread in threads:
            thread.join()
        return results

    def _choose(self) -> None:
        self._turn = self._random.choice(self._going) if self._going else -1
        self._changed.notify_all()

    def _wait(self, me: int) -> None:
        if not self._changed.wait_for(lambda: self._turn == me, PATIENCE):
            raise TimeoutError("another work waits for this one")
