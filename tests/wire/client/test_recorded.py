"""Recorded bookies answer our client: it asks as the real client did and hears what that heard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from bkstore.errors import (
    BkstoreError,
    CorruptionError,
    DataUnknown,
    IllegalOperation,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedger,
    ReadOnlyError,
    UnauthorizedAccess,
)
from bkstore.formats.entry import RecordBatch, master_key
from bkstore.wire import v2, v3
from bkstore.wire.client import WireClient
from bkstore.wire.client.v2_dialect import V2Dialect
from bkstore.wire.client.v3_dialect import V3Dialect
from bkstore.wire.frames import frame
from bkstore.wire.protocol_detection import RequestDecoder
from bkstore.wire.status_codes import Status
from tests.golden.data import GOLDEN, load_json
from tests.wire.client.scripted import Peer, served
from tests.wire.recorded import FILES, connections, conversations, needs_golden

pytestmark = needs_golden

KEYS = {"right": master_key("golden"), "wrong": master_key("wrong"), None: None}
ERRORS = {
    -7: NoSuchLedger,
    -13: NoSuchEntry,
    -101: LedgerFenced,
    -102: UnauthorizedAccess,
    -104: ReadOnlyError,
    -108: DataUnknown,
}
"""Codes of the real client, and what ours raises."""


def _asked(message: Any) -> object:
    """Return what a request asks for, whatever its transaction, its request id and its priority."""
    if isinstance(message, v2.BatchReadRequest):
        return message._replace(request_id=0, flags=message.flags & 3)
    if isinstance(message, tuple):
        return message._replace(flags=message.flags & 3)
    stripped = type(message)()
    stripped.CopyFrom(message)
    stripped.header.txnId = 0
    stripped.header.ClearField("priority")
    return v3.encode(stripped)


def _same_transaction(answer: bytes, request: Any) -> bytes:
    """Return a recorded answer with the transaction or request id of another request."""
    if isinstance(request, v2.BatchReadRequest):
        response = v2.decode_response(answer)
        return b"".join(response._replace(request_id=request.request_id).parts())
    if isinstance(request, tuple):
        return answer
    response = v3.decode_response(answer)
    response.header.txnId = request.header.txnId
    return v3.encode(response)


def _answered_by(message: Any, response: bytes) -> bool:
    if not isinstance(message, tuple):
        try:
            header = v3.decode_response(response).header
        except CorruptionError:
            return False
        return (header.operation, header.txnId) == (
            message.header.operation,
            message.header.txnId,
        )
    try:
        found = v2.decode_response(response)
    except CorruptionError:
        return False
    if isinstance(message, v2.BatchReadRequest):
        return isinstance(found, v2.BatchReadResponse) and found.request_id == message.request_id
    kind = v2.AddResponse if isinstance(message, v2.AddRequest) else v2.ReadResponse
    return isinstance(found, kind) and found[1:3] == (message.ledger, message.entry)


class Recording:
    """The bookie's side of a conversation: each recorded answer, for its request, once."""

    def __init__(self, conversation: dict[str, Any]) -> None:
        self.pairs: list[tuple[Any, bytes]] = []
        for connection in conversation["connections"]:
            decoder = RequestDecoder()
            whole = [f for f in connection["frames"] if "hex" in f]
            sent = [bytes.fromhex(f["hex"])[4:] for f in whole if f["dir"] == "c2s"]
            came = [bytes.fromhex(f["hex"])[4:] for f in whole if f["dir"] == "s2c"]
            for request in map(decoder.decode, sent):
                for at, response in enumerate(came):
                    if _answered_by(request, response):
                        self.pairs.append((request, came.pop(at)))
                        break

    def play(self, peer: Peer) -> None:
        """Answer what was asked in the recording; hang up at anything else."""
        decoder = RequestDecoder()
        for message in peer.requests():
            request = decoder.decode(message)
            for at, (recorded, answer) in enumerate(self.pairs):
                if _asked(recorded) == _asked(request):
                    del self.pairs[at]
                    peer.answer(_same_transaction(answer, request))
                    break
            else:
                return

    def record(self, ledger: int, entry: int) -> bytes:
        """Return the record that the real client added."""
        for request, _ in self.pairs:
            if isinstance(request, v2.AddRequest):
                if (request.ledger, request.entry) == (ledger, entry):
                    return request.record
            elif not isinstance(request, tuple) and request.header.operation == 2:
                body = request.addRequest
                if (body.ledgerId, body.entryId) == (ledger, entry):
                    return bytes(body.body)
        raise LookupError(f"no add of entry {entry} of ledger {ledger}")


# -- what the real client was told to do, by ours


def _add(client: WireClient, op: dict[str, Any], recording: Recording) -> object:
    record = recording.record(op["ledger"], op["entry"])
    entry = client.add_entry(
        record,
        KEYS[op["key"]],
        recovery=bool(op["options"] & 2),
        sync=not op["write_flags"],
    )
    return {"rc": 0, "ledger": op["ledger"], "entry": entry}


