"""Underreplicated ledgers as auditors and workers use them: marks, locks, votes, settings.

A mark says that a ledger lacks entries, and on which bookies. A worker locks it by an ephemeral
node, copies, and removes the mark if nobody has marked it again since. Source:
`meta/ZkLedgerUnderreplicationManager`, `meta/ZkLedgerAuditorManager`.
"""

from __future__ import annotations

import random
import re
import socket
import time
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

from bkstore.cluster.store.zookeeper.connection import Request
from bkstore.cluster.store.zookeeper.kazoo_client import NodeExistsError, NoNodeError
from bkstore.cluster.store.zookeeper.nodes import Nodes
from bkstore.errors import BadVersion, CorruptionError, IllegalOperation, UnsupportedLayout
from bkstore.formats.metadata.serialized import Mark, decode_mark, encode_mark
from bkstore.formats.metadata.service_info import check_bookie_id
from bkstore.formats.metadata.store_paths import mark_path, parse_mark_path
from bkstore.formats.metadata.underreplication import (
    BASIC_LAYOUT,
    decode_check_time,
    decode_delay,
    decode_holder,
    encode_check_time,
    encode_delay,
    encode_holder,
    lock_path,
)
from bkstore.ids import LedgerId

CheckTime = Literal["checkallledgersctime", "placementpolicycheckctime", "replicascheckctime"]
"""The checks of an auditor, by the names of the nodes that keep when they last ended."""

_TOP = "/underreplication"
_MARKS = f"{_TOP}/ledgers"
_ELECTION = f"{_TOP}/auditorelection"
_DISABLE = f"{_TOP}/disable"
_VOTE = re.compile(r"V_(-?[0-9]{10,11})")
_DELAY = f"{_TOP}/lostBookieRecoveryDelay"


class Lock(NamedTuple):
    """A ledger that a worker has taken. `version` is its mark's; None if it was not looked at."""

    ledger: LedgerId
    version: int | None
    session: int | None


class Vote(NamedTuple):
    """A bookie's vote in the auditors' election: its node, and who votes."""

    path: str
    bookie: str


