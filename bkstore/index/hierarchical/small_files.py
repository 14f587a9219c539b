"""Many small index files at once: read into one buffer, headers and slots checked together. A file
of one page costs little more than its system calls, as some hundred files share the cost of each
numpy call. A file that is long, torn, odd in any field or cannot be opened is left to the call for
a single ledger, which reports what is wrong with it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import compress
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.availability.sequence_groups import BoolArray
from bkstore.formats.entry.explicit_lac import MIN_EXPLICIT_LAC_BYTES
from bkstore.formats.idxfile import HEADER_SIZE, SLOT_SIZE, VERSION_0, VERSION_1
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import IndexBatch

MAX_FILE_BYTES = HEADER_SIZE + (1 << 17)
"""Bytes of the longest file that is read with others: 16,384 slots."""

_BYTES_PER_CHUNK = 1 << 20
"""Bytes read before they are checked: about the size of a second-level CPU cache."""

_HEADER_WORDS = HEADER_SIZE // SLOT_SIZE
_OPEN_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_SIGN_BYTE = np.int64(np.array([1 << 63], ">u8").view(np.int64)[0])
_SIGNATURE_OF_VERSION = [
    np.frombuffer(b"BKLE" + version.to_bytes(4, "big"), np.int64)[0]
    for version in (VERSION_0, VERSION_1)
]


class SmallFiles(NamedTuple):
    """Ledgers in the given order, and the slots of those whose files could be read here.
    `read_indexes` has the indexes in `ledger_ids` of the ledgers whose files are valid; the others
    must be read one by one. Slot 0 of the i-th valid file is ``words[first_words[i]]``; words are
    as in the file, and zero between the slots of two files. They are valid until the next step."""

    ledger_ids: list[LedgerId]
    read_indexes: list[int]
    words: Int64Array
    first_words: Int64Array

    def rows(self) -> Iterator[tuple[int, int, IndexBatch]]:
        """Yield (first, stop, rows) for each run of neighbors in `ledger_ids` whose files were all
        read: the rows of the ledgers number `first` to `stop` - 1."""
        read_indexes = np.array(self.read_indexes, np.int64)
        run_starts = np.flatnonzero(np.diff(read_indexes) != 1) + 1
        # A file's slots end where the header of the next one begins.
        end_words = np.append(self.first_words[1:] - _HEADER_WORDS, self.words.size)
        for run in np.split(np.arange(read_indexes.size), run_starts):  # numbers of valid files
            if run.size:
                # The slots of neighbors are adjacent: one pass finds all that hold a location, and
                # the starts of the files tell which file each belongs to.
                first, stop = int(read_indexes[run[0]]), int(read_indexes[run[-1]]) + 1
                first_word, end_word = int(self.first_words[run[0]]), int(end_words[run[-1]])
                present = np.flatnonzero(self.words[first_word:end_word]) + first_word
                file_of_word = np.searchsorted(self.first_words, present, "right") - 1
                signed_ids = [ledger_id.signed for ledger_id in self.ledger_ids[first:stop]]
                id_columns = np.array(signed_ids, np.int64).T
                scopes, ledgers = np.take(id_columns, file_of_word - run[0], axis=1)
                entries = present - self.first_words[file_of_word]
                locations = self.words[present].view(">i8").astype(np.int64)
                dir_indexes = np.broadcast_to(np.int64(0), present.shape)
                yield first, stop, IndexBatch(dir_indexes, scopes, ledgers, entries, locations)


def read_small_files(
    files: Iterable[tuple[LedgerId, str | None]], page_size: int
) -> Iterator[SmallFiles]:
    """Yield the slots of the ledgers' files, many files at a time. `read_indexes` of a result tells
    which ledgers' files were read: not those without a path, and none that a call for the single
    ledger has to judge, as they are long, do not end with a whole page of `page_size` bytes, or
    cannot be read. Memory: 1 MiB."""
    buffer = np.empty((_BYTES_PER_CHUNK + MAX_FILE_BYTES) // SLOT_SIZE + 1, np.int64)
    view = buffer.data.cast("B")
    ledger_ids: list[LedgerId] = []
    file_offsets: list[int] = []
    read_indexes: list[int] = []
    buffered = 0  # bytes of valid files at the start of the buffer
    for ledger_id, path in files:
        size = 0
        try:
            if path is not None:
                fd = os.open(path, _OPEN_FLAGS)
                try:
                    # One byte more than allowed shows that a file is too long.
                    size = os.readv(fd, (view[buffered : buffered + MAX_FILE_BYTES + 1],))
                finally:
                    os.close(fd)
        except OSError:  # a call for the single ledger reports it
            pass
        if HEADER_SIZE <= size <= MAX_FILE_BYTES and not (size - HEADER_SIZE) % page_size:
            file_offsets.append(buffered)
            read_indexes.append(len(ledger_ids))
            buffered += size
        ledger_ids.append(ledger_id)
        if buffered >= _BYTES_PER_CHUNK:
            words = buffer[: buffered // SLOT_SIZE]
            yield _check_files(ledger_ids, read_indexes, words, file_offsets)
            ledger_ids, file_offsets, read_indexes, buffered = [], [], [], 0
    if ledger_ids:
        yield _check_files(ledger_ids, read_indexes, buffer[: buffered // SLOT_SIZE], file_offsets)


def _check_files(
    ledger_ids: list[LedgerId], read_indexes: list[int], words: Int64Array, file_offsets: list[int]
) -> SmallFiles:
    """Return the slots of the files in a buffer of 8-byte words. File i begins at the byte
    ``file_offsets[i]`` and is that of the ledger number ``read_indexes[i]``. Files with a bad
    header or a negative location are left out, so that a call for the single ledger reports them.
    """
    # Zero the headers once they are checked, so that only slots are left in the buffer.
    file_starts = np.array(file_offsets, np.int64) // SLOT_SIZE
    is_good = _find_good_headers(words, file_starts)
    _clear_headers(words, file_starts)
    # One pass finds whether any location is negative; the files are searched only if one is.
    if words.size and np.bitwise_or.reduce(words) & _SIGN_BYTE:
        negative = np.flatnonzero(words & _SIGN_BYTE)
        # A word belongs to the last file that starts at or before it.
        is_good[np.searchsorted(file_starts, negative, "right") - 1] = False
    # Treat invalid files as if they had not been read.
    if not is_good.all():
        ends = np.concatenate((file_starts[1:], [words.size]))
        for bad_file in np.flatnonzero(~is_good).tolist():
            words[file_starts[bad_file] : ends[bad_file]] = 0
        read_indexes = list(compress(read_indexes, is_good.tolist()))
        file_starts = file_starts[is_good]
    return SmallFiles(ledger_ids, read_indexes, words, file_starts + _HEADER_WORDS)


def _clear_headers(words: Int64Array, file_starts: Int64Array) -> None:
    sizes = np.diff(file_starts, append=words.size)
    if sizes.size and (sizes == sizes[0]).all():
        words.reshape(file_starts.size, -1)[:, :_HEADER_WORDS] = 0  # all of one size, as most are
    else:
        words[(file_starts[:, None] + np.arange(_HEADER_WORDS)).ravel()] = 0


def _find_good_headers(words: Int64Array, file_starts: Int64Array) -> BoolArray:
    """Return which headers `idxfile.decode_header` certainly accepts (bool[files]). A header has 8
    bytes signature and version, i32 key length, the master key, u32 state bits; in version 1 also
    i32 LAC length, explicit LAC. File i begins with ``words[file_starts[i]]``, words of 8 bytes."""
    # 16: signature, version, key length, state bits; 20: the LAC length too.
    signatures = words[file_starts]
    has_lac_field = signatures == _SIGNATURE_OF_VERSION[VERSION_1]
    key_length = _read_int32s(words, file_starts * SLOT_SIZE + 8)
    is_good: BoolArray = has_lac_field | (signatures == _SIGNATURE_OF_VERSION[VERSION_0])
    is_good &= (key_length >= 0) & (key_length <= HEADER_SIZE - 16 - 4 * has_lac_field)
    # The LAC length is behind the key. The length of the key is any number in a bad header; 0 takes
    # its place there, as what is read then does not matter.
    skipped_key = np.where(is_good & has_lac_field, key_length, 0)
    lac_length = _read_int32s(words, file_starts * SLOT_SIZE + 16 + skipped_key)
    lac_fits = lac_length <= HEADER_SIZE - 20 - key_length
    lac_fits &= lac_length >= MIN_EXPLICIT_LAC_BYTES
    is_good &= ~has_lac_field | (lac_length == 0) | lac_fits
    return is_good


def _read_int32s(words: Int64Array, byte_offsets: Int64Array) -> Int64Array:
    """Return the big-endian int32 at each byte offset, aligned or not."""
    int_bytes: npt.NDArray[np.uint8] = words.view(np.uint8)[byte_offsets[:, None] + np.arange(4)]
    return int_bytes.view(">i4").ravel().astype(np.int64)