def _read(client: WireClient, op: dict[str, Any], _: Recording) -> object:
    record = client.read_entry(
        op["ledger"], op["entry"], fence=bool(op["flags"] & 1), master_key=KEYS[op["key"]]
    )
    return {"rc": 0, "record_hex": record.hex()}


def _batch(client: WireClient, op: dict[str, Any], _: Recording) -> object:
    batch = client.read_entries(
        op["ledger"],
        op["start_entry"],
        op["max_count"],
        op["max_size"],
        fence=bool(op["flags"] & 1),
        master_key=KEYS[op["key"]],
    )
    told = [list(pair) for pair in zip(batch.sizes.tolist(), batch.entries.tolist())]
    return {"rc": 0, "records_len_and_entry": told}


def _read_lac(client: WireClient, op: dict[str, Any], _: Recording) -> object:
    explicit, last = client.read_lac(op["ledger"])
    return {
        "rc": 0,
        "lac_body_hex": (explicit or b"").hex(),
        "last_entry_body_hex": (last or b"").hex(),
    }


def _write_lac(client: WireClient, op: dict[str, Any], _: Recording) -> object:
    client.write_lac(op["ledger"], bytes.fromhex(op["body_hex"]), KEYS[op["key"]])
    return {"rc": 0}


def _force(client: WireClient, op: dict[str, Any], _: Recording) -> object:
    client.force(op["ledger"])
    return {"rc": 0}


def _info(client: WireClient, op: dict[str, Any], _: Recording) -> object:
    total, free = client.disk_space()
    return {"rc": 0, "total": total, "free": free}


def _list(client: WireClient, op: dict[str, Any], _: Recording) -> object:
    found = client.availability(op["ledger"])
    return {"total": len(found), "encoded_hex": found.to_bytes("bookkeeper").hex()}


def _long_poll(client: WireClient, op: dict[str, Any], _: Recording) -> object:
    lac, record = client.wait_for_lac(op["ledger"], op["previous_lac"], op["timeout_ms"] / 1000)
    return {"rc": 0, "last_add_confirmed": lac, "record_hex": (record or b"").hex()}


OPERATIONS: dict[str, Callable[[WireClient, dict[str, Any], Recording], object]] = {
    "add_entry": _add,
    "read_entry": _read,
    "batch_read": _batch,
    "read_lac": _read_lac,
    "write_lac": _write_lac,
    "force_ledger": _force,
    "get_bookie_info": _info,
    "get_list_of_entries_of_ledger": _list,
    "read_entry_wait_for_lac_update": _long_poll,
}


def _left_out(op: dict[str, Any], protocol: str) -> str | None:
    """Return why an operation has no counterpart in our client."""
    if op["op"] == "batch_read" and protocol == "v3":
        return "the real client says nothing to a batch read in v3"
    if op["op"] == "batch_read" and min(op["max_size"] - 1, op["max_count"], op["start_entry"]) < 0:
        return "0 has another meaning, and the last entry comes alone"
    if op["op"] == "get_bookie_info" and op["requested"] != 3:
        return "both figures are asked for"
    if op["op"] == "read_entry_wait_for_lac_update":
        if protocol == "v2":
            return "the real client sends a plain read in v2"
        if not op["piggyback"] or op["entry"] != -1:
            return "a LAC update asks for the next entry"
    if protocol == "v2" and (op["op"] == "force_ledger" or op.get("write_flags")):
        return "the real client refuses it in v2"
    if op["result"] == "!BKTimeoutException:-23":
        return "the bookie gave no answer"
    return None


def _expected(result: dict[str, Any] | str, found: object) -> object:
    """Return what the real client heard, in the fields that ours tells."""
    if isinstance(result, str):
        code = int(result.rpartition(":")[2])
        return ERRORS.get(code, code)
    if result.get("rc", 0):
        return ERRORS.get(result["rc"], result["rc"])
    return {name: result[name] for name in found} if isinstance(found, dict) else 0


def _run(file: str, protocol: str, only: str = "") -> tuple[list[Any], Counter[str], int]:
    """Run all operations; return what differed, what was left out, how many agreed."""
    different: list[Any] = []
    left_out: Counter[str] = Counter()
    agreed = 0
    for conversation in conversations(file):
        if conversation["client"] != "bookie client" or only not in conversation["name"]:
            continue
        recording = Recording(conversation)
        with (
            served(recording.play) as server,
            WireClient(server.address, protocol, timeout=20) as client,
        ):
            for op in conversation.get("operations", ()):
                why = _left_out(op, protocol)
                if why is not None:
                    left_out[why] += 1
                    continue
                try:
                    found = OPERATIONS[op["op"]](client, op, recording)
                except BkstoreError as error:
                    found = type(error)
                expected = _expected(op["result"], found)
                if expected == found:
                    agreed += 1
                else:
                    different.append((conversation["name"], expected, found))
    return different, left_out, agreed


def _named(different: list[Any]) -> Counter[tuple[str, int, str]]:
    return Counter(
        (name, code, getattr(found, "__name__", "rows")) for name, code, found in different
    )


