"""The file of `audit --resume`: nothing but an audit's own file is ever written or removed."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from bkstore.cli.main import main
from bkstore.cluster import DirectoryStore
from bkstore.cluster.audit import AuditOptions, Auditor, DirectoryBookie
from bkstore.cluster.audit.resume_file import ResumeFile
from bkstore.errors import BkstoreError, CorruptionError, DirectoryInUse, InvalidArgument
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.storage.read_only.bookie_dir import BookieDir
from tests.worlds.audits import FULL, closed, store_of

HEAD = '{"format": "bkstore-audit-1", "started_at": 5.0, "run": {"what": "it"}}\n'
RUN = {"what": "it"}
EMPTY = (
    '"checked": 1, "empty": 0, "replicas": 0, "redone": 0, "undated": 0, '
    '"without": 0, "entries": 0, "skipped": {}, "seconds": {}, "excused": {}, '
    '"answers": {}, "absent": {}, '
    '"unlisted": {}, "found": [], '
    '"unreadable": [], "unsettled": [], "unanswered": {}, "again": []'
)
STEP = '{"step": "ledger 00000000000000000000000000000007", "outcome": {' + EMPTY + "}}\n"


class Killed(BaseException):
    """The process goes down."""


def _snapshot(top: Path) -> dict[str, Any]:
    """Return all that can be seen of the files below a folder."""
    found: dict[str, Any] = {}
    for path in sorted(top.rglob("*")):
        info = path.lstat()
        content: Any = None
        if stat.S_ISLNK(info.st_mode):
            content = os.readlink(path)
        elif stat.S_ISREG(info.st_mode):
            content = path.read_bytes()
        times = (info.st_mtime_ns, info.st_ino) if content is not None else ()
        found[str(path.relative_to(top))] = (info.st_mode, content, *times)
    return found


def _run(resume_file: Path, kill: bool = False, **more: Any) -> Any:
    def progress(done: int, _: int) -> None:
        if kill and done:
            raise Killed

    settings = AuditOptions(rechecks=0, batch=1)
    auditor = Auditor(
        store_of(closed(), closed(8)), dict.fromkeys(("b1", "b2", "b3"), FULL), options=settings
    )
    return auditor.run(progress=progress, resume=resume_file, **more)


# -- files of others


@pytest.mark.parametrize(
    "content",
    [
        b"hello\n",
        b"\n",
        b"[1]\n",
        b"{}\n",
        b'{"format": "bkstore-audit-2", "started_at": 5.0, "run": {}}\n',
        b'{"format": ["bkstore-audit-1"]}\n',
        b'{"ledgers": []}',
        b"no newline",
        HEAD[:-1].encode(),
        HEAD[:20].encode(),
        HEAD[:60].encode(),
        HEAD.encode("utf-16"),
        b"\x00" * 3_000_000,
        b"[" * 100_000 + b"\n",
        b"\xff\xfe\n",
    ],
    ids=lambda content: repr(content[:24]),
)
def test_a_file_that_is_none_of_ours(content: bytes, tmp_path: Path) -> None:
    """What is there and does not begin with a whole head is refused, and stays as it is."""
    kept = tmp_path / "run"
    kept.write_bytes(content)
    before = _snapshot(tmp_path)
    with pytest.raises(InvalidArgument, match=r"run: exists and is not an audit's file"):
        _run(kept)

    assert before == _snapshot(tmp_path)


@pytest.mark.parametrize("victim", ["text", "of an audit", None], ids=str)
def test_a_link_is_refused(victim: str | None, tmp_path: Path) -> None:
    """A link is no file to write to, wherever it points; nothing comes to be at its end."""
    if victim is not None:
        (tmp_path / "victim").write_text(HEAD if victim == "of an audit" else "precious")
    (tmp_path / "run").symlink_to("victim")
    before = _snapshot(tmp_path)
    with pytest.raises(InvalidArgument, match="run: is a link; give the file itself"):
        _run(tmp_path / "run")

    assert before == _snapshot(tmp_path)


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_what_is_no_file_is_refused(kind: str, tmp_path: Path) -> None:
    """A pipe, a folder or a device is told by its name, and nobody waits for it."""
    kept = Path("/dev/null") if kind == "device" else tmp_path / "run"
    if kind == "pipe":
        os.mkfifo(kept)
    if kind == "folder":
        kept.mkdir()
    before = _snapshot(tmp_path)
    with pytest.raises(CorruptionError, match=f"is a {kind}, not a regular file"):
        _run(kept)

    assert before == _snapshot(tmp_path)


def test_an_empty_file_is_taken(tmp_path: Path) -> None:
    """An empty file holds nothing that could be lost; it goes when the run ends."""
    kept = tmp_path / "run"
    kept.touch()
    with pytest.raises(Killed):
        _run(kept, kill=True)
    assert kept.read_bytes().startswith(b'{"format": "bkstore-audit-1"')
    assert 2 == _run(kept).checked

    assert not kept.exists()


def test_what_took_the_name_stays(tmp_path: Path) -> None:
    """At the end only the file that the run wrote goes, not what has its name by then."""
    kept = tmp_path / "run"
    with ResumeFile(kept, RUN, 5.0) as file:
        kept.rename(tmp_path / "moved")
        kept.write_bytes(b"precious")
        file.remove()

    assert b"precious" == kept.read_bytes()
    assert HEAD == (tmp_path / "moved").read_text()


# -- two audits on one file


def test_one_file_one_audit(tmp_path: Path) -> None:
    """A second audit on the same file is refused while the first runs, and after it not."""
    kept = tmp_path / "run"
    refused = []

    def progress(*_: int) -> None:
        with pytest.raises(DirectoryInUse, match="another audit") as caught:
            ResumeFile(kept, RUN, 6.0)
        refused.append(caught)

    options = AuditOptions(rechecks=0)
    Auditor(store_of(closed()), {"b1": FULL}, options=options).run(progress=progress, resume=kept)
    assert refused
    assert not kept.exists()

    with ResumeFile(kept, RUN, 7.0) as file:
        assert 7.0 == file.started_at


def test_a_failed_run_lets_go(tmp_path: Path) -> None:
    """A run that ended by an error, or was refused, holds no lock."""
    kept = tmp_path / "run"
    for what in ("ours", "ours"):
        with pytest.raises(Killed):
            _run(kept, kill=True, description=what)
    with pytest.raises(InvalidArgument, match="other parameters"):
        _run(kept, description="another")

    assert 2 == _run(kept, description="ours").checked


def test_the_name_of_a_new_file_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory is synced when a file is begun, behind its bytes, and when it is removed."""
    from bkstore.cluster.audit import resume_file

    calls: list[str] = []

    class Told(type(resume_file.OS_FILES)):  # type: ignore[misc]
        def fsync(self, fd: int) -> None:
            calls.append("fsync")

        def sync_dir(self, path: Any) -> None:
            calls.append(f"sync_dir {Path(path).name}")

    monkeypatch.setattr(resume_file, "OS_FILES", Told())
    with ResumeFile(tmp_path / "run", RUN, 5.0) as file:
        assert ["fsync", f"sync_dir {tmp_path.name}"] == calls
        file.remove()

    assert f"sync_dir {tmp_path.name}" == calls[-1]
    assert 3 == len(calls)


