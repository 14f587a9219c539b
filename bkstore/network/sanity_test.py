"""A sanity test of a bookie that serves. Source: `tools/cli/commands/bookie/SanityTestCommand`."""

from __future__ import annotations

from bkstore.cluster.client.client import Client
from bkstore.cluster.store.api import MetadataStore
from bkstore.errors import CorruptionError
from bkstore.network.advertised_endpoint import is_wildcard_host
from bkstore.wire.client import WireClient
from bkstore.wire.sasl import SaslUser
from bkstore.wire.server import BookieServer

_TIMEOUT_SECONDS = 5.0
_PAYLOADS = [f"entry-{number}".encode() for number in range(10)]


def check_sanity(
    store: MetadataStore,
    server: BookieServer,
    *,
    timeout: float = _TIMEOUT_SECONDS,
    sasl: SaslUser | None = None,
) -> None:
    """Create a ledger on this bookie alone, write it over a connection, read and delete it. `sasl`
    is the user to authenticate as. Raises the error of any step, and `CorruptionError` if the
    payloads read are not those written; in any case tries to delete the ledger's metadata."""
    bookie_id, address = server.bookie.bookie_id, server.address
    host = address.host
    if is_wildcard_host(host):  # it listens on all addresses: use loopback
        host = "::1" if ":" in host else "127.0.0.1"
    endpoint = host, address.port
    with WireClient(endpoint, timeout=timeout, sasl=sasl, bookie_id=bookie_id) as wire_client:
        bookie_ids = frozenset({bookie_id})
        client = Client(store, {bookie_id: wire_client}, list_writable=lambda _: bookie_ids)
        writer = client.create_ledger(1, 1, 1, digest_type="MAC")  # E, W, A
        try:
            writer.append_many(_PAYLOADS)
            writer.close()
            reader = client.open_ledger(writer.ledger)
            payloads = [entry.payload for entry in reader.read(0, len(_PAYLOADS) - 1)]
        finally:
            client.delete_ledger(writer.ledger)
    if payloads != _PAYLOADS:
        reason = f"{payloads!r:.200} were read back instead of what was written"
        raise CorruptionError(str(writer.ledger), 0, reason)
