"""The real services of the HTTP admin and ours, asked of one cluster: they say the same."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

from bkstore.cluster import ZooKeeperStore
from bkstore.formats.metadata.underreplication import UnderreplicatedMark
from bkstore.network import RegisteredBookie
from bkstore.wire.admin import AdminServer
from tests.interop.bookies import Cluster
from tests.interop.clusters.conftest import MakeCluster
from tests.interop.clusters.recovery.replication import replication
from tests.wire.admin.asking import TOKEN, ask, write

PATHS = {
    "LIST_BOOKIES": "/api/v1/bookie/list_bookies",
    "LIST_BOOKIE_INFO": "/api/v1/bookie/list_bookie_info",
    "CLUSTER_INFO": "/api/v1/bookie/cluster_info",
    "DELETE_LEDGER": "/api/v1/ledger/delete",
    **{
        service: f"/api/v1/autorecovery/{path}"
        for service, path in {
            "AUTORECOVERY_STATUS": "status",
            "LIST_UNDER_REPLICATED_LEDGER": "list_under_replicated_ledger",
            "WHO_IS_AUDITOR": "who_is_auditor",
            "TRIGGER_AUDIT": "trigger_audit",
            "LOST_BOOKIE_RECOVERY_DELAY": "lost_bookie_recovery_delay",
            "DECOMMISSION": "decommission",
        }.items()
    },
}
QUESTIONS: list[tuple[str, dict[str, str]]] = [
    ("LIST_BOOKIES", {}),
    ("LIST_BOOKIES", {"type": "ro"}),
    ("LIST_BOOKIES", {"print_hostnames": "true"}),
    ("LIST_BOOKIE_INFO", {}),
    ("CLUSTER_INFO", {}),
    ("AUTORECOVERY_STATUS", {}),
    ("LIST_UNDER_REPLICATED_LEDGER", {}),
    ("LIST_UNDER_REPLICATED_LEDGER", {"printmissingreplica": ""}),
    ("LIST_UNDER_REPLICATED_LEDGER", {"missingreplica": "gone-1"}),
    ("LIST_UNDER_REPLICATED_LEDGER", {"excludingmissingreplica": "gone-1"}),
    ("WHO_IS_AUDITOR", {}),
    ("LOST_BOOKIE_RECOVERY_DELAY", {}),
]
Answer = tuple[int, Any]


def read(status: int, body: str) -> Answer:
    """Return an answer as something to compare: reasons, orders and free bytes are of each side."""
    if status != 200:
        return status, None
    try:
        value = json.loads(body)
    except ValueError:
        return status, body
    if isinstance(value, dict):
        value = {name: re.sub("Free: [^,]*", "Free", str(each)) for name, each in value.items()}
    return status, sorted(value) if isinstance(value, list) else value


class Both:
    """Two admins of a cluster: the real services, and ours."""

    def __init__(self, cluster: Cluster, admin: AdminServer) -> None:
        self.real = cluster.real
        self.admin = admin
        self.real.call("http_open", name="http", conf={"metadataServiceUri": cluster.uri})

    def theirs(
        self, service: str, method: str = "GET", body: object = None, **given: str
    ) -> Answer:
        """Ask the real service."""
        text = None if body is None else json.dumps(body)
        answer = self.real.call(
            "http_ask", name="http", service=service, method=method, body=text, parameters=given
        )
        return read(answer["status"], answer["body"])

    def ours(self, service: str, method: str = "GET", body: object = None, **given: str) -> Answer:
        """Ask our admin."""
        if method == "GET":
            reply = ask(self.admin, PATHS[service], **given)
        else:
            reply = write(self.admin, PATHS[service], method, body, **given)
        return read(reply.status, reply.body.decode())

    def compare(self) -> dict[str, Answer]:
        """Hold all answers against each other, and return ours; the real client's list of bookies
        follows after a moment."""
        end = time.monotonic() + 20
        while True:
            ours = {f"{name} {given}": self.ours(name, **given) for name, given in QUESTIONS}
            theirs = {f"{name} {given}": self.theirs(name, **given) for name, given in QUESTIONS}
            if ours == theirs or time.monotonic() > end:
                assert theirs == ours
                return ours
            time.sleep(0.1)


def test_same_answers(new_cluster: MakeCluster, tmp_path: Path) -> None:
    """Bookies, disks, marks, the auditor and settings are told alike, whoever changed them."""
    cluster = new_cluster()
    with (
        ZooKeeperStore(cluster.uri) as store,
        RegisteredBookie.open(cluster.uri, tmp_path / "b1", bookie_id="b1") as first,
        RegisteredBookie.open(cluster.uri, tmp_path / "b2", bookie_id="b2") as second,
        AdminServer(first.bookie, token=TOKEN, metadata=store) as admin,
    ):
        both = Both(cluster, admin)
        try:
            both.compare()
            second.set_read_only(True)
            for ledger, bookies in ((7, ("gone-1", "gone-2")), (2**40, ("gone-2",))):
                store.mark_underreplicated(ledger, UnderreplicatedMark(None, bookies))
            seen = both.compare()
            assert (200, {"b2": "None"}) == seen["LIST_BOOKIES {'type': 'ro'}"]
            assert (200, [2**40]) == seen[
                "LIST_UNDER_REPLICATED_LEDGER {'excludingmissingreplica': 'gone-1'}"
            ]

            for put in (both.ours, both.theirs):
                change(both, put)
            with replication(cluster, "autorecovery", lostBookieRecoveryDelay="5"):
                audits(both)
        finally:
            both.real.call("http_close", name="http")


def change(both: Both, put: Any) -> None:
    """Change settings by one side: the other sees it, and all odd requests end alike."""
    delay = "LOST_BOOKIE_RECOVERY_DELAY"
    answers = [
        put(delay, "PUT", {"delay_seconds": 17}),
        put(delay, "PUT", {}),
        put("AUTORECOVERY_STATUS", "PUT", enabled="false"),
        put("AUTORECOVERY_STATUS", "PUT", enabled="false"),
        put("AUTORECOVERY_STATUS", "PUT"),
        put("TRIGGER_AUDIT", "PUT"),
        put("DECOMMISSION", "PUT", {}),
        put("DELETE_LEDGER", "DELETE", ledger_id="4242"),
        put("DELETE_LEDGER", "DELETE"),
    ]
    off = (200, {"enabled": "False"})
    done = (200, "Success set lostBookieRecoveryDelay to 17")
    deleted = (200, "Deleted ledger: 4242")
    no = (404, None)

    assert [done, no, off, off, (400, None), no, no, deleted, no] == answers
    seen = both.compare()
    assert off == seen["AUTORECOVERY_STATUS {}"]
    assert (200, "lostBookieRecoveryDelay value: 17") == seen[f"{delay} {{}}"]


def audits(both: Both) -> None:
    """Look at the real auditor, and have it look at the cluster."""
    end = time.monotonic() + 30
    while (auditor := both.ours("WHO_IS_AUDITOR"))[0] != 200:
        assert time.monotonic() < end, "no auditor was elected"
        time.sleep(0.1)

    assert str(auditor[1]).startswith("Auditor: recovery-")
    both.compare()
    assert (404, None) == both.ours("TRIGGER_AUDIT", "PUT") == both.theirs("TRIGGER_AUDIT", "PUT")
    both.ours("AUTORECOVERY_STATUS", "PUT", enabled="true")
    started = (200, "Success trigger audit.")
    assert started == both.ours("TRIGGER_AUDIT", "PUT") == both.theirs("TRIGGER_AUDIT", "PUT")
