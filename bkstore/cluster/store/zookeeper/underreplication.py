"""Underreplicated ledgers, for auditors and replication workers: marks, locks, votes, settings.

A mark states that a ledger lacks entries, and on which bookies. A worker locks the ledger by an
ephemeral node with its host's name, copies, and removes the mark unless it has changed meanwhile.
Source: `meta/ZkLedgerUnderreplicationManager`, `meta/ZkLedgerAuditorManager`.
"""

from __future__ import annotations

import random
import re
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Literal, NamedTuple

from bkstore.cluster.store.zookeeper.connection import RetriedRequest
from bkstore.cluster.store.zookeeper.kazoo_client import NodeExistsError, NoNodeError
from bkstore.cluster.store.zookeeper.nodes import Nodes
from bkstore.errors import (
    BadVersion,
    CorruptionError,
    IllegalOperation,
    MetadataUnavailable,
    UnsupportedLayout,
)
from bkstore.formats.metadata.bookie_ids import check_bookie_id
from bkstore.formats.metadata.underreplication import (
    BASIC_LAYOUT,
    UnderreplicatedMark,
    decode_check_time,
    decode_delay,
    decode_holder,
    decode_mark,
    encode_check_time,
    encode_delay,
    encode_holder,
    encode_mark,
    lock_path,
    mark_path,
    parse_mark_path,
)
from bkstore.former_names import with_former_members
from bkstore.ids import LedgerId

CheckTime = Literal["checkallledgersctime", "placementpolicycheckctime", "replicascheckctime"]
"""The checks of an auditor: the names of the nodes that have their last times."""

_ROOT_KEY = "/underreplication"
_MARKS_KEY = f"{_ROOT_KEY}/ledgers"
_ELECTION_KEY = f"{_ROOT_KEY}/auditorelection"
_DISABLE_KEY = f"{_ROOT_KEY}/disable"
_VOTE_PATTERN = re.compile(r"V_(-?[0-9]{10,11})")
_REPAIR_KEY = f"{_ROOT_KEY}/bkstore-repair"
_DELAY_KEY = f"{_ROOT_KEY}/lostBookieRecoveryDelay"


class LedgerLock(NamedTuple):
    """A worker's lock of a ledger. `version` is of its mark; None if that was not read."""

    ledger: LedgerId
    version: int | None
    session: int | None


class Vote(NamedTuple):
    """A bookie's vote in the auditor election: its node, and the bookie."""

    path: str
    bookie: str