EXPLICIT_LAC_ONLY = {
    ("write_lac", -1, "CorruptionError"): 1,
    ("db_write_lac", -1, "CorruptionError"): 1,
}
"""A bookie without an entry beside an explicit LAC answers EIO, for which -1 is no code of ours."""


def test_v2() -> None:
    """In v2 it hears what the real client heard, and answers at which that one gives up (-8)."""
    different, left_out, agreed = _run("wire_v2.json.gz", "v2")

    assert _named(different) == {
        **EXPLICIT_LAC_ONLY,
        ("list_of_entries", -8, "rows"): 3,
        ("list_of_entries", -8, "NoSuchLedger"): 1,
        ("db_limbo_ledger", -8, "DataUnknown"): 5,
        ("db_limbo_ledger", -8, "BookieUnavailable"): 1,  # the real client did not even ask
    }
    assert left_out == {
        "the real client sends a plain read in v2": 12,
        "the real client refuses it in v2": 8,
        "0 has another meaning, and the last entry comes alone": 8,
        "both figures are asked for": 6,
        "the bookie gave no answer": 1,
    }
    assert agreed == 170


def test_v3() -> None:
    """In v3 it hears what the real client heard."""
    different, left_out, agreed = _run("wire_v3.json.gz", "v3")

    assert _named(different) == EXPLICIT_LAC_ONLY
    assert left_out == {
        "a LAC update asks for the next entry": 6,
        "both figures are asked for": 6,
        "the real client says nothing to a batch read in v3": 2,
        "the bookie gave no answer": 1,
    }
    assert agreed == 162


@pytest.mark.parametrize("file", FILES)
def test_every_answer_is_read(file: str) -> None:
    """Each recorded message of a bookie says status and content in its dialect, but those that
    no request of ours asks for: authentication in v2, ranges and batch reads in v3."""
    dialects = (V3Dialect(), V2Dialect())
    read = 0
    unasked: set[str] = set()
    for connection in connections(file):
        for message in (data[4:] for sent, data in connection.frames if not sent):
            try:
                v3.decode_response(message)
                dialect = 0
            except CorruptionError:
                dialect = 1
            try:
                spoken = dialects[dialect].decode(message)
                read += 1
            except CorruptionError as error:
                unasked.add(error.reason)
            else:
                assert isinstance(spoken.status, Status)

    assert read > {"wire_auth.json": 10}.get(file, 150)
    assert unasked <= {
        "an answer without a request: AuthResponse",
        "this v3 schema has no RANGE_READ_ENTRY",
        "this v3 schema has no RANGE_ADD_ENTRY",
        "this v3 schema has no BATCH_READ_ENTRY",
    }


@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_a_bookie_that_wants_authentication(protocol: str) -> None:
    """It answers `UnauthorizedAccess` to our client, which has none, or hangs up."""
    different, _, agreed = _run("wire_auth.json", protocol, f"{protocol}_bookie_only")

    assert _named(different) == (
        {("v2_bookie_only", -8, "BookieUnavailable"): 1} if protocol == "v2" else {}
    )
    assert agreed == {"v2": 2, "v3": 4}[protocol]


@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_adds_of_the_digest_vectors(protocol: str) -> None:
    """`v2_add_request_hex` is what our client sends for each digest type, one by one and in a
    batch; in v3 the same record and key."""
    vectors = load_json(GOLDEN / "bookkeeper" / "digest_vectors.json")
    vectors = vectors if isinstance(vectors, list) else vectors["vectors"]
    heard: list[bytes] = []

    def note(peer: Peer) -> None:
        decoder = RequestDecoder()
        for message in peer.requests():
            heard.append(frame(message))
            request = decoder.decode(message)
            if isinstance(request, v2.AddRequest):
                answer = v2.AddResponse(Status.EOK, request.ledger, request.entry)
                peer.answer(*answer.parts())
            else:
                body = request.addRequest
                fields = {"ledgerId": body.ledgerId, "entryId": body.entryId}
                peer.answer(v3.encode(v3.new_response(request, Status.EOK, fields)))

    with served(note) as server, WireClient(server.address, protocol) as client:
        for vector in vectors:
            record, key = bytes.fromhex(vector["entry_hex"]), master_key(vector["password"])

            assert vector["entry"] == client.add_entry(record, key)

            client.add_batch(RecordBatch.of([record], [vector["entry"]]), key)

    wanted = [bytes.fromhex(vector["v2_add_request_hex"]) for vector in vectors for _ in "12"]
    if protocol == "v2":
        assert wanted == heard
    else:
        bodies = [v3.body_of(v3.decode_request(whole[4:])) for whole in heard]
        adds = [v2.decode_request(whole[4:]) for whole in wanted]
        assert [add[:2] for add in adds] == [(body.masterKey, body.body) for body in bodies]


def test_batch_reads_are_not_sent_in_plain_v3() -> None:
    """Where the real client throws and hangs: `IllegalOperation`, and nothing is sent."""
    with served(Recording({"connections": []}).play) as server:
        with WireClient(server.address, "v3") as client, pytest.raises(IllegalOperation):
            client.read_entries(7, 0)

        assert 0 == server.connections
