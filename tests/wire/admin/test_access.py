"""Who may ask what: methods, tokens, hosts, parameters; and what a refusal looks like."""

from __future__ import annotations

import socket
from itertools import product
from pathlib import Path

import pytest

from bkstore import Bookie
from bkstore.cluster.store.key_value_store import MemoryStore
from bkstore.errors import InvalidArgument
from bkstore.wire.admin import AdminServer
from bkstore.wire.admin.access_control import check_token, is_loopback_host
from bkstore.wire.admin.messages import one_line
from tests.wire.admin.asking import KEY, TOKEN, ask, files_below, fill, send, write

pytest.importorskip("aiohttp")


GETS = [
    *("/api/v1/ledger/list", "/api/v1/ledger/metadata", "/api/v1/ledger/read"),
    *("/api/v1/ledger/availability", "/api/v1/bookie/list_disk_file"),
    *("/api/v1/bookie/last_log_mark", "/api/v1/bookie/info", "/api/v1/bookie/state"),
    *("/api/v1/bookie/gc_details", "/api/v1/bookie/is_ready", "/api/v1/bookie/sanity"),
    *("/api/v1/bookie/list_bookies", "/api/v1/bookie/list_bookie_info"),
    *("/api/v1/bookie/cluster_info", "/api/v1/config/server_config"),
    "/api/v1/autorecovery/list_under_replicated_ledger",
    "/api/v1/autorecovery/who_is_auditor",
]
WITH_PUT = ["/api/v1/bookie/gc", "/api/v1/bookie/entry_location_compact"]
STEERING = [
    "/api/v1/bookie/state/readonly",
    *(
        f"/api/v1/autorecovery/{name}"
        for name in (
            *("status", "bookie", "trigger_audit", "lost_bookie_recovery_delay"),
            "decommission",
        )
    ),
]
WRITES = [
    ("/api/v1/ledger/delete?ledger_id=7", "DELETE"),
    *((path, "PUT") for path in (*WITH_PUT, *STEERING)),
]


# -- methods


def test_a_wrong_method_is_not_found(admin: AdminServer) -> None:
    """A method that a path does not have is 404 with a line of text, not 405, as upstream."""
    for path, method in product(GETS, ("PUT", "POST", "DELETE", "OPTIONS", "PATCH")):
        reply = ask(admin, path, method)

        assert (404, True) == (reply.status, reply.line.endswith("use GET")), (path, method)


def test_other_statuses_of_wrong_methods(admin: AdminServer) -> None:
    """Where upstream answers 405 or 403 instead, so does this."""
    for paths, methods, status in (
        (["/api/v1/ledger/delete"], ("GET", "PUT"), 404),
        (WITH_PUT, ("POST", "DELETE"), 405),
        (STEERING, ("POST", "DELETE"), 404),
        (["/metrics"], ("PUT", "DELETE"), 403),
    ):
        for path, method in product(paths, methods):
            reply = ask(admin, path, method)

            assert (status, True) == (reply.status, bool(reply.line)), (path, method)


def test_the_heart_beats_for_every_method(admin: AdminServer) -> None:
    """The heartbeat answers all of upstream's methods, and HEAD without the body."""
    for method in ("GET", "PUT", "POST", "DELETE"):
        assert (200, b"OK\n") == ask(admin, "/heartbeat", method)[::2]
    reply = ask(admin, "/heartbeat", "HEAD")

    assert (200, b"", "3") == (reply.status, reply.body, reply.headers["content-length"])


def test_head_is_get_without_a_body(bookie: Bookie, admin: AdminServer) -> None:
    """HEAD has the status and the type of GET, for long answers too."""
    fill(bookie, 7, range(300), size=2000)
    for path in ("/api/v1/ledger/list", "/api/v1/ledger/read?ledger_id=7"):
        got, head = ask(admin, path), ask(admin, path, "HEAD")

        assert (got.status, b"") == (head.status, head.body)
        assert got.headers["content-type"] == head.headers["content-type"]
    assert 404 == ask(admin, "/api/v1/ledger/read?ledger_id=8", "HEAD").status


@pytest.mark.parametrize(
    "path", ["/", "/api/v1/ledger/list/", "/api/v1/bookie/expand_storage", "//"]
)
def test_unknown_paths(admin: AdminServer, path: str) -> None:
    """What is not there is 404, and named."""
    reply = ask(admin, path)

    assert (404, True) == (reply.status, path in reply.line)


# -- tokens