class Underreplication:
    """The folder ``underreplication`` of a cluster. `now` gives unix seconds.

    Raises `UnsupportedLayout` at the first change where the folder has another layout.
    """

    def __init__(self, nodes: Nodes, now: Callable[[], float] = time.time) -> None:
        self._nodes = nodes
        self._ask = nodes.connection.ask
        self._now = now
        self._prepared = False

    # -- marks

    def mark(
        self, ledger: int | LedgerId, bookies: Iterable[str] = (), *, timed: bool = True
    ) -> bool:
        """Mark a ledger, or add bookies to its mark; return whether anything was written.

        The time is that of the last bookie that came to it; none is kept without `timed`.
        """
        self.prepare()
        key, wanted = mark_path(ledger), list(dict.fromkeys(bookies))
        while True:
            there = self._nodes.get(key)
            since = self._now() if timed else None
            try:
                if there is None:
                    self._nodes.put(key, encode_mark(Mark(since, tuple(wanted))), None)
                    return True
                known = self._decoded(key, there.data)
                more = [name for name in wanted if name not in known.missing_bookies]
                if not more:
                    return False
                whole = (*known.missing_bookies, *more)
                since = since if timed else known.marked_at
                self._nodes.put(key, encode_mark(Mark(since, whole)), there.version)
            except BadVersion:
                continue
            return True

    def _decoded(self, key: str, data: bytes) -> Mark:
        try:
            return decode_mark(data)
        except CorruptionError as error:
            raise error.within(self._nodes.where(key)) from None

    # -- workers

    def take(self) -> Lock | None:
        """Lock a marked ledger that nobody has, at random; None if there is none."""
        marked = [name for name in map(parse_mark_path, self._nodes.keys(f"{_MARKS}/")) if name]
        random.shuffle(marked)
        for name in marked:
            there = self._nodes.get(mark_path(name))
            if there is not None and self._locked(name):
                return Lock(name, there.version, self._nodes.connection.session)
        return None

    def lock(self, ledger: int | LedgerId) -> Lock | None:
        """Lock a ledger, marked or not; None if another has it. Its mark is not removed by it."""
        name = LedgerId.of(ledger)
        return Lock(name, None, self._nodes.connection.session) if self._locked(name) else None

    def _locked(self, ledger: LedgerId) -> bool:
        self.prepare()
        path = self._nodes.where(lock_path(ledger))
        request = Request(self._nodes.connection, path)
        while True:
            try:
                request("create", encode_holder(socket.gethostname()), ephemeral=True)
            except NodeExistsError:
                # After a broken connection the node may be that of an earlier try.
                return request.repeated and self._is_own(path)
            except NoNodeError:
                self._nodes.make_folder(path.rpartition("/")[0])
                continue
            return True

    def _is_own(self, path: str) -> bool:
        stat = self._ask(path, "exists")
        return stat is not None and bool(stat.ephemeralOwner == self._nodes.connection.session)

    def done(self, lock: Lock) -> bool:
        """Remove the mark of a ledger that was copied, then its lock.

        False, and the mark stays, if it was marked again since it was taken. Raises
        `IllegalOperation` if the lock went with its session: another may have the ledger.
        """
        self._check_held(lock)
        removed = False
        if lock.version is not None:
            try:
                removed = self._nodes.delete(mark_path(lock.ledger), lock.version)
            except BadVersion:
                removed = False
        self.release(lock)
        return removed

    def release(self, lock: Lock) -> None:
        """Give a ledger back; its mark stays. A lock that is gone already is no error."""
        path = self._nodes.where(lock_path(lock.ledger))
        if self._is_own(path):
            try:
                self._ask(path, "delete")
            except NoNodeError:
                return

    def _check_held(self, lock: Lock) -> None:
        path = self._nodes.where(lock_path(lock.ledger))
        if not self._is_own(path) or lock.session != self._nodes.connection.session:
            raise IllegalOperation(f"{path}: the lock went with its session")

    def holder(self, ledger: int | LedgerId) -> str | None:
        """Return who has locked a ledger, by host name; None if nobody has."""
        return self._holder(lock_path(ledger))

    def _holder(self, key: str) -> str | None:
        value = self._nodes.get(key)
        try:
            return None if value is None else decode_holder(value.data)
        except CorruptionError as error:
            raise error.within(self._nodes.where(key)) from None

    # -- settings

    def prepare(self) -> None:
        """Make the folder with its layout where it is not there; costs nothing the next time."""
        if self._prepared:
            return
        for folder in ("ledgers", "locks"):
            self._nodes.make_folder(f"{self._nodes.root}{_TOP}/{folder}")
        key = f"{_TOP}/LAYOUT"
        there = self._nodes.get(key)
        if there is None:
            try:
                self._nodes.put(key, BASIC_LAYOUT, None)
            except BadVersion:
                there = self._nodes.get(key)
        if there is not None and there.data != BASIC_LAYOUT:
            raise UnsupportedLayout(f"{self._nodes.where(key)}: {there.data[:60]!r} is not known")
        self._prepared = True

    @property
    def enabled(self) -> bool:
        """Whether workers may copy."""
        return self._nodes.get(_DISABLE) is None

    def enable(self) -> None:
        """Let workers copy; where they may, nothing changes."""
        self._nodes.delete(_DISABLE, None)

    def disable(self) -> None:
        """Let no worker copy; `IllegalOperation` if that is so already."""
        self.prepare()
        try:
            self._nodes.create(_DISABLE, b"")
        except BadVersion:
            raise IllegalOperation("replication is disabled already") from None

    def recovery_delay(self) -> int | None:
        """Return how long auditors wait for a lost bookie, in seconds; None = never set."""
        value = self._nodes.get(_DELAY)
        try:
            return None if value is None else decode_delay(value.data)
        except CorruptionError as error:
            raise error.within(self._nodes.where(_DELAY)) from None

    def set_recovery_delay(self, seconds: int) -> None:
        """Have auditors wait so long for a lost bookie."""
        self.prepare()
        self.overwrite(_DELAY, encode_delay(seconds))

    def check_time(self, check: CheckTime) -> int:
        """Return when a check last ended, in milliseconds; -1 = never."""
        key = f"{_TOP}/{check}"
        value = self._nodes.get(key)
        try:
            return -1 if value is None else decode_check_time(value.data)
        except CorruptionError as error:
            raise error.within(self._nodes.where(key)) from None

    def set_check_time(self, check: CheckTime, milliseconds: int) -> None:
        """Keep when a check ended; -1 = never."""
        self.prepare()
        self.overwrite(f"{_TOP}/{check}", encode_check_time(milliseconds))

    def overwrite(self, key: str, data: bytes) -> None:
        """Write a value over whatever is there."""
        path = self._nodes.where(key)
        while True:
            try:
                self._ask(path, "set", data)
            except NoNodeError:
                try:
                    self._nodes.create(key, data)
                except BadVersion:
                    continue
            return

    # -- the auditor

    def vote(self, bookie: str) -> Vote:
        """Stand for auditor; `elected` tells who it is."""
        self.prepare()
        self._nodes.make_folder(self._nodes.where(_ELECTION))
        while True:
            made = self._voted(bookie)
            if self._won(made) is not None:  # else the session ended meanwhile
                return made

    def _voted(self, bookie: str) -> Vote:
        """Make a vote, the only one of this bookie and session."""
        folder = self._nodes.where(_ELECTION)
        data = encode_holder(check_bookie_id(bookie))
        request = Request(self._nodes.connection, f"{folder}/V_")
        made = Vote(request("create", data, ephemeral=True, sequence=True), bookie)
        if request.repeated:  # an earlier try's would win, and nobody know of it
            for name in self._votes():
                older = Vote(f"{folder}/{name}", bookie)
                value = self._nodes.get(f"{_ELECTION}/{name}")
                mine = value is not None and value.data == data and self._is_own(older.path)
                if mine and older != made:
                    self.withdraw(older)
        return made

    def elected(self, vote: Vote) -> bool:
        """Return whether the vote is the oldest; then the election's own node says so too.

        That node is written once a vote that wins, by the same bookie again too, as upstream.
        Raises `IllegalOperation` if the vote went with its session, or was taken back.
        """
        won = self._won(vote)
        if won is None:
            raise IllegalOperation(f"{vote.path}: the vote is gone")
        return won

    def _won(self, vote: Vote) -> bool | None:
        folder, name = vote.path.rsplit("/", 1)
        try:
            there, written = self._ask(folder, "get")
            made = self._ask(vote.path, "get")[1]
        except NoNodeError:
            return None
        votes = self._votes()  # last, for the vote to be there at the end
        if name not in votes:
            return None
        data = encode_holder(vote.bookie)
        if name == votes[0] and (there != data or written.mzxid < made.czxid):
            self.overwrite(_ELECTION, data)
        return name == votes[0]

    def withdraw(self, vote: Vote) -> None:
        """Take a vote back; one that is gone already is no error."""
        try:
            self._ask(vote.path, "delete")
        except NoNodeError:
            return

    def auditor(self) -> str | None:
        """Return the bookie whose vote is the oldest, None if there is none."""
        holders = (self._holder(f"{_ELECTION}/{name}") for name in self._votes())
        return next((holder for holder in holders if holder is not None), None)

    def _votes(self) -> list[str]:
        try:
            names = self._ask(self._nodes.where(_ELECTION), "get_children")
        except NoNodeError:
            return []
        votes = (found for found in map(_VOTE.fullmatch, names) if found)
        return [found[0] for found in sorted(votes, key=lambda found: int(found[1]))]