@with_former_members(done="mark_replicated")
class Underreplication:
    """The folder ``underreplication`` of a cluster. `now` returns unix seconds. The first change
    raises `UnsupportedLayout` if the folder has another layout."""

    def __init__(self, nodes: Nodes, now: Callable[[], float] = time.time) -> None:
        self._nodes = nodes
        self._ask = nodes.connection.request
        self._now = now
        self._has_layout = False
        self._unreleased: set[str] = set()  # locks of which it is not known that they have ended

    # -- marks

    def mark(
        self, ledger: int | LedgerId, bookies: Iterable[str] = (), *, timed: bool = True
    ) -> bool:
        """Mark a ledger, or add bookies to its mark; return whether anything was written. The
        mark's time is when the last bookie was added; without `timed` it stays as it was."""
        self.create_layout()
        key, new_bookies = mark_path(ledger), list(dict.fromkeys(bookies))
        while True:
            current = self._nodes.get(key)
            mark = None if current is None else self._decode_mark_at(key, current.data)
            known_bookies = () if mark is None else mark.missing_bookies
            added_bookies = [bookie for bookie in new_bookies if bookie not in known_bookies]
            if mark is not None and not added_bookies:
                return False
            former_time = None if mark is None else mark.marked_at
            marked_at = self._now() if timed else former_time
            new_mark = UnderreplicatedMark(marked_at, (*known_bookies, *added_bookies))
            with suppress(BadVersion):  # of another client's change: try again
                self._nodes.put(key, encode_mark(new_mark), current and current.version)
                return True

    def _decode_mark_at(self, key: str, data: bytes) -> UnderreplicatedMark:
        try:
            return decode_mark(data)
        except CorruptionError as error:
            raise error.relocate(self._nodes.location_of(key)) from None

    # -- workers

    def lock_any(self) -> LedgerLock | None:
        """Lock a random marked ledger that is not locked; None if there is none."""
        mark_paths = self._nodes.keys(f"{_MARKS_KEY}/")
        marked_ledgers = list(filter(None, map(parse_mark_path, mark_paths)))
        random.shuffle(marked_ledgers)
        for ledger_id in marked_ledgers:
            # read before locking, so that `mark_replicated` keeps a mark that changed since
            mark_value = self._nodes.get(mark_path(ledger_id))
            if mark_value is not None and self._create_lock(ledger_id):
                return LedgerLock(ledger_id, mark_value.version, self._nodes.connection.session)
        return None

    def lock(self, ledger: int | LedgerId, *, read_mark: bool = False) -> LedgerLock | None:
        """Lock a ledger, marked or not; return None if another worker has locked it. With
        `read_mark` its mark is read first, so that `mark_replicated` can remove it."""
        ledger_id = LedgerId.of(ledger)
        mark_value = self._nodes.get(mark_path(ledger_id)) if read_mark else None
        if not self._create_lock(ledger_id):
            return None
        version = None if mark_value is None else mark_value.version
        return LedgerLock(ledger_id, version, self._nodes.connection.session)

    def _create_lock(self, ledger: LedgerId) -> bool:
        """Create a ledger's lock; return False if another session, or an earlier call, has it."""
        self.create_layout()
        return self._create_holder(self._nodes.location_of(lock_path(ledger)))

    def _create_holder(self, path: str) -> bool:
        """Create an ephemeral node with this host's name; return False if there is one."""
        request = RetriedRequest(self._nodes.connection, path)
        while True:
            try:
                request("create", encode_holder(socket.gethostname()), ephemeral=True)
            except NodeExistsError:
                # After a broken connection the node may be from an earlier attempt, or from a lock
                # that could not be released.
                may_be_own = request.repeated or path in self._unreleased
                if not (may_be_own and self._is_own_node(path)):
                    return False
            except NoNodeError:
                self._nodes.make_folder(path.rpartition("/")[0])
                continue
            except MetadataUnavailable:  # it may have been created
                self._unreleased.add(path)
                raise
            self._unreleased.discard(path)
            return True

    def _delete_holder(self, path: str) -> None:
        """Delete an ephemeral node of this session, if it exists."""
        try:
            if self._is_own_node(path):
                with suppress(NoNodeError):
                    self._ask(path, "delete")
        except MetadataUnavailable:
            self._unreleased.add(path)
            raise
        self._unreleased.discard(path)

    def _is_own_node(self, path: str) -> bool:
        stat = self._ask(path, "exists")
        return stat is not None and bool(stat.ephemeralOwner == self._nodes.connection.session)

    def mark_replicated(self, lock: LedgerLock) -> bool:
        """Remove the mark of a ledger that was copied, then its lock; return whether it had one.

        Returns False, and leaves the mark, if it has changed since the lock. Raises
        `IllegalOperation` if the lock ended with its session: another worker may have the ledger.
        """
        self.check_held(lock)
        removed = False
        if lock.version is not None:  # else `lock` took it without reading the mark
            with suppress(BadVersion):
                removed = self._nodes.delete(mark_path(lock.ledger), lock.version)
        self.release(lock)
        return removed

    def release(self, lock: LedgerLock) -> None:
        """Unlock a ledger; its mark stays. A lock that does not exist any more is no error. If the
        server does not answer, the next call that locks the ledger takes the lock over."""
        self._delete_holder(self._nodes.location_of(lock_path(lock.ledger)))

    def check_held(self, lock: LedgerLock) -> None:
        """Raise `IllegalOperation` if a lock was lost with its session."""
        path = self._nodes.location_of(lock_path(lock.ledger))
        if not self._is_own_node(path) or lock.session != self._nodes.connection.session:
            raise IllegalOperation(f"{path}: the lock was lost with its session")

    def holder(self, ledger: int | LedgerId) -> str | None:
        """Return the host name of the worker that has locked a ledger; None if none has."""
        return self._nodes.read(lock_path(ledger), decode_holder)

    # -- repairs by bkstore

    def lock_repairs(self) -> bool:
        """Take the lock of repairs, of which one at a time runs in a cluster (`bkstore.repair`);
        return False if another session, or an earlier call, has it. It ends with the session. The
        node is bkstore's own; BookKeeper does not read it."""
        self.create_layout()
        return self._create_holder(self._nodes.location_of(_REPAIR_KEY))

    def release_repairs(self) -> None:
        """End the lock of repairs; one that does not exist any more is no error. If the server does
        not answer, the next `lock_repairs` takes it over."""
        self._delete_holder(self._nodes.location_of(_REPAIR_KEY))

    def repairs_holder(self) -> str | None:
        """Return the host name of the process that has the lock of repairs; None if none has."""
        return self._nodes.read(_REPAIR_KEY, decode_holder)

    # -- settings

    def create_layout(self) -> None:
        """Create the folder with its layout if it is missing; sends no requests after that."""
        if self._has_layout:
            return
        for folder in ("ledgers", "locks"):
            self._nodes.make_folder(f"{self._nodes.root}{_ROOT_KEY}/{folder}")
        key = f"{_ROOT_KEY}/LAYOUT"
        layout = self._nodes.get(key)
        if layout is None:
            try:
                self._nodes.put(key, BASIC_LAYOUT, None)
            except BadVersion:  # another client has created it meanwhile
                layout = self._nodes.get(key)
        if layout is not None and layout.data != BASIC_LAYOUT:
            message = f"{self._nodes.location_of(key)}: unsupported layout {layout.data[:60]!r}"
            raise UnsupportedLayout(message)
        self._has_layout = True

    @property
    def enabled(self) -> bool:
        """Whether replication is enabled."""
        return self._nodes.get(_DISABLE_KEY) is None

    def enable(self) -> None:
        """Enable replication. Idempotent."""
        self._nodes.delete(_DISABLE_KEY, None)

    def disable(self) -> None:
        """Disable replication; raises `IllegalOperation` if it is disabled."""
        self.create_layout()
        try:
            self._nodes.create(_DISABLE_KEY, b"")
        except BadVersion:
            raise IllegalOperation("replication is disabled already") from None

    def recovery_delay(self) -> int | None:
        """Return how long auditors wait for a lost bookie, in seconds; None = never set."""
        return self._nodes.read(_DELAY_KEY, decode_delay)

    def set_recovery_delay(self, seconds: int) -> None:
        """Set how long auditors wait for a lost bookie."""
        self.create_layout()
        self.overwrite(_DELAY_KEY, encode_delay(seconds))

    def check_time(self, check: CheckTime) -> int:
        """Return when a check last ended, in milliseconds; -1 = never."""
        time_of_check = self._nodes.read(f"{_ROOT_KEY}/{check}", decode_check_time)
        return -1 if time_of_check is None else time_of_check

    def set_check_time(self, check: CheckTime, milliseconds: int) -> None:
        """Store when a check ended; -1 = never."""
        self.create_layout()
        self.overwrite(f"{_ROOT_KEY}/{check}", encode_check_time(milliseconds))

    def overwrite(self, key: str, data: bytes) -> None:
        """Write a value regardless of the version that is there."""
        path = self._nodes.location_of(key)
        while True:
            try:
                self._ask(path, "set", data)
            except NoNodeError:
                try:
                    self._nodes.create(key, data)
                except BadVersion:
                    continue
            return

    # -- auditor election

    def vote(self, bookie: str) -> Vote:
        """Vote in the auditor election; `elected` returns whether the vote has won."""
        self.create_layout()
        self._nodes.make_folder(self._nodes.location_of(_ELECTION_KEY))
        while True:
            vote = self._create_vote(bookie)
            if self._settle_vote(vote) is not None:  # else the session ended meanwhile: vote again
                return vote

    def _create_vote(self, bookie: str) -> Vote:
        """Create a vote, the only one of this bookie and session."""
        folder = self._nodes.location_of(_ELECTION_KEY)
        data = encode_holder(check_bookie_id(bookie))
        request = RetriedRequest(self._nodes.connection, f"{folder}/V_")
        vote = Vote(request("create", data, ephemeral=True, sequence=True), bookie)
        if request.repeated:  # withdraw a vote of an earlier attempt: it would win unnoticed
            for name in self._list_votes():
                older = Vote(f"{folder}/{name}", bookie)
                value = self._nodes.get(f"{_ELECTION_KEY}/{name}")
                is_own = value is not None and value.data == data and self._is_own_node(older.path)
                if is_own and older != vote:
                    self.withdraw(older)
        return vote

    def elected(self, vote: Vote) -> bool:
        """Return whether the vote is the oldest. The first such call for a vote also writes its
        bookie to the election's node, as BookKeeper does, even if that bookie is there already.
        Raises `IllegalOperation` if the vote ended with its session, or was withdrawn."""
        won = self._settle_vote(vote)
        if won is None:
            raise IllegalOperation(f"{vote.path}: the vote has disappeared")
        return won

    def _settle_vote(self, vote: Vote) -> bool | None:
        """Return whether the vote has won, None if it is gone. If it has, write its bookie to the
        election's node, unless it was written there after the vote was created."""
        folder, name = vote.path.rsplit("/", 1)
        try:
            winner, winner_stat = self._ask(folder, "get")
            vote_stat = self._ask(vote.path, "get")[1]
        except NoNodeError:
            return None
        # Listed last: the vote still existed after the other reads.
        votes = self._list_votes()
        if name not in votes:
            return None
        has_won, data = name == votes[0], encode_holder(vote.bookie)
        # Transaction ids of ZooKeeper grow. If the last change of the election's node was before
        # this vote was created, it was for an earlier vote.
        was_written_before = winner_stat.mzxid < vote_stat.czxid
        if has_won and (winner != data or was_written_before):
            self.overwrite(_ELECTION_KEY, data)
        return has_won

    def withdraw(self, vote: Vote) -> None:
        """Withdraw a vote; one that does not exist any more is no error."""
        with suppress(NoNodeError):
            self._ask(vote.path, "delete")

    def auditor(self) -> str | None:
        """Return the bookie whose vote is the oldest, None if there is none."""
        keys = (f"{_ELECTION_KEY}/{name}" for name in self._list_votes())
        holders = (self._nodes.read(key, decode_holder) for key in keys)
        return next((holder for holder in holders if holder is not None), None)

    def _list_votes(self) -> list[str]:
        """Return the names of the votes' nodes, oldest first."""
        try:
            names = self._ask(self._nodes.location_of(_ELECTION_KEY), "get_children")
        except NoNodeError:
            return []
        votes = (match for match in map(_VOTE_PATTERN.fullmatch, names) if match)
        return [match[0] for match in sorted(votes, key=lambda match: int(match[1]))]
