"""Brute-force answers of stream look-ups: the rules of the golden data's page, and nothing else.

Works on the JSON form of a world alone; looks at every object for every offset.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Oracle"]

Slice = tuple[str, int, int, int]


class Oracle:
    """All slices of a world by stream, and who owns which offset."""

    def __init__(self, world: dict[str, Any]) -> None:
        self.streams = {one["stream_id"]: one for one in world["streams"]}
        self.slices: dict[int, list[tuple[int | None, Slice]]] = {}
        for node in world["nodes"]:
            for one in node["objects"]:
                for stream, start, end in one["ranges"]:
                    self._add(stream, node["node_id"], ("SSO", one["object_id"], start, end))
        for one in world["stream_objects"]:
            held = ("SO", one["object_id"], one["start"], one["end"])
            self._add(one["stream_id"], None, held)

    def _add(self, stream: int, node: int | None, held: Slice) -> None:
        self.slices.setdefault(stream, []).append((node, held))

    def _owner(self, stream: int, offset: int) -> int | None:
        ranges = self.streams[stream]["ranges"]
        for one in reversed(ranges):
            if one["start"] <= offset and (one is ranges[-1] or offset < one["end"]):
                return int(one["node_id"])
        return None

    def answer(self, stream: int, start: int, end: int, limit: int) -> tuple[str, list[Slice]]:
        """Return (status, objects) by rules 1 to 4."""
        known = self.streams.get(stream)
        if stream < 0 or limit < 0 or (end != -1 and start > end):
            return "invalid", []
        if known is None or start < known["start_offset"]:
            return "invalid", []
        chain: list[Slice] = []
        reached = start
        while start != end and len(chain) < limit and (end == -1 or reached < end or not chain):
            owner = self._owner(stream, reached)
            ahead = [
                held
                for node, held in self.slices.get(stream, [])
                if (node is None or node == owner)
                and (held[2] == reached < held[3] if chain else held[2] <= reached < held[3])
            ]
            if not ahead:
                break
            (held,) = ahead  # of a valid world
            chain.append(held)
            reached = held[3]
        return "ok", chain

    def covered_from(self, stream: int, start: int) -> int:
        """Return how far a chain from `start` reaches if nothing limits it."""
        chain = self.answer(stream, start, -1, 1 << 60)[1]
        return chain[-1][3] if chain else start
