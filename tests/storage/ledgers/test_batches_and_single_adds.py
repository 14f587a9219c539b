"""Two storages of the same options, one fed by single adds, the other by batches: always alike.

Nothing here says what is right; that is what the model's machine and the conformance suite do
for single adds. Here a batch is held against them: errors, `stored`, every answer after every
step, and every byte on disk after a flush.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from bkstore.files.disk_changes import UnsyncedFiles
from bkstore.formats.entry import Coder, encode_explicit_lac
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.storage.ledgers.write_paths.write_cache import ENTRY_OVERHEAD
from bkstore.storage.options import StorageKind, StorageOptions
from tests.rounds import rounds
from tests.worlds.batch_adds import (
    KEY,
    LARGEST,
    NAMES,
    Sent,
    add_in_batches,
    add_one_by_one,
    answers,
    files_below,
    rows_of,
    sendings,
    told,
)

_names = st.sampled_from(NAMES)


class Kind(NamedTuple):
    """One kind of storage, and how many examples of a hundred it gets."""

    storage: StorageKind
    examples: int
    directories: int = 1
    options: dict[str, Any] = {}  # noqa: RUF012  # nobody changes it


ROLLING = {"entry_log_size": 6000}
KINDS = {
    "sorted": Kind("sorted", 6),
    "sorted-tiny": Kind("sorted", 6, 2, {**ROLLING, "write_cache": 6000}),
    "sorted-refusing": Kind("sorted", 4, 1, {"write_cache": 12_000, "auto_flush": False}),
    "sorted-few-rows": Kind("sorted", 4, 1, {"write_cache": 9000, "pending_locations": 30}),
    "interleaved": Kind("interleaved", 6, 1, ROLLING),
    "interleaved-few-rows": Kind("interleaved", 6, 3, {**ROLLING, "pending_locations": 7}),
    "interleaved-index-first": Kind(
        "interleaved", 3, 1, {"flush_order": "index-first", "pending_locations": 40}
    ),
    "db": Kind("db", 3, 1, ROLLING),
    "db-tiny-apart": Kind("db", 3, 3, {**ROLLING, "write_cache": 36_000}),
    "db-refusing": Kind("db", 3, 2, {"write_cache": 48_000, "auto_flush": False}),
    "log-per-ledger": Kind(
        "interleaved", 4, 2, {**ROLLING, "entry_log_per_ledger": True, "max_active_logs": 2}
    ),
    "sorted-log-per-ledger": Kind(
        "sorted", 4, 2, {**ROLLING, "entry_log_per_ledger": True, "write_cache": 9000}
    ),
    "sorted-compat": Kind("sorted", 4, 1, {"write_cache": 9000, "compat": "bookkeeper"}),
    "interleaved-compat": Kind(
        "interleaved", 4, 1, {**ROLLING, "pending_locations": 40, "compat": "bookkeeper"}
    ),
    "db-compat": Kind("db", 3, 1, {"write_cache": 24_000, "compat": "bookkeeper"}),
}


class TwinsMachine(RuleBasedStateMachine):
    """A storage that is fed one by one, and its twin that is fed by batches."""

    kind: ClassVar[Kind]

    def __init__(self) -> None:
        super().__init__()
        self.scratch = tempfile.TemporaryDirectory(prefix="bkstore-twins-")
        self.tops = [Path(self.scratch.name) / name for name in ("single", "batch")]
        self.counters = [itertools.count(), itertools.count()]
        self.compat = self.kind.options.get("compat") is not None
        self.twins: list[LedgerStorage] = []

    @initialize()
    def start(self) -> None:
        """Begin with empty directories."""
        self.twins = [self._open(at) for at in range(2)]

    def _open(self, at: int) -> LedgerStorage:
        counter = self.counters[at]
        options = StorageOptions(
            max_entry_size=LARGEST, choose=lambda n: next(counter) % n, **self.kind.options
        )
        places = [self.tops[at] / f"dir{number}" for number in range(self.kind.directories)]
        return LedgerStorage.open(places, self.kind.storage, options=options, files=UnsyncedFiles())

    def teardown(self) -> None:
        """Close both; their directories are alike once more then."""
        try:
            self.both(lambda storage: storage.close())
            self.same_bytes()
        finally:
            for storage in self.twins:
                storage.close(flush=False)
            self.scratch.cleanup()

    def both(self, do: Callable[[LedgerStorage], Any]) -> tuple[str, Any]:
        """Do the same with both; the answer or error must be the same."""
        single, batch = [told(lambda storage=storage: do(storage)) for storage in self.twins]

        assert single == batch
        return single

    # -- adds

    @rule(sent=sendings())
    def add(self, sent: Sent) -> None:
        """Add to both, each in its way: the same error at the same record, or none."""
        single, batch = self.twins
        expected = add_one_by_one(
            sent,
            lambda record: single.add_entry(record, master_key=sent.key, recovery=sent.recovery),
        )
        found = add_in_batches(
            sent, lambda some: batch.add_batch(some, master_key=sent.key, recovery=sent.recovery)
        )

        assert expected == found

    @rule(sent=sendings(most=5))
    def add_singly_to_both(self, sent: Sent) -> None:
        """Add one by one to both: what came in batches is mixed with what did not."""
        sent = sent.truthful()
        expected, found = [
            add_one_by_one(
                sent,
                lambda record, storage=storage: storage.add_entry(
                    record, master_key=sent.key, recovery=sent.recovery
                ),
            )
            for storage in self.twins
        ]

        assert expected == found

    @rule(sent=sendings())
    def add_from_an_iterable(self, sent: Sent) -> None:
        """Add from a generator: the same error at the same record, or none."""
        sent = sent.truthful()
        single, batch = self.twins
        expected = add_one_by_one(
            sent,
            lambda record: single.add_entry(record, master_key=sent.key, recovery=sent.recovery),
        )
        found = told(
            lambda: batch.add_entries(
                iter(sent.records), master_key=sent.key, recovery=sent.recovery
            ).tolist()
        )

        if expected[0]:
            assert expected[:2] == found
        else:
            assert ("answer", sent.says) == found

    # -- states

    @rule(name=_names)
    def open_ledger(self, name: Any) -> None:
        """Make a ledger known."""
        self.both(lambda storage: storage.set_master_key(name, KEY))

    @rule(name=_names)
    def fence(self, name: Any) -> None:
        """Fence a ledger."""
        self.both(lambda storage: storage.fence(name))

    @precondition(lambda self: self.kind.storage == "db")
    @rule(name=_names, on=st.booleans())
    def limbo(self, name: Any, on: bool) -> None:
        """Put a ledger into limbo, or take it out."""
        self.both(lambda storage: storage.set_limbo(name) if on else storage.clear_limbo(name))

    @rule(name=_names, lac=st.integers(0, 50))
    def explicit_lac(self, name: Any, lac: int) -> None:
        """Set an explicit LAC."""
        body = encode_explicit_lac(name, lac, "CRC32C", "pw")
        self.both(lambda storage: storage.set_explicit_lac(name, body))

    @rule(name=_names)
    def ask_for_lac(self, name: Any) -> None:
        """Ask for the last add confirmed, which in compat mode is noted."""
        self.both(lambda storage: storage.last_add_confirmed(name))

    @rule(name=_names)
    def delete(self, name: Any) -> None:
        """Forget a ledger."""
        self.both(lambda storage: storage.delete_ledger(name))

    # -- the disk

    @rule()
    def flush(self) -> None:
        """Flush both."""
        self.both(lambda storage: storage.flush())
        self.same_bytes()

    @rule()
    def checkpoint(self) -> None:
        """Checkpoint both."""
        self.both(lambda storage: storage.checkpoint())
        self.same_bytes()

    @rule(
        keep=st.none() | st.sets(_names, min_size=3),
        threshold=st.sampled_from([None, 0.8, 1.0]),
        transactional=st.booleans(),
    )
    def collect_garbage(self, keep: Any, threshold: float | None, transactional: bool) -> None:
        """Collect garbage of both: the same logs go, the same records move."""
        self.both(
            lambda storage: storage.collect_garbage(
                keep, threshold=threshold, transactional=transactional
            )
        )
        self.same_bytes()

    @rule(flush=st.booleans())
    def reopen(self, flush: bool) -> None:
        """Close both, flushed or not, and open them again."""
        self.both(lambda storage: storage.close(flush=flush))
        self.twins = [self._open(at) for at in range(2)]

    # -- alike

    @invariant()
    def same_answers(self) -> None:
        """Both say the same of every ledger and entry."""
        if self.twins:
            single, batch = (answers(storage, lac=not self.compat) for storage in self.twins)

            assert single == batch

    def same_bytes(self) -> None:
        """Every file of both has the same bytes, every index the same rows."""
        single, batch = map(files_below, self.tops)

        assert sorted(single) == sorted(batch)
        assert [] == [path for path in single if single[path] != batch[path]]
        if not any(storage._closed for storage in self.twins):
            assert rows_of(self.twins[0]) == rows_of(self.twins[1])


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_batches_are_single_adds(kind: Kind) -> None:
    """Whatever is added in whatever cuts, errors, answers and bytes are those of single adds."""
    machine = type("TwinsOfKind", (TwinsMachine,), {"kind": kind})
    profile = settings()
    examples = max(2, round(profile.max_examples * kind.examples / 200))
    for _ in rounds():
        run_state_machine_as_test(machine, settings=settings(profile, max_examples=examples))


@pytest.mark.parametrize("per_ledger", [False, True], ids=["shared", "per-ledger"])
@pytest.mark.parametrize("storage", ["sorted", "interleaved", "db"])
@pytest.mark.parametrize("by", [-1, 0, 1])
def test_limits_to_the_byte(
    storage: StorageKind, by: int, per_ledger: bool, tmp_path: Path
) -> None:
    """Logs roll and caches are flushed at the same record where it ends just at a limit.

    A byte before it and behind it too, and whatever the batch begins with.
    """
    coder = Coder("CRC32C", "pw")
    for before in (0, 1, 7):
        batches = [
            coder.encode_batch(7, range(before), [bytes(64)] * before),
            coder.encode_batch(7, range(before, 90), [bytes(64)] * (90 - before)),
            coder.encode_batch(8, range(60), [bytes(64)] * 60),
        ]
        size = int(batches[1].sizes[0])
        caches = 1 if storage == "sorted" else 2
        options = StorageOptions(
            entry_log_size=1024 + 10 * (4 + size) + by,
            write_cache=caches * (30 * (size + ENTRY_OVERHEAD) + by),
            pending_locations=40 + by,
            entry_log_per_ledger=per_ledger,
        )
        contents = []
        for way in ("single", "batch"):
            top = tmp_path / f"{way}{before}"
            with LedgerStorage.open(top, storage, options=options, files=UnsyncedFiles()) as opened:
                for batch in batches:
                    if way == "batch":
                        opened.add_batch(batch, master_key=KEY)
                    else:
                        for data in batch.records():
                            opened.add_entry(data, master_key=KEY)
                lists = [len(path.logger.log_ids) for path in opened.write_paths]
                opened.flush()
                contents.append((lists, files_below(top), rows_of(opened)))

        assert contents[0] == contents[1]
        assert contents[0][0] > [1]