# -- a file of an audit that is damaged


def _changed(old: str, new: str) -> str:
    assert old in STEP
    return STEP.replace(old, new)


DEEP = "[" * 100_000 + "]" * 100_000
DAMAGED = {
    "head without run": ('{"format": "bkstore-audit-1", "started_at": 5.0}\n', 0),
    "head without time": ('{"format": "bkstore-audit-1", "run": {}}\n', 0),
    "run is a list": ('{"format": "bkstore-audit-1", "started_at": 5.0, "run": []}\n', 0),
    "run is deep": ('{"format": "bkstore-audit-1", "started_at": 5, "run": {"a": [[]]}}\n', 0),
    "time is text": (HEAD.replace("5.0", '"now"'), 0),
    "time is true": (HEAD.replace("5.0", "true"), 0),
    "time is no time": (HEAD.replace("5.0", "NaN"), 0),
    "head is too deep": (HEAD.replace('{"what": "it"}', DEEP), 0),
    "head is not JSON": (HEAD.replace('{"what"', "{{"), 0),
    "line of text": (HEAD + "hello\n" + STEP, len(HEAD)),
    "empty line": (HEAD + "\n", len(HEAD)),
    "line of zeros": (HEAD + "\0" * 600 + "\n", len(HEAD)),
    "megabytes of zeros": (HEAD + "\0" * 3_000_000, len(HEAD)),
    "step is a number": (HEAD + STEP.replace('"ledger', '7, "x": "ledger'), len(HEAD)),
    "step of no kind": (HEAD + _changed("ledger 0", "loser 0"), len(HEAD)),
    "step without ledger": (HEAD + _changed("ledger 0", "ledger z"), len(HEAD)),
    "step without outcome": (HEAD + _changed("outcome", "income"), len(HEAD)),
    "outcome is a list": (HEAD + _changed('{"checked"', '[{"checked"')[:-3] + "}]}\n", len(HEAD)),
    "outcome is text": (HEAD + STEP[:57] + '"outcome": "x"}\n', len(HEAD)),
    "outcome too deep": (HEAD + _changed('"again": []', f'"again": {DEEP}'), len(HEAD)),
    "count is missing": (HEAD + _changed('"checked"', '"unchecked"'), len(HEAD)),
    "count is negative": (HEAD + _changed('"empty": 0', '"empty": -1'), len(HEAD)),
    "count is text": (HEAD + _changed('"empty": 0', '"empty": "0"'), len(HEAD)),
    "count is true": (HEAD + _changed('"empty": 0', '"empty": true'), len(HEAD)),
    "counts are a list": (HEAD + _changed('"skipped": {}', '"skipped": []'), len(HEAD)),
    "counter is text": (HEAD + _changed('"skipped": {}', '"skipped": {"a": "b"}'), len(HEAD)),
    "found is short": (HEAD + _changed('"found": []', '"found": [[1]]'), len(HEAD)),
    "category": (HEAD + _changed('"found": []', '"found": [["7", "x", 0, "b", [], ""]]'), 72),
    "surrogate": (HEAD + _changed('"unreadable": []', '"unreadable": [["7", "\\ud800"]]'), 72),
    "groups": (
        HEAD + _changed('"found": []', '"found": [["7", "placement", 0, "b", [[9, 0]], ""]]'),
        72,
    ),
    "first entry": (
        HEAD + _changed('"found": []', '"found": [["7", "placement", -4, "b", [], ""]]'),
        72,
    ),
    "ledger": (HEAD + _changed('"again": []', '"again": ["x"]'), 72),
    "second step": (HEAD + STEP + _changed("outcome", "income"), len(HEAD) + len(STEP)),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_one_error(name: str, tmp_path: Path) -> None:
    """File and offset of the line are told; no traceback, and the file stays for its owner."""
    content, offset = DAMAGED[name]
    kept = tmp_path / "run"
    kept.write_text(content)
    before = _snapshot(tmp_path)
    with pytest.raises(CorruptionError) as caught:
        ResumeFile(kept, RUN, 6.0)

    assert (str(kept), offset) == (caught.value.file, caught.value.offset)
    assert before == _snapshot(tmp_path)


@pytest.mark.parametrize("tail", ["", '{"st', STEP[:60], "\0" * 4000])
def test_a_last_line_that_is_cut_off(tail: str, tmp_path: Path) -> None:
    """It was never said: the steps before it count, the next one is written in its place."""
    kept = tmp_path / "run"
    kept.write_text(HEAD + STEP + tail)
    with ResumeFile(kept, RUN, 6.0) as file:
        ((step, outcome),) = file.steps
        file.append_step("ledger 00000000000000000000000000000009", outcome)

    assert 5.0 == file.started_at
    assert "ledger 00000000000000000000000000000007" == step
    assert HEAD + STEP + STEP.replace("7", "9") == kept.read_text()


def test_names_that_are_no_text(tmp_path: Path) -> None:
    """Bytes of a file name that are no UTF-8 are kept as they are shown, by their escapes."""
    kept = tmp_path / "run"
    name = os.fsdecode(b"/b/\xff/7.idx")
    with ResumeFile(kept, RUN, 5.0) as file:
        made = json.loads(STEP)["outcome"] | {"unreadable": [["7", name]]}
        file.append_step("look 1", type(_outcome()).from_json(made))
    with ResumeFile(kept, RUN, 5.0) as file:
        ((_, outcome),) = file.steps

    assert r"/b/\udcff/7.idx" == outcome.unreadable[0][1]


def _outcome() -> Any:
    from bkstore.cluster.audit.batch_outcome import BatchOutcome

    return BatchOutcome()


# -- inputs


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """Return a folder with a bookie, its metadata as a store, and a places file."""
    store = DirectoryStore(tmp_path / "store")
    store.create(closed())
    for name in ("b1", "b2", "b3"):
        with HierarchicalIndex(tmp_path / name, writable=True) as index:
            index.put_many(7, [0, 1], [1028, 1100])
    (tmp_path / "places").write_text("b1 /r1\nb2 /r2\nb3 /r3\n")
    (tmp_path / "empty").touch()
    os.link(tmp_path / "empty", tmp_path / "hard")
    (tmp_path / "to-store").symlink_to("store")
    return tmp_path


@pytest.mark.parametrize("option", ["--resume", "-o"])
@pytest.mark.parametrize(
    "target",
    [
        "store/new",
        "to-store/new",
        "store/BKSTORE-METADATA",
        "store",
        "b1/current/new",
        "b1/current/0",
        "b1/bkstore.lock",
        "places",
        "b1/../places",
    ],
)
def test_inputs_are_refused(
    option: str, target: str, world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """FILE in or equal to anything that is read: exit code 2, one line, nothing changed."""
    before = _snapshot(world)
    words = [f"{name}={world / name}" for name in ("b1", "b2", "b3")]
    places = ["--placement", "rack", "--places", str(world / "places"), "--format", "table"]
    code = main(["audit", str(world / "store"), *words, *places, option, str(world / target)])

    assert (2, before) == (code, _snapshot(world))
    assert 1 == len(capsys.readouterr().err.splitlines())


def test_an_empty_metadata_file_is_not_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The metadata file is refused by each of its names, whatever it holds."""
    store = {"ledgers": [], "registered_bookies": ["b1"]}
    (tmp_path / "metadata").write_text(json.dumps(store))
    os.link(tmp_path / "metadata", tmp_path / "hard")
    with HierarchicalIndex(tmp_path / "b1", writable=True):
        pass
    before = _snapshot(tmp_path)
    for option in ("--resume", "-o"):
        for name in ("metadata", "hard"):
            words = [str(tmp_path / "metadata"), f"b1={tmp_path / 'b1'}"]
            assert 2 == main(["audit", *words, option, str(tmp_path / name)])
            assert "is also an input" in capsys.readouterr().err
    both = ["--resume", str(tmp_path / "new"), "-o", str(tmp_path / "new")]
    assert 2 == main(["audit", *words, *both])

    assert before == _snapshot(tmp_path)


@pytest.mark.parametrize("target", ["store/new", "b1/current/new", "b1/bkstore.lock"])
def test_the_library_is_as_safe(target: str, world: Path) -> None:
    """`Auditor.run(resume=)` refuses what lies in a store or a bookie as the command does."""
    before = _snapshot(world)
    with BookieDir(world / "b1") as bookie:
        auditor = Auditor(DirectoryStore(world / "store"), {"b1": DirectoryBookie(bookie)})
        with pytest.raises(BkstoreError):
            auditor.run(resume=world / target)

    assert before == _snapshot(world)
