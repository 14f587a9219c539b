"""Real bookies start on rescued directories, find nothing wrong, and the real client reads all."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkstore.cli.main import main
from bkstore.formats.cookie import decode as decode_cookie
from bkstore.formats.metadata.json_file import ClusterMetadata, decode_file, encode_file
from tests.interop.bookies import Place
from tests.interop.clusters.conftest import MakeClient, MakeCluster
from tests.rescue.rescue_worlds import RescueWorld


@pytest.mark.parametrize(("storage", "bookies"), [("sorted", None), ("db", None), ("db", "2")])
def test_real_bookies_start(
    new_cluster: MakeCluster,
    real_client: MakeClient,
    tmp_path: Path,
    storage: str,
    bookies: str | None,
) -> None:
    """Every ledger has one damaged copy of each entry; afterwards the real client reads it."""
    world = RescueWorld(
        tmp_path / "world", seed=3, scopes=False, digests=("CRC32C",), password=b"pw"
    )
    for (ledger_id, entry), owners in world.copies().items():
        for bookie in sorted(owners)[1:]:
            world.flip(bookie, world.ledgers[ledger_id].records[entry])
    metadata = tmp_path / "metadata.json"
    ledgers = tuple(ledger.metadata for ledger in world.ledgers.values())
    metadata.write_bytes(encode_file(ClusterMetadata(ledgers), passwords=True))
    cluster = new_cluster()
    sources = [f"{bookie}={world.path(bookie)}" for bookie in world.bookies]
    out = tmp_path / "out"
    more = [] if bookies is None else ["--bookies", bookies]
    words = ["rescue", str(metadata), *sources, str(out), "--as", "bookies", "--storage", storage]
    assert main([*words, "--store", cluster.uri, *more]) == 0

    running = []
    for folder in sorted(path for path in out.iterdir() if path.is_dir()):
        cookie = decode_cookie((folder / "ledgers" / "current" / "VERSION").read_bytes())
        place = Place(cookie.bookie_id, [folder / "ledgers"], [folder / "journal"])
        running.append(cluster.start(place, cluster.settings(place, storage)))
    try:
        for real_bookie in running:
            assert real_bookie.inconsistencies() == []
        client = real_client(cluster)
        for saved in decode_file((out / "metadata.json").read_bytes()).ledgers:
            payloads = world.ledgers[saved.ledger].payloads
            status = client.open(saved.ledger_id, recovery=False)
            assert (status["last"], status["length"]) == (saved.last_entry_id, saved.length)
            if payloads:
                read = client.read(saved.ledger_id, 0, saved.last_entry_id)
                assert read == list(payloads.values())
    finally:
        for real_bookie in running:
            real_bookie.stop()
