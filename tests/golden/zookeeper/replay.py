"""The recorded requests of real processes, led through the store's own calls, an actor a store."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from bkstore.cluster import ZooKeeperStore
from bkstore.cluster.store.zookeeper.registration import Registration
from bkstore.cluster.store.zookeeper.underreplication import LedgerLock, Underreplication, Vote
from bkstore.errors import BadVersion, LedgerExists, NoSuchLedger
from bkstore.formats import cookie
from bkstore.formats.metadata.serialized import decode
from bkstore.formats.metadata.service_info import decode_service_info
from bkstore.formats.metadata.underreplication import (
    decode_check_time,
    decode_holder,
    decode_mark,
    parse_mark_path,
)
from bkstore.ids import LedgerId
from bkstore.testing.zookeeper_server import ZooKeeperServer
from tests.golden.zookeeper.real_clusters import manager, raw

__all__ = ["Replay"]

CHANGES = ("create", "setData", "delete")


class Replay:
    """The actors of a recording, each with a store of its own below `top`."""

    def __init__(self, server: ZooKeeperServer, top: str, document: Any) -> None:
        self.top, self.root = top, document["root"]
        self.uri = server.uri(f"{top}{self.root}", manager(document))
        self.stores: dict[str, ZooKeeperStore] = {}
        self.registrations: dict[tuple[str, str], Registration] = {}
        self.votes: dict[str, Vote] = {}
        self.done: set[str] = set()

    def store(self, actor: str) -> ZooKeeperStore:
        """Return an actor's store."""
        if actor not in self.stores:
            self.stores[actor] = ZooKeeperStore(self.uri)
        return self.stores[actor]

    def raw(self, actor: str) -> Any:
        """Return the kazoo client of an actor's store, for what is done by hand."""
        return raw(self.store(actor))

    def path(self, key: str) -> str:
        """Return the path of a node below the ledgers root."""
        return self.top + self.root + key

    def close(self, actor: str) -> None:
        """End an actor's session."""
        if actor in self.stores:
            self.stores.pop(actor).close()
        self.registrations = {key: r for key, r in self.registrations.items() if key[0] != actor}

    def stage(self, stage: Any, *, sessions_only: bool = False) -> None:
        """Do what was done in a step; `sessions_only` = only end the sessions that it ended."""
        changes = ("closeSession",) if sessions_only else (*CHANGES, "closeSession")
        requests = [each for each in stage["requests"] if each["op"] in changes]
        for at, each in enumerate(requests):
            if each["op"] == "closeSession":
                self.close(each["actor"])
                continue
            later = [other["path"] for other in requests[at + 1 :] if "path" in other]
            self._request(each, later)

    def _request(self, each: Any, later: list[str]) -> None:
        path = each["path"].removeprefix(self.root)
        data = bytes.fromhex(each.get("data_hex") or "")
        for pattern, work in self._rules():
            found = re.fullmatch(pattern, path)
            if found:
                if path.endswith("/ID-") and each["path"].removesuffix("/ID-") in later[:1]:
                    return  # its folder was not there: it comes once more
                with suppress(LedgerExists, NoSuchLedger, BadVersion):
                    work(each, found[1], data)
                return

    def _rules(self) -> list[tuple[str, Callable[[Any, str, bytes], object]]]:
        return [
            (r"((?:/[0-9]+)*/L[0-9]{4,10})", self._ledger),
            (r"(|/idgen|/idgen-long/HOB-[0-9]+)/ID-", self._id),
            (r"/cookies/(.+)", self._cookie),
            (r"/available/(readonly/.+|(?!readonly).+)", self._bookie),
            (r"(/underreplication/ledgers.*/urL[0-9]+)", self._mark),
            (r"/underreplication/locks/urL([0-9]+)", self._lock),
            (r"/underreplication/(auditorelection.*)", self._election),
            (r"/underreplication/(.+ctime)", self._check_time),
            (r"/underreplication/(disable|lostBookieRecoveryDelay|LAYOUT)", self._setting),
        ]

    def _ledger(self, each: Any, path: str, data: bytes) -> None:
        store = self.store(each["actor"])
        name = store._tree.parse_path(path)
        assert name is not None
        if each["op"] == "create":
            store.create(decode(data, name))
        elif each["op"] == "setData":
            store.write(decode(data, name), each["version"])
        else:
            store.delete(name, None if each["version"] == -1 else each["version"])

    def _id(self, each: Any, path: str, data: bytes) -> None:
        self.store(each["actor"]).next_id()

    def _cookie(self, each: Any, bookie: str, data: bytes) -> None:
        self.store(each["actor"]).write_cookie(bookie, cookie.decode(data))

    def _bookie(self, each: Any, name: str, data: bytes) -> None:
        read_only, bookie = name.startswith("readonly/"), name.removeprefix("readonly/")
        there = self.registrations.get((each["actor"], bookie))
        if each["op"] != "create":
            return  # the old node goes when the new one is made
        if there is None:
            self.register(each["actor"], bookie, data, read_only)
        else:
            there.set_read_only(read_only)

    def register(self, actor: str, bookie: str, data: bytes, read_only: bool = False) -> None:
        """Register a bookie through an actor's store."""
        info = decode_service_info(data, bookie)
        made = self.store(actor).register(bookie, info, read_only=read_only)
        self.registrations[actor, bookie] = made

    def _mark(self, each: Any, path: str, data: bytes) -> None:
        store, name = self.store(each["actor"]), parse_mark_path(path)
        assert name is not None
        if each["op"] == "delete":
            session = store._connection.session
            store.underreplication.mark_replicated(LedgerLock(name, each["version"], session))
            self.done.discard(path)
            return
        mark = decode_mark(data)
        marks = Underreplication(store._nodes, now=lambda: mark.marked_at or 0.0)
        if path in self.done and each["op"] == "create":
            return  # that was there already, or came once more behind its folders
        self.done.add(path)
        marks.mark(name, mark.missing_bookies, timed=mark.marked_at is not None)

    def _lock(self, each: Any, ledger: str, data: bytes) -> None:
        marks = self.store(each["actor"]).underreplication
        if each["op"] == "create":
            assert marks.lock(int(ledger)) is not None
        else:
            marks.release(LedgerLock(LedgerId.of(int(ledger)), None, None))

    def _election(self, each: Any, path: str, data: bytes) -> None:
        marks, actor = self.store(each["actor"]).underreplication, each["actor"]
        if each["op"] == "setData":
            assert marks.elected(self.votes[actor])
        elif each["op"] == "delete":
            marks.withdraw(self.votes[actor])
        elif path.endswith("V_"):
            self.votes[actor] = marks.vote(decode_holder(data))

    def _check_time(self, each: Any, check: Any, data: bytes) -> None:
        marks = self.store(each["actor"]).underreplication
        marks.set_check_time(check, decode_check_time(data))

    def _setting(self, each: Any, name: str, data: bytes) -> None:
        marks = self.store(each["actor"]).underreplication
        if name == "LAYOUT":
            marks.create_layout()
        elif name == "disable":
            (marks.disable if each["op"] == "create" else marks.enable)()
        elif each["op"] == "setData" or marks.recovery_delay() is None:
            marks.set_recovery_delay(int(data))  # an auditor leaves one that is there
