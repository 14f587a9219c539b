"""Row: a bloom filter, built and probed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mmh3
import numpy as np

from bkstore.bloom import BloomFilter
from bkstore.ids import Int64Array
from tools.bench.cases import BenchmarkRow, Case, Cases, Context, Fact, TimedSide

_FPP = 0.01

_Bits = bytearray
_LOW_63 = 2**63 - 1


def _fill_by_loop(keys: list[int], bit_count: int, hash_count: int) -> _Bits:
    """Return a bit array filled key by key in a plain loop: one mmh3 hash, then each bit."""
    bits, hash_numbers = bytearray(bit_count // 8), range(hash_count)
    digest = mmh3.mmh3_x64_128_utupledigest
    for key in keys:
        h1, h2 = digest(key.to_bytes(8, "little", signed=True))
        for _ in hash_numbers:
            bit_index = (h1 & _LOW_63) % bit_count
            bits[bit_index >> 3] |= 1 << (bit_index & 7)
            h1 += h2
    return bits


def _probe_by_loop(bits: _Bits, keys: list[int], hash_count: int) -> list[bool]:
    """Return for each key whether all its bits are set, in a plain loop like `_fill_by_loop`."""
    bit_count, hash_numbers, answers = len(bits) * 8, range(hash_count), []
    digest = mmh3.mmh3_x64_128_utupledigest
    for key in keys:
        h1, h2 = digest(key.to_bytes(8, "little", signed=True))
        for _ in hash_numbers:
            bit_index = (h1 & _LOW_63) % bit_count
            if not bits[bit_index >> 3] >> (bit_index & 7) & 1:
                answers.append(False)
                break
            h1 += h2
        else:
            answers.append(True)
    return answers


def _fastbloom_factory(context: Context) -> Callable[[int], Any] | None:
    """Return a function that creates fastbloom-rs filters, or None if it is not installed."""
    package = context.import_optional("fastbloom_rs")
    if package is None:
        return None
    return lambda count: package.FilterBuilder(count, _FPP).build_bloom_filter()


def _rbloom_side(context: Context, keys: Int64Array) -> TimedSide | None:
    """Return the side that builds and probes an rbloom filter, or None if it is not installed."""
    package = context.import_optional("rbloom")
    if package is None:
        return None

    def build_and_probe() -> list[bool]:
        key_list = keys.tolist()
        bloom_filter = package.Bloom(keys.size, _FPP)
        bloom_filter.update(key_list)
        return list(map(bloom_filter.__contains__, key_list))

    return TimedSide("update, then in", build_and_probe)


def _build_filter(keys: Int64Array) -> BloomFilter:
    bloom_filter = BloomFilter(keys.size, _FPP)
    bloom_filter.add_many(keys)
    return bloom_filter


def _bloom_cases(context: Context) -> Cases:
    count = context.scaled(1_000_000)
    ids = np.random.default_rng(context.seed).integers(-(2**63), 2**63, 2 * count)
    keys, absent = ids[:count], ids[count:]
    make_fastbloom, bloom_filter = _fastbloom_factory(context), _build_filter(keys)
    rbloom_side = _rbloom_side(context, keys)
    bit_count, hash_count = bloom_filter.bit_size, bloom_filter.hash_count
    bits = _fill_by_loop(keys.tolist(), bit_count, hash_count)

    def fill_fastbloom(key_list: list[int]) -> Any:
        assert make_fastbloom is not None
        fastbloom = make_fastbloom(count)
        fastbloom.add_int_batch(key_list)
        return fastbloom

    def facts() -> list[Fact]:
        # Guava's bytes: strategy, number of hashes, number of words, then big-endian words.
        words = np.frombuffer(bloom_filter.to_bytes(), ">u8", offset=6)
        is_equal = bits == words.astype("<u8").tobytes()
        equality = Fact.yes_or_no("bit array equals the loop's", is_equal)
        return [equality, Fact("bytes of the filter", bloom_filter.nbytes)]

    shape = f"{count} random 64-bit ids, int64 array, fpp {_FPP:g}"
    filled_fastbloom = fill_fastbloom(keys.tolist()) if make_fastbloom else None
    for name, items, ours, loop, fastbloom_side in _work_kinds(
        keys, absent, bloom_filter, bits, filled_fastbloom, fill_fastbloom
    ):
        is_main_case = name == "build and probe"  # the others are informative
        loop_limit, peer_limit = (30, 1) if is_main_case else (None, None)
        make_facts = facts if is_main_case else list
        yield Case(name, items, shape, ours, (loop,), limit=loop_limit, facts=make_facts)
        if make_fastbloom:
            name_with_peer = f"{name}, fastbloom-rs"
            yield Case(name_with_peer, items, shape, ours, (fastbloom_side,), limit=peer_limit)
        if rbloom_side and is_main_case:
            yield Case(f"{name}, rbloom", items, shape, ours, (rbloom_side,))


_WorkKind = tuple[str, int, TimedSide, TimedSide, TimedSide]
"""A kind of work: its name, the ids handled, ours, the loop, fastbloom-rs."""


def _work_kinds(
    keys: Int64Array,
    absent: Int64Array,
    bloom_filter: BloomFilter,
    bits: _Bits,
    fastbloom: Any,
    fill_fastbloom: Callable[[list[int]], Any],
) -> Iterator[_WorkKind]:
    """Yield (name, number of ids, our side, the loop's, fastbloom's) of each kind of work."""
    bit_count, hash_count = bloom_filter.bit_size, bloom_filter.hash_count

    def loop_both() -> list[bool]:
        key_list = keys.tolist()
        return _probe_by_loop(_fill_by_loop(key_list, bit_count, hash_count), key_list, hash_count)

    def fastbloom_both() -> list[bool]:
        key_list = keys.tolist()
        answers: list[bool] = fill_fastbloom(key_list).contains_int_batch(key_list)
        return answers

    yield (
        "build and probe",
        2 * keys.size,
        TimedSide("add_many, contains_many", lambda: _build_filter(keys).contains_many(keys)),
        TimedSide("mmh3 per key", loop_both),
        TimedSide("add_int_batch, contains_int_batch", fastbloom_both),
    )
    key_list = keys.tolist()
    yield (
        "build, from a list",
        keys.size,
        TimedSide("add_many, from an array", lambda: _build_filter(keys)),
        TimedSide("mmh3 per key", lambda: _fill_by_loop(key_list, bit_count, hash_count)),
        TimedSide("add_int_batch", lambda: fill_fastbloom(key_list)),
    )
    for name, queried in (("present", keys), ("absent", absent)):
        yield _probe_kind(name, bloom_filter, queried, bits, fastbloom)


def _probe_kind(
    name: str, bloom_filter: BloomFilter, queried: Int64Array, bits: _Bits, fastbloom: Any
) -> _WorkKind:
    key_list, hash_count = queried.tolist(), bloom_filter.hash_count
    return (
        f"probe {name} ids, from a list",
        queried.size,
        TimedSide("contains_many, from an array", lambda: bloom_filter.contains_many(queried)),
        TimedSide("mmh3 per key", lambda: _probe_by_loop(bits, key_list, hash_count)),
        TimedSide("contains_int_batch", lambda: fastbloom.contains_int_batch(key_list)),
    )


ROWS = (
    BenchmarkRow(
        "bloom",
        "bloom filter, built and probed",
        "Build and probe: all sides begin with the same int64 array, fill a new filter of the "
        "right size and ask it for every id, which is the most work a probe can be. The others "
        "turn the array into a list once, the only form that both take as fast; ours answers "
        "bool[n], theirs a list. 'From a list': one half of that work, the list made before, "
        "ours from the array. 'mmh3 per key': a Python loop over a bytearray, one mmh3 call an "
        "id, then its bits, with the bits and answers of ours. fastbloom-rs, a Rust package with "
        "batch calls and a layout of its own, and rbloom, which hashes Python objects, are "
        "compared where they are installed.",
        _bloom_cases,
    ),
)
