"""Vectors made by running BookKeeper's own classes: availability and distribution schedule."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bkstore import schedule
from bkstore.availability import Availability
from bkstore.errors import CorruptionError, InvalidArgument


def vectors(golden: Path, name: str) -> list[Any]:
    """Return the documents of every file of that name below the golden folder."""
    found = []
    for path in sorted(golden.rglob(f"{name}.json*")):
        data = path.read_bytes()
        found.append(json.loads(gzip.decompress(data) if path.suffix == ".gz" else data))
    if not found:
        pytest.skip(f"no {name} below {golden}")
    return found


@pytest.fixture(scope="module")
def encoded(golden: Path) -> list[dict[str, Any]]:
    """Return the encode vectors, each with its ids as a list."""
    found = [v for d in vectors(golden, "availability_vectors") for v in d["encode"]]
    for vector in found:
        if "ids" not in vector:
            runs = vector["id_runs"]
            vector["ids"] = [e for first, last in runs for e in range(first, last + 1)]
    return found


@pytest.fixture(scope="module")
def decoded(golden: Path) -> list[dict[str, Any]]:
    """Return the decode vectors."""
    return [v for d in vectors(golden, "availability_vectors") for v in d["decode"]]


@pytest.fixture(scope="module")
def schedules(golden: Path) -> list[dict[str, Any]]:
    """Return the schedule vectors, one a combination of E, W, A."""
    return [v for d in vectors(golden, "distribution_schedule_vectors") for v in d]


def is_sorted(vector: dict[str, Any]) -> bool:
    """Return whether ids came as a bookie lists them: ascending, none negative."""
    ids = vector["ids"]
    return all(a <= b for a, b in itertools.pairwise(ids)) and (not ids or ids[0] >= 0)


def checks(vector: dict[str, Any]) -> Iterator[tuple[dict[str, Any], list[int]]]:
    """Yield each unavailable check of a vector, and the ids that its mask asks for."""
    for check in vector["unavailable_checks"]:
        start, last, mask = check["start"], check["last"], check["mask"]
        if last < start:
            yield check, []
        elif mask == "all":
            yield check, list(range(start, last + 1))
        elif mask == "present":
            yield check, [e for e in vector["ids"] if start <= e <= last]
        else:
            yield check, [start + bit for bit in mask if start + bit <= last]


class TestEncode:
    """What the real class made of a list of ids."""

    def test_bytes(self, encoded: list[dict[str, Any]]) -> None:
        """For sorted input, encoding="bookkeeper" gives the real bytes."""
        for vector in filter(is_sorted, encoded):
            data = Availability.from_entries(vector["ids"]).to_bytes("bookkeeper")

            assert vector["serialized_sha256"] == hashlib.sha256(data).hexdigest(), vector["name"]
            assert vector["serialized_len"] == len(data)
            assert vector.get("serialized_hex", data.hex()) == data.hex()

    def test_grouped_bytes_are_the_same_set(self, encoded: list[dict[str, Any]]) -> None:
        """BP-34's grouped bytes are never longer, and the real decoder's rule reads the set."""
        for vector in filter(is_sorted, encoded):
            data = Availability.from_entries(vector["ids"]).to_bytes()
            read = Availability.from_bytes(data, compat="bookkeeper")

            assert len(data) <= vector["serialized_len"], vector["name"]
            assert len(set(vector["ids"])) == len(read)
            assert all(answer == (entry in read) for entry, answer in vector["is_available"])

    def test_decode_of_real_bytes(self, encoded: list[dict[str, Any]]) -> None:
        """The real bytes of sorted input decode to the set that was encoded."""
        for vector in filter(is_sorted, encoded):
            if "serialized_hex" in vector:
                answer = Availability.from_bytes(bytes.fromhex(vector["serialized_hex"]))

                assert sorted(set(vector["ids"])) == answer.entries().tolist(), vector["name"]
                assert vector["decoded_total_available"] == len(answer)

    def test_membership(self, encoded: list[dict[str, Any]]) -> None:
        """Membership is the true one, and the real class agrees where input was sorted."""
        for vector in encoded:
            ids = [entry for entry in vector["ids"] if 0 <= entry < 2**63 - 1]
            answer = Availability.from_entries(ids)
            present = set(ids)
            for entry, real in vector["is_available"]:
                assert (entry in present) == (entry in answer), (vector["name"], entry)
                if is_sorted(vector) and entry < 2**63 - 1:
                    assert real == (entry in answer), (vector["name"], entry)

    def test_missing_is_the_set_difference(self, encoded: list[dict[str, Any]]) -> None:
        """`missing` is expected minus present, also where the real answer has false losses."""
        false_losses = 0
        for vector in filter(is_sorted, encoded):
            answer = Availability.from_entries(vector["ids"])
            present = set(vector["ids"])
            for check, asked in checks(vector):
                wanted = [entry for entry in asked if 0 <= entry < 2**63 - 1]
                truth = sorted({entry for entry in wanted if entry not in present})
                found = answer.missing(Availability.from_entries(wanted)).entries().tolist()

                assert truth == found, (vector["name"], check["start"], check["last"])
                assert set(truth) <= set(check["unavailable"]) | {2**63 - 1}
                false_losses += len(set(check["unavailable"]) - set(truth)) > 0

        assert false_losses > 0, "the vectors show the real defect no longer"

    def test_compat_groups_and_totals(self, encoded: list[dict[str, Any]]) -> None:
        """Under compat every input, sorted or not, gives the real groups, bytes and totals."""
        for vector in encoded:
            built = Availability.from_entries(vector["ids"], compat="bookkeeper")
            data = built.to_bytes()

            assert vector["serialized_sha256"] == hashlib.sha256(data).hexdigest(), vector["name"]
            assert vector["groups"] == len(built.groups)
            assert vector["total_available"] == len(built)
            assert vector["decoded_total_available"] == len(
                Availability.from_bytes(data, compat="bookkeeper")
            )

    def test_compat_membership(self, encoded: list[dict[str, Any]]) -> None:
        """Under compat look-ups answer as the real class, wrong negatives included."""
        for vector in encoded:
            built = Availability.from_entries(vector["ids"], compat="bookkeeper")
            asked = [entry for entry, _ in vector["is_available"]]

            assert [real for _, real in vector["is_available"]] == [
                entry in built for entry in asked
            ], vector["name"]
            assert [real for _, real in vector["is_available"]] == built.contains_many(
                asked
            ).tolist()

    def test_compat_missing(self, encoded: list[dict[str, Any]]) -> None:
        """Under compat `missing` is what getUnavailableEntries reported, false losses included."""
        for vector in encoded:
            built = Availability.from_entries(vector["ids"], compat="bookkeeper")
            for check, asked in checks(vector):
                wanted = Availability.from_entries([e for e in asked if 0 <= e < 2**63 - 1])
                found = built.missing(wanted, check["start"], check["last"]).entries().tolist()

                assert check["unavailable"] == found, (vector["name"], check)

    def test_compat_missing_of_a_plain_answer(self, encoded: list[dict[str, Any]]) -> None:
        """``missing(compat=)`` of a correct answer is the real report for sorted input."""
        for vector in filter(is_sorted, encoded):
            answer = Availability.from_entries(vector["ids"])
            for check, asked in checks(vector):
                wanted = Availability.from_entries([e for e in asked if 0 <= e < 2**63 - 1])
                found = answer.missing(wanted, check["start"], check["last"], compat="bookkeeper")

                assert check["unavailable"] == found.entries().tolist(), vector["name"]


class TestDecode:
    """What the real class made of hand-made bytes."""

    def test_compat(self, decoded: list[dict[str, Any]]) -> None:
        """Under compat every byte string gives the real answers, or an error where it threw."""
        for vector in decoded:
            data = bytes.fromhex(vector["serialized_hex"])
            if "error" in vector:
                with pytest.raises(CorruptionError):
                    Availability.from_bytes(data, compat="bookkeeper")
                continue
            built = Availability.from_bytes(data, compat="bookkeeper")
            whole = Availability.from_ranges([(0, 199)])
            available = [entry for entry in range(200) if entry in built]

            assert vector["total_available"] == len(built), vector["name"]
            assert vector["reserialized_hex"] == built.to_bytes().hex()
            assert vector["available_0_199"] == available
            assert (
                vector["unavailable_0_199_all"] == built.missing(whole, 0, 199).entries().tolist()
            )
            assert (
                vector["unavailable_0_199_mask_available"]
                == built.missing(Availability.from_entries(available), 0, 199).entries().tolist()
            )

    def test_default(self, decoded: list[dict[str, Any]]) -> None:
        """By default bytes are either the exact set that their groups say, or damage."""
        for vector in decoded:
            data = bytes.fromhex(vector["serialized_hex"])
            ids: list[int] = []
            strict = int.from_bytes(data[:4], "big") == 0
            for first, last, size, period in vector["groups"]:
                strict &= first == last or (period > size and (last - first) % period == 0)
                for start in range(first, last + 1, period or max(last - first, 1)):
                    ids.extend(range(start, start + size))
            extents = sorted((g[0], g[1] + g[2]) for g in vector["groups"])
            strict &= all(a[1] <= b[0] for a, b in itertools.pairwise(extents))
            if not strict:
                with pytest.raises(CorruptionError):
                    Availability.from_bytes(data)
                continue
            answer = Availability.from_bytes(data)

            assert sorted(ids) == answer.entries().tolist(), vector["name"]
            assert vector["total_available"] == len(answer)
            assert vector["available_0_199"] == [e for e in range(200) if e in answer]


class TestSchedule:
    """What RoundRobinDistributionSchedule answered."""

    def test_write_sets(self, schedules: list[dict[str, Any]]) -> None:
        """Write set and ensemble set of every entry; array and single form."""
        for vector in schedules:
            ensemble, quorum = vector["E"], vector["W"]
            entries = [row["entry"] for row in vector["entries"]]

            assert [row["write_set"] for row in vector["entries"]] == schedule.write_sets(
                entries, ensemble, quorum
            ).tolist()
            for row in vector["entries"]:
                assert row["write_set"] == schedule.write_set(row["entry"], ensemble, quorum)
                assert row["ensemble_set"] == schedule.ensemble_set(row["entry"], ensemble)

    def test_single_index_slips(self, schedules: list[dict[str, Any]]) -> None:
        """Under compat the single forms slip at 32 bits like the real ones; by default never."""
        slips = 0
        for vector in schedules:
            ensemble, quorum = vector["E"], vector["W"]
            for row in vector["entries"]:
                entry = row["entry"]
                real = [
                    schedule.bookie_index(entry, n, ensemble, quorum, compat="bookkeeper")
                    for n in range(quorum)
                ]
                true = [schedule.bookie_index(entry, n, ensemble, quorum) for n in range(quorum)]

                assert row["write_set_bookie_index"] == real, (ensemble, quorum, entry)
                assert row["has_entry"] == [
                    schedule.has_entry(entry, b, ensemble, quorum, compat="bookkeeper")
                    for b in range(ensemble)
                ]
                assert row["write_set"] == true
                assert [b in row["write_set"] for b in range(ensemble)] == [
                    schedule.has_entry(entry, b, ensemble, quorum) for b in range(ensemble)
                ]
                slips += real != true

        assert slips > 0, "the vectors show the real defect no longer"

    def test_striped(self, schedules: list[dict[str, Any]]) -> None:
        """`expected` has a bookie's entries of a range, bit for bit."""
        for vector in schedules:
            for row in vector["striped"]:
                answer = schedule.expected(
                    row["start"], row["last"], row["bookie"], vector["E"], vector["W"]
                )

                assert [row["start"] + bit for bit in row["bits"]] == answer.entries().tolist()
                assert row["cardinality"] == len(answer)

    def test_illegal(self, schedules: list[dict[str, Any]]) -> None:
        """What the real method refuses is refused."""
        for vector in schedules:
            for row in vector["illegal"]:
                assert "IllegalArgumentException" == row["result"].lstrip("!")

                with pytest.raises(InvalidArgument):
                    schedule.expected(
                        row["start"], row["last"], row["bookie"], vector["E"], vector["W"]
                    )

    def test_coverage(self, schedules: list[dict[str, Any]]) -> None:
        """Whether a set of answering bookies covers all write sets."""
        for vector in schedules:
            for mask, covered in vector.get("coverage_by_ok_mask", []):
                answered = [bool(mask >> b & 1) for b in range(vector["E"])]

                assert covered == schedule.is_covered(answered, vector["W"], vector["A"]), (
                    vector["E"],
                    vector["W"],
                    vector["A"],
                    mask,
                )
