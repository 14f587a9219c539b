"""Row: a bloom filter filled and asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import mmh3
import numpy as np

from bkstore.bloom import BloomFilter
from bkstore.ids import Int64Array
from tools.bench.measure import Case, Context, Fact, Row, Side

_FPP = 0.01

_Bits = bytearray
_LOW_63 = 2**63 - 1


def _fill_per_key(keys: list[int], size: int, hash_count: int) -> _Bits:
    """Fill a bit array key by key, the plain way: mmh3, then each bit."""
    bits, digest, rounds = bytearray(size // 8), mmh3.mmh3_x64_128_utupledigest, range(hash_count)
    for key in keys:
        h1, h2 = digest(key.to_bytes(8, "little", signed=True))
        for _ in rounds:
            place = (h1 & _LOW_63) % size
            bits[place >> 3] |= 1 << (place & 7)
            h1 += h2
    return bits


def _ask_per_key(bits: _Bits, keys: list[int], hash_count: int) -> list[bool]:
    size, digest, rounds = len(bits) * 8, mmh3.mmh3_x64_128_utupledigest, range(hash_count)
    found = []
    for key in keys:
        h1, h2 = digest(key.to_bytes(8, "little", signed=True))
        for _ in rounds:
            place = (h1 & _LOW_63) % size
            if not bits[place >> 3] >> (place & 7) & 1:
                found.append(False)
                break
            h1 += h2
        else:
            found.append(True)
    return found


def _fastbloom(context: Context) -> Callable[[int], Any] | None:
    """Return a maker of fastbloom-rs filters, None where the package is not installed."""
    package = context.peer("fastbloom_rs")
    if package is None:
        return None
    return lambda count: package.FilterBuilder(count, _FPP).build_bloom_filter()


def _rbloom(context: Context, keys: Int64Array) -> Side | None:
    """Return what builds and probes a filter of rbloom, None where it is not installed."""
    package = context.peer("rbloom")
    if package is None:
        return None

    def both() -> list[bool]:
        listed = keys.tolist()
        made = package.Bloom(keys.size, _FPP)
        made.update(listed)
        return list(map(made.__contains__, listed))

    return Side("update, then in", both)


def _build(keys: Int64Array) -> BloomFilter:
    made = BloomFilter(keys.size, _FPP)
    made.add_many(keys)
    return made


@contextmanager
def _bloom(context: Context) -> Iterator[Iterable[Case]]:
    count = context.scaled(1_000_000)
    drawn = np.random.default_rng(context.seed).integers(-(2**63), 2**63, 2 * count)
    yield _cases(context, drawn[:count], drawn[count:])


def _cases(context: Context, keys: Int64Array, absent: Int64Array) -> Iterator[Case]:
    make, held, count = _fastbloom(context), _build(keys), keys.size
    other = _rbloom(context, keys)
    size, hash_count = held.bit_size, held.hash_count
    bits = _fill_per_key(keys.tolist(), size, hash_count)

    def fill(listed: list[int]) -> Any:
        assert make is not None
        made = make(count)
        made.add_int_batch(listed)
        return made

    def facts() -> list[Fact]:
        same = bits == np.frombuffer(held.to_bytes(), ">u8", offset=6).astype("<u8").tobytes()
        return [
            Fact("bit array equals the loop's", "yes" if same else "no", "yes", same),
            Fact("bytes of the filter", held.nbytes),
        ]

    shape = f"{count} random 64-bit ids, int64 array, fpp {_FPP:g}"
    works = _works(keys, absent, held, bits, fill(keys.tolist()) if make else None, fill)
    for name, items, ours, loop, batch in works:
        judged = name == "build and probe"
        more = facts if judged else list
        yield Case(name, items, shape, ours, (loop,), 30 if judged else None, facts=more)
        if make:
            limit = 1 if judged else None
            yield Case(f"{name}, fastbloom-rs", items, shape, ours, (batch,), limit)
        if other and judged:
            yield Case(f"{name}, rbloom", items, shape, ours, (other,))


def _works(
    keys: Int64Array,
    absent: Int64Array,
    held: BloomFilter,
    bits: _Bits,
    theirs: Any,
    fill: Callable[[list[int]], Any],
) -> Iterator[tuple[str, int, Side, Side, Side]]:
    """Yield (name, ids handled, ours, the loop, fastbloom-rs) of each kind of work."""
    size, hash_count = held.bit_size, held.hash_count

    def both_per_key() -> list[bool]:
        listed = keys.tolist()
        return _ask_per_key(_fill_per_key(listed, size, hash_count), listed, hash_count)

    def both_by_batch() -> list[bool]:
        listed = keys.tolist()
        found: list[bool] = fill(listed).contains_int_batch(listed)
        return found

    yield (
        "build and probe",
        2 * keys.size,
        Side("add_many, contains_many", lambda: _build(keys).contains_many(keys)),
        Side("mmh3 per key", both_per_key),
        Side("add_int_batch, contains_int_batch", both_by_batch),
    )
    listed = keys.tolist()
    yield (
        "build, from a list",
        keys.size,
        Side("add_many, from an array", lambda: _build(keys)),
        Side("mmh3 per key", lambda: _fill_per_key(listed, size, hash_count)),
        Side("add_int_batch", lambda: fill(listed)),
    )
    for name, asked in (("present", keys), ("absent", absent)):
        yield _probe(name, held, asked, bits, theirs)


def _probe(
    name: str, held: BloomFilter, asked: Int64Array, bits: _Bits, theirs: Any
) -> tuple[str, int, Side, Side, Side]:
    listed, hash_count = asked.tolist(), held.hash_count
    return (
        f"probe {name} ids, from a list",
        asked.size,
        Side("contains_many, from an array", lambda: held.contains_many(asked)),
        Side("mmh3 per key", lambda: _ask_per_key(bits, listed, hash_count)),
        Side("contains_int_batch", lambda: theirs.contains_int_batch(listed)),
    )


ROWS = (
    Row(
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
        _bloom,
    ),
)