def test_writes_without_the_token_change_nothing(tmp_path: Path) -> None:
    """Without the right token writes are 401, without any set they are 403; no file changes."""
    wrong = [None, "Bearer", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", TOKEN]
    wrong += [f"Bearer {TOKEN.upper()}", "Bearer \u00fc", f"Bearer {TOKEN} {TOKEN}", "Bearer "]
    body = b'{"entryLocationRocksDBCompact": true}'
    with Bookie.open(tmp_path / "b", "db") as bookie:
        fill(bookie, 7, range(20))
        bookie.storage.flush()
        before = files_below(tmp_path)
        with AdminServer(bookie, token=TOKEN, metadata=MemoryStore()) as admin:
            for (path, method), given in product(WRITES, wrong):
                headers = {} if given is None else {"Authorization": given}
                reply = ask(admin, path, method, body, headers)

                assert (401, "Bearer") == (reply.status, reply.headers["www-authenticate"]), given
                assert TOKEN not in reply.line
            details = ask(admin, "/api/v1/bookie/gc_details").json
        with AdminServer(bookie, metadata=MemoryStore()) as admin:
            for path, method in WRITES:
                closed = write(admin, path, method)

                assert (403, True) == (closed.status, "not enabled" in closed.line)
        assert 0 == details[0]["majorCompactionCounter"]
        assert before == files_below(tmp_path)
        assert list(range(20)) == bookie.entries(7).tolist()


def test_the_scheme_may_be_of_any_case(bookie: Bookie, admin: AdminServer) -> None:
    """The name of the scheme is not case sensitive (RFC 7235), the token is."""
    fill(bookie, 7, [0])
    path, headers = "/api/v1/ledger/delete?ledger_id=7", {"Authorization": f"bearer {TOKEN}"}

    assert 200 == ask(admin, path, "DELETE", None, headers).status


def test_a_wrong_token_is_told_before_parameters(admin: AdminServer) -> None:
    """Who may not write learns nothing of what is there."""
    for query in ("", "?ledger_id=8", "?ledger_id=x"):
        assert 401 == ask(admin, f"/api/v1/ledger/delete{query}", "DELETE").status


@pytest.mark.parametrize("token", ["", "short", "a" * 15, "with a space in it", "ümlaut" * 4, 7])
def test_tokens_that_are_none(bookie: Bookie, token: object) -> None:
    """A token that no header carries, or that is soon guessed, is refused when it is set."""
    with pytest.raises(InvalidArgument, match="token"):
        AdminServer(bookie, token=token)  # type: ignore[arg-type]
    assert "a" * 16 == check_token("a" * 16)


# -- hosts, other origins


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "LOCALHOST:80", "127.0.0.1", "127.0.0.1:1", "127.9.9.9", "[::1]", "[::1]:8"),
        "localhost:",
    ],
)
def test_names_of_this_machine(host: str) -> None:
    """localhost and every loopback address are this machine's, at any port."""
    assert is_loopback_host(host)


@pytest.mark.parametrize(
    "host",
    [
        *("", "example.org", "127.0.0.1.example.org", "localhost.example.org", "10.0.0.1"),
        *("0.0.0.0", "[::]", "localhost:99999", "localhost:x", "a@localhost", "localhost/x"),
        *("127.0.0.1:80:80", "::1", "[::1", "localhost?x", "localhost#x"),
    ],
)
def test_names_of_others(host: str) -> None:
    """A name that a website could have, or none at all, is not this machine's."""
    assert not is_loopback_host(host)


def test_a_rebound_name_is_refused(bookie: Bookie, admin: AdminServer) -> None:
    """On loopback a request for another host is 403, with the token too, and shows nothing."""
    fill(bookie, 7, [0])
    headers = {"Host": "rebound.example.org", "Authorization": f"Bearer {TOKEN}"}
    for path, method in (("/api/v1/ledger/list", "GET"), WRITES[0]):
        reply = ask(admin, path, method, None, headers)

        assert (403, True) == (reply.status, "rebound.example.org" in reply.line)
    assert bookie.ledger_exists(7)


def test_one_host_is_named(admin: AdminServer) -> None:
    """No Host header, or two of them, is 400."""
    for hosts in (b"", b"Host: localhost\r\nHost: localhost\r\n"):
        answer = send(admin, b"GET /heartbeat HTTP/1.1\r\n" + hosts + b"\r\n")

        assert b"400" == answer.split()[1]
        assert b"Host" in answer.rpartition(b"\r\n\r\n")[2]


def test_other_origins_are_told_nothing(bookie: Bookie, admin: AdminServer) -> None:
    """No answer allows another origin to read it, and a preflight is refused."""
    fill(bookie, 7, [0])
    origin = {"Origin": "http://example.org", "Access-Control-Request-Method": "DELETE"}
    replies = [ask(admin, path, "GET", None, origin) for path in GETS]
    replies += [ask(admin, path, "OPTIONS", None, origin) for path, _ in WRITES]

    for reply in replies:
        assert [] == [name for name in reply.headers if name.startswith("access-control")]
        assert "nosniff" == reply.headers["x-content-type-options"]
        assert "no-store" == reply.headers["cache-control"]
    assert {404, 405} == {reply.status for reply in replies[len(GETS) :]}


