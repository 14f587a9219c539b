"""A sanity test of a bookie that serves: a ledger of its own is written, read and deleted.

Source: `tools/cli/commands/bookie/SanityTestCommand`, with its ledger: one bookie, ten entries.
"""

from __future__ import annotations

from bkstore.cluster.client.client import Client
from bkstore.cluster.store.api import MetadataStore
from bkstore.errors import CorruptionError
from bkstore.network.advertised import means_any
from bkstore.wire.client import WireClient
from bkstore.wire.sasl import SaslUser
from bkstore.wire.server import BookieServer

_TIMEOUT = 5.0
_PAYLOADS = [f"entry-{number}".encode() for number in range(10)]


def check_sanity(
    store: MetadataStore,
    server: BookieServer,
    *,
    timeout: float = _TIMEOUT,
    sasl: SaslUser | None = None,
) -> None:
    """Write a ledger of a cluster on this bookie alone, over a connection, read and delete it.

    `sasl` is the user that it authenticates as, where the server asks for one. Raises what goes
    wrong, `CorruptionError` where other payloads come back. The ledger's metadata go in any case,
    as far as the store is there; its entries are garbage then.
    """
    bookie, address = server.bookie.bookie_id, server.address
    host = address.host
    if means_any(host):
        host = "::1" if ":" in host else "127.0.0.1"
    place = host, address.port
    with WireClient(place, timeout=timeout, sasl=sasl, bookie_id=bookie) as wire:
        only = frozenset({bookie})
        client = Client(store, {bookie: wire}, writable=lambda _: only)
        writer = client.create_ledger(1, 1, 1, digest_type="MAC")
        try:
            writer.append_many(_PAYLOADS)
            writer.close()
            reader = client.open_ledger(writer.ledger)
            found = [entry.payload for entry in reader.read(0, len(_PAYLOADS) - 1)]
        finally:
            client.delete_ledger(writer.ledger)
    if found != _PAYLOADS:
        raise CorruptionError(
            str(writer.ledger), 0, f"{found!r:.200} were read for what was written"
        )
