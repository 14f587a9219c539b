"""Bloom filters of the real Guava: sizes, hashes, bytes, answers and estimates, to the bit."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bkstore.bloom import BloomFilter, filter_size, hash_key, hash_keys
from bkstore.bloom.filter import Compat
from bkstore.errors import InvalidArgument
from bkstore.ids import Int64Array

TWO_64 = 2**64
RULES: dict[str, Compat | None] = {"33.6.0": None, "31.1": "guava-31.1"}


@pytest.fixture(scope="module")
def folder(golden: Path) -> Path:
    """Return the folder of golden filters; skip where it is absent."""
    if not (golden / "bloom").is_dir():
        pytest.skip(f"no bloom below {golden}")
    return golden / "bloom"


def load(folder: Path, name: str) -> Any:
    """Return one document."""
    return json.loads((folder / f"{name}.json").read_bytes())


@pytest.fixture(scope="module")
def cases(folder: Path) -> list[dict[str, Any]]:
    """Return the filters of both versions of Guava."""
    names = ("filters", "filters_old_k")
    return [case for name in names for case in load(folder, name)["cases"]]


def signed(value: int) -> int:
    """Return the low 64 bits of a number in two's complement."""
    value %= TWO_64
    return value - TWO_64 if value >= 2**63 else value


def splitmix64(seed: int, count: int) -> list[int]:
    """Return the keys of the generator that the README of the golden data describes."""
    keys = []
    for nth in range(1, count + 1):
        z = (seed + nth * 0x9E3779B97F4A7C15) % TWO_64
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % TWO_64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % TWO_64
        keys.append(signed(z ^ z >> 31))
    return keys


def expand(keys: Any) -> list[int]:
    """Return the keys that a golden key set names."""
    if isinstance(keys, list):
        return keys
    if keys["gen"] == "concat":
        return [key for part in keys["parts"] for key in expand(part)]
    if keys["gen"] == "range":
        return [signed(keys["start"] + n * keys["step"]) for n in range(keys["count"])]
    return splitmix64(keys["seed"], keys["count"])


def array(keys: Any) -> Int64Array:
    """Return a golden key set as an array."""
    return np.array(expand(keys), np.int64)


def empty(case: dict[str, Any]) -> BloomFilter:
    """Return the case's filter before anything was put into it."""
    return BloomFilter(case["expected_insertions"], case["fpp"], compat=RULES[case["guava"]])


def filled(case: dict[str, Any]) -> BloomFilter:
    """Return the case's filter, filled from arrays, united where the case says so."""
    made = empty(case)
    made.add_many(array(case["keys"]))
    if "union_keys" in case:
        other = empty(case)
        other.add_many(array(case["union_keys"]))
        made = made | other
    return made


def test_generator_of_keys() -> None:
    """The first keys of seed 1 are those of the README."""
    expected = [-7995527694508729151, -4689498862643123097, -534904783426661026]

    assert expected == splitmix64(1, 3)


def test_sizes_and_hash_counts(folder: Path) -> None:
    """Size and both rules for the hash count agree with Guava, and so do its refusals."""
    rows = load(folder, "params")["rows"]

    assert 100 < len(rows)
    for row in rows:
        arguments = row["n"], row["fpp"]
        if row.get("rejected"):
            for call in (filter_size, BloomFilter):
                with pytest.raises(InvalidArgument):
                    call(*arguments)
            continue
        made = BloomFilter(*arguments)

        assert (row["num_words"], row["k_guava_33_6"]) == filter_size(*arguments), row
        assert (row["num_words"], row["k_guava_31_1"]) == filter_size(
            *arguments, compat="guava-31.1"
        ), row
        assert row["bit_size"] == made.bit_size
        assert row["serialized_len"] == len(made.to_bytes())
        assert row["header_hex_33_6"] == made.to_bytes()[:6].hex()


def test_hashes(folder: Path) -> None:
    """h1 and h2 of each key, one at a time and as arrays, are the halves of Guava's digest."""
    rows = load(folder, "hash")["rows"]
    expected = [(row["h1"] % TWO_64, row["h2"] % TWO_64) for row in rows]
    h1, h2 = hash_keys([row["key"] for row in rows])

    assert 50 < len(rows)
    assert expected == [hash_key(row["key"]) for row in rows]
    assert expected == list(zip(h1.tolist(), h2.tolist()))
    for row, halves in zip(rows, expected):
        assert (
            row["murmur3_x64_128_hex"]
            == b"".join(half.to_bytes(8, "little") for half in halves).hex()
        )


def test_bytes(cases: list[dict[str, Any]]) -> None:
    """Every filter has Guava's bytes, filled from arrays or id by id, and reads back as itself."""
    assert 45 <= len(cases)
    for case in cases:
        made, single = filled(case), empty(case)
        for key in expand(case["keys"]) + expand(case.get("union_keys", [])):
            single.add(key)
        data = made.to_bytes()

        assert case["serialized_sha256"] == hashlib.sha256(data).hexdigest(), case["name"]
        assert case["serialized_len"] == len(data)
        if "serialized_hex" in case:
            assert case["serialized_hex"] == data.hex()
        assert data == single.to_bytes(), case["name"]
        assert made == BloomFilter.from_bytes(data)
        assert case["num_hash_functions"] == made.hash_count
        assert case["bit_size"] == made.bit_size == made.nbytes * 8
        assert case["bits_set"] == made.bits_set


def test_answers(cases: list[dict[str, Any]]) -> None:
    """Every probe is answered as by Guava: in one array, one by one, and by its hash."""
    for case in cases:
        made, probes = filled(case), expand(case["probes"])
        expected = [answer == "1" for answer in case["might_contain"]]

        assert expected == made.contains_many(probes).tolist(), case["name"]
        assert expected == [key in made for key in probes], case["name"]
        assert expected == [made.contains_hash(*hash_key(key)) for key in probes]


def test_false_positives(cases: list[dict[str, Any]]) -> None:
    """The ids answered yes that are in no key set are as many as Guava's."""
    for case in cases:
        held = {*expand(case["keys"]), *expand(case.get("union_keys", []))}
        probes = expand(case["probes"])
        found = filled(case).contains_many(probes).tolist()
        wrong = sum(yes and key not in held for key, yes in zip(probes, found))

        assert case["false_positives"] == wrong, case["name"]


def test_puts_that_changed_bits(cases: list[dict[str, Any]]) -> None:
    """`add` says yes as often as Guava's put did."""
    for case in cases:
        made = empty(case)
        changed = sum(made.add(key) for key in expand(case["keys"]))

        assert case["puts_that_changed_bits"] == changed, case["name"]


def test_estimates(cases: list[dict[str, Any]]) -> None:
    """Count and rate are Guava's; where it throws, every bit being set, the count is infinite."""
    for case in cases:
        made = filled(case)
        count = case["approximate_element_count"]

        assert (float("inf") if count is None else count) == made.approximate_count, case["name"]
        assert pytest.approx(case["expected_fpp"], rel=1e-12, abs=0) == made.expected_fpp
        assert pytest.approx(float.fromhex(case["expected_fpp_hex"]), rel=1e-12, abs=0) == (
            made.expected_fpp
        )