def test_hosts_where_it_is_not_loopback(bookie: Bookie) -> None:
    """Beyond loopback a request names the machine by an address, by its own name, or by one that
    was given; another name, which a website could have, is 403, with the token too."""
    own = ["0.0.0.0:80", "127.0.0.1", "[::1]:80", "10.0.0.7", "localhost", socket.gethostname()]
    own += ["bookie.example.org:8080", "BOOKIE.example.org."]
    others = ["example.org", "bookie.example.org.evil.org", "127.0.0.1.evil.org", "a@10.0.0.7", ""]
    with AdminServer(bookie, "0.0.0.0", token=TOKEN, names=["bookie.example.org"]) as admin:
        admin_port = admin.url.rpartition(":")[2]
        head = {"Authorization": f"Bearer {TOKEN}"}
        found = {
            name: ask(admin, "/api/v1/ledger/list", headers={**head, "Host": name}).status
            for name in own + others
        }

        assert f"http://0.0.0.0:{admin_port}" == admin.url
        assert dict.fromkeys(own, 200) | dict.fromkeys(others, 403) == found
    with pytest.raises(InvalidArgument, match="names must be a host name"):
        AdminServer(bookie, names=["a..b"])


# -- parameters


@pytest.mark.parametrize(
    ("path", "method"),
    [
        ("/api/v1/ledger/metadata", "GET"),
        ("/api/v1/ledger/read", "GET"),
        ("/api/v1/ledger/availability", "GET"),
        ("/api/v1/ledger/delete", "DELETE"),
    ],
)
def test_a_missing_ledger_is_not_found(admin: AdminServer, path: str, method: str) -> None:
    """Without `ledger_id` the answer is 404 with a line of text, as upstream."""
    reply = write(admin, path, method)

    assert (404, True) == (reply.status, "ledger_id" in reply.line)


@pytest.mark.parametrize(
    "query",
    [
        *("ledger_id=", "ledger_id=x", "ledger_id=1.0", "ledger_id=1e3", "ledger_id=0x"),
        *("ledger_id=-1", "ledger_id=9223372036854775808", "ledger_id=99999999999999999999"),
        *("ledger_id=1&ledger_scope_id=x", "ledger_id=1&ledger_scope_id=18446744073709551616"),
        *("ledger_id=1&ledger_id=2", "ledger_id=1&scope=5", "ledger_id=1&LEDGER_ID=2"),
        *("ledger_id=%00", "ledger_id=\u0661".encode().decode("latin-1"), "ledger_id=" + "9" * 500),
    ],
    ids=str,
)
def test_odd_ledgers_are_refused(bookie: Bookie, admin: AdminServer, query: str) -> None:
    """What is no ledger id, is given twice or is unknown is 400; nothing is read or deleted."""
    fill(bookie, 1, [0])
    quoted = "".join(c if c.isascii() else f"%{ord(c):02x}" for c in query)
    for path, method in (("read", "GET"), ("metadata", "GET"), ("delete", "DELETE")):
        reply = write(admin, f"/api/v1/ledger/{path}?{quoted}", method)

        assert (400, True) == (reply.status, bool(reply.line))
    assert bookie.ledger_exists(1)


@pytest.mark.parametrize(
    "query",
    [
        *("page=x", "page=1.5", "start_entry_id=-1", "start_entry_id=9223372036854775807"),
        *("end_entry_id=x", "digest_type=MD5", "digest_type=", "encoding=grouped"),
    ],
)
def test_odd_ranges_are_refused(bookie: Bookie, admin: AdminServer, query: str) -> None:
    """Pages, entries and words that are none are 400."""
    fill(bookie, 1, [0])

    assert 400 == ask(admin, f"/api/v1/ledger/read?ledger_id=1&{query}").status


def test_hex_and_signs(bookie: Bookie, admin: AdminServer) -> None:
    """Numbers may have a sign, or be hex."""
    fill(bookie, 16, [0])
    for text in ("16", "%2B16", "0x10", "0X10", "0016"):
        assert 200 == ask(admin, f"/api/v1/ledger/read?ledger_id={text}").status


def test_no_line_breaks_in_a_reason() -> None:
    """A reason is one line of bounded length, whatever a request put into it."""
    assert "a b ?" == one_line("a\r\nb \x00")
    assert 1000 == len(one_line("x" * 5000))


def test_what_a_request_says_stays_text(admin: AdminServer) -> None:
    """A reason that quotes the request is plain text on one line, without its control bytes."""
    reply = ask(admin, "/api/v1/bookie/state?%3Cscript%3E%0a%1b[31m=1")

    assert (400, True) == (reply.status, "\x1b" not in reply.line)


def test_a_defect_shows_no_traceback(
    admin: AdminServer, bookie: Bookie, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An error that nobody foresaw is 500 with its class; the traceback goes to the log."""

    def broken(*_: object) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(bookie, "ledgers", broken)
    reply = ask(admin, "/api/v1/ledger/list")

    assert (500, True) == (reply.status, "ZeroDivisionError" in reply.line)
    assert "secret" not in reply.line
    assert b"OK\n" == ask(admin, "/heartbeat").body


def test_errors_of_the_disk(admin: AdminServer, bookie: Bookie) -> None:
    """An error of the system is 500 and names the file."""
    fill(bookie, 7, [0])
    place = bookie.directories.ledger[0]
    place.rename(place.with_name("moved"))
    try:
        reply = ask(admin, "/api/v1/bookie/info")
    finally:
        place.with_name("moved").rename(place)

    assert (500, True) == (reply.status, str(place) in reply.line)
    assert KEY.hex() not in reply.line
