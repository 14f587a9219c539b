"""Many threads on one stream look-up: answers, single flight, failures, images in between."""

from __future__ import annotations

import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from bkstore.errors import LoadFailed
from bkstore.streams import (
    STRATEGIES,
    ImageReader,
    LookupOptions,
    ObjectRanges,
    StreamImage,
    StreamLookup,
)
from bkstore.streams.image.compaction import compact_event
from bkstore.streams.image.compaction_limits import plan_compactions
from bkstore.testing.stream_worlds import StreamWriter, WorldShape, random_queries, stream_image
from tests.models.stream_lookups import Oracle

THREADS = 16
SHAPE = WorldShape(nodes=3, streams=20, streams_per_object=(2, 8), move_probability=0.02)


@pytest.fixture(autouse=True)
def eager_switches() -> Iterator[None]:
    """Let threads take turns a thousand times as often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(before)


class OnceReader(ImageReader):
    """Fails the test if an object is loaded twice at a time."""

    def __init__(self, image: StreamImage, **options: Any) -> None:
        super().__init__(image, **options)
        self.guard = threading.Lock()
        self.running: Counter[int] = Counter()
        self.twice: list[int] = []

    def load(self, object_id: int, image: StreamImage | None = None) -> ObjectRanges:
        """Load it, and note whether another load of it is under way."""
        with self.guard:
            self.running[object_id] += 1
            if self.running[object_id] > 1:
                self.twice.append(object_id)
        try:
            return super().load(object_id, image)
        finally:
            with self.guard:
                self.running[object_id] -= 1


def in_threads(work: Callable[[int], object]) -> None:
    """Run work(0) to work(15), all at once; raise what any of them raised."""
    start = threading.Barrier(THREADS)

    def begin(number: int) -> object:
        start.wait(60)
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        for future in [pool.submit(begin, number) for number in range(THREADS)]:
            future.result(120)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_threads_give_one_thread_s_answers(strategy: Any) -> None:
    """Sixteen threads ask the same look-up; each gets the brute-force answer."""
    image = stream_image(SHAPE, 60, seed=1)
    oracle = Oracle(image.to_json())
    queries = random_queries(image, 15, seed=2, limit=6)
    expected = {query: oracle.answer(*query) for query in queries}
    reader = OnceReader(image)
    with StreamLookup(image, reader, strategy) as lookup:

        def work(number: int) -> None:
            mine = random.Random(number).sample(queries, len(queries))
            for query in mine:
                result = lookup.get_objects(*query)
                assert expected[query] == (result.status, [tuple(one) for one in result.objects])

        in_threads(work)
        stats = lookup.stats

    assert [] == reader.twice
    assert THREADS * len(queries) == stats["lookups"]
    assert reader.loads == stats["loads"] - stats["joined"]


def _images(count: int) -> list[StreamImage]:
    """Return a history: what is written, and a compaction now and then."""
    writer = StreamWriter(SHAPE, seed=3)
    image = StreamImage.from_json(writer.initial_world())
    history = [image]
    for event in writer.events(count):
        image = image.apply(event, check=False)
        for plan in plan_compactions(image, per_node=12, per_cluster=30):
            held = {one: image.objects[one] for one in plan.object_ids}
            merged = compact_event(image, plan, held, writer.new_object_id)
            assert merged is not None
            image = image.apply(merged, check=False)
        history.append(image)
    return history


@pytest.mark.parametrize("options", [{}, {"keep_objects": 20}, {"preload": "eager"}], ids=str)
def test_look_ups_beside_image_changes(options: dict[str, Any]) -> None:
    """An answer is that of an image which was the newest while the look-up ran; nothing stays.

    One thread takes the look-up through a history of images with compactions, fifteen ask. At
    the end filters and kept objects are only of objects that the last image lists.
    """
    history = _images(45)
    number_of = {id(image): at for at, image in enumerate(history)}
    oracles: dict[int, Oracle] = {at: Oracle(one.to_json()) for at, one in enumerate(history)}
    reader = OnceReader(history[0])
    done = threading.Event()
    asked = Counter[int]()
    with StreamLookup(history[0], reader, "bloom", options=LookupOptions(**options)) as lookup:

        def update() -> None:
            try:
                for image in history[1:]:
                    before = lookup.stats["lookups"]
                    lookup.update(image)
                    while lookup.stats["lookups"] < before + 3:
                        lookup.get_objects(0, 0, -1, 2)
            finally:
                done.set()

        def work(number: int) -> None:
            if number == 0:
                return update()
            pick = random.Random(number)
            while not done.is_set():
                first = number_of[id(lookup.image)]
                query = (pick.randrange(20), pick.randrange(3000), -1, pick.randint(1, 6))
                result = lookup.get_objects(*query)
                last = number_of[id(lookup.image)]
                answer = (result.status, [tuple(one) for one in result.objects])
                asked[number] += 1
                assert answer in [oracles[at].answer(*query) for at in range(first, last + 1)]
            return None

        in_threads(work)
        listed = set(history[-1].node_of)
        filters = set(lookup.filters.keys())

        assert [] == reader.twice
        assert filters <= listed
        assert set(lookup._loader._cached) <= listed
        assert sum(asked.values()) >= len(history)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_failing_loads(strategy: Any) -> None:
    """With a tenth of the loads failing every look-up ends: with the right answer, or an error."""
    image = stream_image(WorldShape(nodes=2, streams=8, streams_per_object=(2, 6)), 20, seed=4)
    oracle = Oracle(image.to_json())
    queries = random_queries(image, 12, seed=5)
    expected = {query: oracle.answer(*query) for query in queries}
    reader = OnceReader(image, failures=0.1, seed=6)
    ended: Counter[str] = Counter()
    with StreamLookup(image, reader, strategy) as lookup:

        def work(number: int) -> None:
            for query in random.Random(number).sample(queries, len(queries)):
                try:
                    result = lookup.get_objects(*query)
                except LoadFailed:
                    ended["failed"] += 1
                else:
                    ended["answered"] += 1
                    answer = (result.status, [tuple(one) for one in result.objects])
                    assert expected[query] == answer

        in_threads(work)
        stats = lookup.stats

    assert [] == reader.twice
    assert THREADS * len(queries) == stats["lookups"]
    assert stats["lookups_error"] > 0
    assert stats["lookups_error"] < stats["lookups"] or strategy == "load-all"


def test_failures_are_not_handed_on() -> None:
    """Whoever asks after a failure gets a load of their own, not the failure of the last one."""
    image = stream_image(
        WorldShape(
            nodes=1, streams=1, streams_per_object=(1, 1), stream_object_share=0, lost_share=0
        ),
        1,
    )
    fails = [True, False] * 200
    reader = ImageReader(image, failures=lambda _: fails.pop(0))
    with StreamLookup(image, reader, "partial") as lookup:
        for _ in range(200):
            with pytest.raises(LoadFailed):
                lookup.get_objects(0, 0, -1, 1)
            assert 1 == len(lookup.get_objects(0, 0, -1, 1).objects)

    assert [] == fails
    assert 400 == reader.loads
