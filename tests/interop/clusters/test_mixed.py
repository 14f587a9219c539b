"""Real bookies and ours in one ledger, written by both clients, through kills of both kinds."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import pytest

from bkstore.errors import LedgerFenced
from bkstore.formats.metadata.serialized import decode, encode
from bkstore.ids import LedgerId
from bkstore.network import Client
from tests.interop.clients import FENCED
from tests.interop.clusters.conftest import MakeClient, MakeProcesses
from tests.interop.clusters.processes import BookieProcesses
from tests.interop.clusters.whole_client import WholeClient
from tests.interop.driver import RealError

LEDGER_CLOSED = -11
OURS, REAL = ("ours-0", "ours-1", "ours-2"), ("real-0", "real-1")


class Side(Protocol):
    """A client of either kind, asked alike."""

    def create(self, ensemble: int, write: int, ack: int) -> int:
        """Make a ledger and return its id."""
        ...

    def add(self, ledger: int, payloads: list[bytes]) -> list[int]:
        """Add payloads and return their entry ids."""
        ...

    def recovered(self, ledger: int) -> int:
        """Recover a ledger and return its last entry."""
        ...

    def read(self, ledger: int, last: int) -> list[bytes]:
        """Return all payloads."""
        ...

    def is_fenced(self, ledger: int) -> bool:
        """Return whether the writer is told that it was fenced."""
        ...


@dataclass
class OurSide:
    """Our client."""

    client: Client
    handles: dict[int, Any] = field(default_factory=dict)

    def create(self, ensemble: int, write: int, ack: int) -> int:
        """Make a ledger and return its id."""
        made = self.client.create_ledger(ensemble, write, ack, password=b"pw")
        self.handles[made.id] = made
        return made.id

    def add(self, ledger: int, payloads: list[bytes]) -> list[int]:
        """Add payloads and return their entry ids."""
        return list(self.handles[ledger].append_many(payloads).tolist())

    def recovered(self, ledger: int) -> int:
        """Recover a ledger and return its last entry."""
        return int(self.client.open_ledger(ledger, password=b"pw").last_add_confirmed)

    def read(self, ledger: int, last: int) -> list[bytes]:
        """Return all payloads."""
        reader = self.client.open_ledger(ledger, password=b"pw")
        return [entry.payload for entry in reader.read(0, last)]

    def is_fenced(self, ledger: int) -> bool:
        """Return whether the writer is told that it was fenced."""
        with pytest.raises(LedgerFenced):
            self.handles[ledger].append(b"late")
        return True


@dataclass
class RealSide:
    """The real client."""

    whole: WholeClient

    def create(self, ensemble: int, write: int, ack: int) -> int:
        """Make a ledger and return its id."""
        return self.whole.create(ensemble, write, ack)

    def add(self, ledger: int, payloads: list[bytes]) -> list[int]:
        """Add payloads and return their entry ids."""
        return self.whole.add(ledger, payloads)

    def recovered(self, ledger: int) -> int:
        """Recover a ledger and return its last entry."""
        return int(self.whole.open(ledger, recovery=True)["last"])

    def read(self, ledger: int, last: int) -> list[bytes]:
        """Return all payloads."""
        self.whole.open(ledger, recovery=True)
        return self.whole.read(ledger, 0, last)

    def is_fenced(self, ledger: int) -> bool:
        """Return whether the writer is told that it was fenced."""
        with pytest.raises(RealError) as caught:
            self.whole.add(ledger, [b"late"])
        return caught.value.code in (FENCED, LEDGER_CLOSED)  # by a bookie, or by the metadata


@pytest.fixture(scope="module")
def mixed(processes: MakeProcesses) -> BookieProcesses:
    """Return three bookies of ours and two real ones, each a process, all storages among them."""
    found = processes()
    for name, storage in zip(REAL, ("db", "sorted")):
        found.real(name, storage)
    for name, storage in zip(OURS, ("sorted", "interleaved", "db")):
        found.ours(name, storage)
    found.registered()
    return found


@pytest.fixture(scope="module")
def sides(mixed: BookieProcesses, real_client: MakeClient) -> Iterator[dict[str, Side]]:
    """Yield clients of both kinds: one that writes, another that recovers and reads."""
    with Client(mixed.store) as one, Client(mixed.store) as other:
        yield {
            "ours": OurSide(one),
            "real": RealSide(real_client(mixed.cluster)),
            "our reader": OurSide(other),
            "real reader": RealSide(real_client(mixed.cluster)),
        }


@pytest.fixture(autouse=True)
def all_again(mixed: BookieProcesses) -> Iterator[None]:
    """Have all bookies run when the next test begins."""
    yield
    mixed.all_again()


def _victim(mixed: BookieProcesses, ledger: int, kind: tuple[str, ...]) -> str | None:
    ensemble = mixed.store.read(ledger).metadata.segments[-1].ensemble
    return next((name for name in ensemble if name in kind), None)


@pytest.mark.parametrize("write", [3, 2])
@pytest.mark.parametrize("recoverer", ["our reader", "real reader"])
@pytest.mark.parametrize("writer", ["ours", "real"])
def test_through_failures(
    mixed: BookieProcesses, sides: dict[str, Side], writer: str, recoverer: str, write: int
) -> None:
    """One of ours is killed under the writer's adds, then a real one: all that was acknowledged is
    there after a recovery, for both clients, and the writer can add nothing more."""
    ledger = sides[writer].create(3, write, 2)
    acknowledged: list[bytes] = []
    killed = []
    for kind in (OURS, REAL, ()):
        payloads = [b"%s %d" % (writer.encode(), number) for number in range(300)]
        victim = _victim(mixed, ledger, kind)
        killer = threading.Timer(0.01, mixed.kill, [victim])
        if victim is not None:
            killed.append(victim)
            killer.start()
        first = len(acknowledged)

        assert list(range(first, first + 300)) == sides[writer].add(ledger, payloads)
        acknowledged += payloads
        if victim is not None:
            killer.join()
    last = sides[recoverer].recovered(ledger)

    assert len(acknowledged) - 1 == last
    assert sides[writer].is_fenced(ledger)
    segments = mixed.store.read(ledger).metadata.segments
    assert {*killed} & {*segments[0].ensemble}
    assert not {*killed} & {*segments[-1].ensemble}
    mixed.all_again()
    for reader in ("our reader", "real reader"):
        assert acknowledged == sides[reader].read(ledger, last)


def test_one_kind_only_is_left(mixed: BookieProcesses, sides: dict[str, Side]) -> None:
    """With all real bookies killed, what both kinds of bookies had acknowledged is read by both
    clients from ours alone, W 3."""
    ledger = sides["real"].create(5, 5, 3)
    payloads = [b"%d" % number for number in range(100)]
    sides["real"].add(ledger, payloads)
    for name in REAL:
        mixed.kill(name)

    assert 99 == sides["our reader"].recovered(ledger)
    for reader in ("our reader", "real reader"):
        assert payloads == sides[reader].read(ledger, 99)


def test_metadata_are_the_same(mixed: BookieProcesses, sides: dict[str, Side]) -> None:
    """The bytes of all ledgers' metadata, whoever wrote them last, say the same to both, and both
    would write them so."""
    store, real = mixed.store, mixed.cluster.real
    sides["ours"].create(3, 2, 2)
    whole = sides["real"]
    assert isinstance(whole, RealSide)
    for digest in ("CRC32", "HMAC", "DUMMY"):
        custom = {"application": b"a\0b", "n": digest.encode()}
        whole.whole.create(2, 2, 1, "MAC" if digest == "HMAC" else digest, custom)
        made = Client(store).create_ledger(
            2, 2, 1, digest_type=digest, password=b"pw", custom_metadata=custom
        )
        made.close()
    for name in store.ledgers():
        value = store._nodes.get(store._key_of(name))
        assert value is not None
        said = real.call("read_metadata", ledger=name.ledger, data=value.data.hex())
        found = decode(value.data, name)

        assert value.data.hex() == said.pop("written")
        assert value.data == encode(found, incomplete=True)
        assert said == _said(found, name)


def _said(found: Any, name: LedgerId) -> dict[str, Any]:
    """Return what the real reader would say of metadata as we read them."""
    return {
        "format": found.version,
        "sizes": [found.ensemble_size, found.write_quorum_size, found.ack_quorum_size],
        "state": found.state,
        "last": found.last_entry_id if found.closed else None,
        "length": found.length if found.closed else None,
        "digest": "MAC" if found.digest_type == "HMAC" else found.digest_type,
        "password": found.password.hex(),
        "custom": {key: value.hex() for key, value in found.custom_metadata.items()},
        "segments": [[first, list(members)] for first, members in found.segments],
    }
