"""The survey of all files of all bookies: in several processes, each file once, resumable."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bkstore.errors import BkstoreError, CorruptionError
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.opening import read_file
from bkstore.files.os_errors import convert_sync_errors, convert_write_errors
from bkstore.formats.syntax.json_text import format_json, parse_json
from bkstore.ids import LedgerId
from bkstore.offline.reading.manifest import finding_from_json, finding_to_json
from bkstore.offline.spilled_rows.sorted_runs import SortedRun
from bkstore.offline.worker_pool import TaskLost, TaskRunner, WorkerPool
from bkstore.rescue.disks.file_survey import (
    FileSurvey,
    JournaledLedger,
    SourceFile,
    run_path,
    survey_file,
)
from bkstore.rescue.disks.sources import SourceBookie, highest_explicit_lacs, list_files
from bkstore.rescue.disks.wanted_ledgers import LedgerSecrets
from bkstore.version import __version__

_MIN_PARALLEL_BYTES = 64 << 20
"""From so many bytes on, processes are used: each takes half a second to start."""

_RECORD_LIMIT = 1 << 30

ShowProgress = Callable[[str, int, int, int], None]
"""Called with a label, the work done, all work, and a count."""


@dataclass
class SurveyedCopies:
    """The result for all files: the files by number; sorted runs of copies; the highest LAC of each
    ledger that is not closed; the states of ledgers in journals. `key` is a digest of the secrets,
    and of all files and index rows that the result depends on."""

    files: list[SourceFile] = field(default_factory=list)
    runs: list[SortedRun] = field(default_factory=list)
    lacs: dict[LedgerId, int] = field(default_factory=dict)
    states: dict[LedgerId, JournaledLedger] = field(default_factory=dict)
    key: str = ""


def survey_bookies(
    bookies: Sequence[SourceBookie],
    secrets: LedgerSecrets,
    folder: Path,
    work: Path,
    *,
    jobs: int | None = None,
    progress: ShowProgress | None = None,
    files: Files = OS_FILES,
) -> SurveyedCopies:
    """Return the copies of all wanted entries on the bookies' disks.

    Runs and results are kept in `folder`, those of unchanged files are taken from there; `work` has
    the rows of the indexes. `jobs` processes read files (None: one for each CPU, or this one if
    there are few bytes). Damage is added to the findings of its bookie. Cost: see `survey_file`;
    disk: 56 bytes a copy. Memory: some 100 MiB a process.
    """
    result = SurveyedCopies()
    result.files, fingerprints = list_files(bookies, secrets, work)
    result.lacs = highest_explicit_lacs(bookies, secrets)
    secrets_key = _secrets_key(secrets)
    keys = [
        _survey_key(source, fingerprint, secrets_key)
        for source, fingerprint in zip(result.files, fingerprints)
    ]
    result.key = hashlib.blake2b(repr((secrets_key, keys)).encode(), digest_size=16).hexdigest()
    total, done = sum(source.bytes for source in result.files), 0
    with closing(_survey_files(result.files, keys, secrets, folder, jobs, files)) as surveys:
        for source, survey in surveys:
            done += source.bytes
            _add_survey(result, bookies[source.bookie], survey)
            if progress is not None:
                progress("survey", done, total, sum(run.rows for run in result.runs))
    return result


def _add_survey(result: SurveyedCopies, bookie: SourceBookie, survey: FileSurvey) -> None:
    result.runs += survey.runs
    bookie.findings += survey.findings
    bookie.may_hide_records |= survey.may_hide_records
    for ledger_id, lac in survey.lacs.items():
        result.lacs[ledger_id] = max(lac, result.lacs.get(ledger_id, -1))
    for ledger_id, facts in survey.states.items():
        known = result.states.setdefault(ledger_id, JournaledLedger())
        known.master_key = known.master_key or facts.master_key
        known.fenced |= facts.fenced


def _survey_files(
    sources: Sequence[SourceFile],
    keys: Sequence[str],
    secrets: LedgerSecrets,
    folder: Path,
    jobs: int | None,
    files: Files,
) -> Generator[tuple[SourceFile, FileSurvey]]:
    """Yield each file with its survey: surveys that an earlier rescue has kept first, then
    others."""
    unread: list[SourceFile] = []
    for source in sources:
        survey = _read_survey(folder, source, keys[source.number])
        if survey is None:
            unread.append(source)
        else:
            yield source, survey
    # The disks of several bookies are read at the same time: one file of each in turn.
    order = {source.number: rank for rank, source in _rank_in_bookie(unread)}
    unread.sort(key=lambda source: (order[source.number], source.bookie))
    total = sum(source.bytes for source in unread)
    if jobs is None:
        jobs = (os.cpu_count() or 1) if total >= _MIN_PARALLEL_BYTES else 1
    if min(jobs, len(unread)) > 1:
        yield from _survey_in_processes(unread, keys, secrets, folder, jobs, files)
        return
    for source in unread:
        survey = _survey_and_store(source, keys[source.number], secrets, folder, files)
        yield source, survey


def _rank_in_bookie(sources: Sequence[SourceFile]) -> Iterator[tuple[int, SourceFile]]:
    """Yield each file with its rank among those of its bookie."""
    counts: dict[int, int] = {}
    for source in sources:
        counts[source.bookie] = counts.get(source.bookie, -1) + 1
        yield counts[source.bookie], source


def _survey_in_processes(
    unread: Sequence[SourceFile],
    keys: Sequence[str],
    secrets: LedgerSecrets,
    folder: Path,
    jobs: int,
    files: Files,
) -> Iterator[tuple[SourceFile, FileSurvey]]:
    open_runner = partial(open_surveyor, secrets, folder, files)
    pool = WorkerPool(min(jobs, len(unread)), open_runner, "rescue")
    tasks = [(source, keys[source.number]) for source in unread]
    with closing(pool.run(tasks)) as results:
        for (source, _), survey in results:
            if isinstance(survey, TaskLost):
                raise BkstoreError(f"{source.path}: not read: {survey.reason}")
            yield source, survey


@contextmanager
def open_surveyor(
    secrets: LedgerSecrets, folder: Path, files: Files
) -> Iterator[TaskRunner[tuple[SourceFile, str], FileSurvey]]:
    """Provide a worker's function for files with the keys of their surveys."""

    def survey(task: tuple[SourceFile, str], _report: object) -> FileSurvey:
        source, key = task
        return _survey_and_store(source, key, secrets, folder, files)

    yield survey


# -- surveys that are kept for the next run


def _secrets_key(secrets: LedgerSecrets) -> str:
    """Return a digest of what verifies records, and of how the code does that."""
    ledgers = sorted(
        (*ledger_id, number, ledger_id in secrets.open_ledgers)
        for ledger_id, number in secrets.numbers.items()
    )
    facts = (__version__, secrets.secrets, ledgers)
    return hashlib.blake2b(repr(facts).encode(), digest_size=16).hexdigest()


def _survey_key(source: SourceFile, fingerprint: str, secrets_key: str) -> str:
    """Return a digest of all that a file's survey depends on."""
    try:
        status = os.stat(source.path)
        # Another copy of a file often has its old modification time, but never its change time.
        identity = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    except OSError:
        identity = (-1, 0, 0, 0)
    file_facts = (
        os.path.realpath(source.path),
        source.number,
        source.bookie,
        identity,
        fingerprint,
        secrets_key,
    )
    return hashlib.blake2b(repr(file_facts).encode(), digest_size=16).hexdigest()


def _survey_and_store(
    source: SourceFile, key: str, secrets: LedgerSecrets, folder: Path, files: Files
) -> FileSurvey:
    """Survey a file, and store the result durably if all of the file could be read."""
    _remove_earlier_run(source, folder, files)
    survey = survey_file(source, secrets, folder, files)
    if not survey.is_complete:
        return survey
    for run in survey.runs:
        with convert_sync_errors(run.path):
            files.sync_file(run.path)
    record = folder / f"{source.number:08x}.json"
    with convert_write_errors(record):
        files.makedirs(folder)
        data = format_json({"key": key} | _survey_to_json(survey)).encode()
        files.write_file(record, data, mode=0o600)  # journals have master keys
    return survey


def _remove_earlier_run(source: SourceFile, folder: Path, files: Files) -> None:
    """Remove what an earlier rescue has written for a file: the record of its survey first, which
    makes its spilled runs valid, then these."""
    record = folder / f"{source.number:08x}.json"
    spilled_runs: list[Path] = []
    while (path := run_path(folder, source.number, len(spilled_runs))).exists():
        spilled_runs.append(path)
    for path in [record, *spilled_runs]:
        with convert_write_errors(path), suppress(FileNotFoundError):
            files.unlink(path)


def _survey_to_json(survey: FileSurvey) -> dict[str, Any]:
    return {
        "runs": [
            {"name": run.path.name, "rows": run.rows, "columns": run.columns, "step": run.step}
            | {"samples": run.samples}
            for run in survey.runs
        ],
        "findings": list(map(finding_to_json, survey.findings)),
        "lacs": [[*ledger_id, lac] for ledger_id, lac in survey.lacs.items()],
        "states": [
            [*ledger_id, None if each.master_key is None else each.master_key.hex(), each.fenced]
            for ledger_id, each in survey.states.items()
        ],
        "may_hide_records": survey.may_hide_records,
    }


def _read_survey(folder: Path, source: SourceFile, key: str) -> FileSurvey | None:
    """Return the survey of a file that an earlier rescue has kept; None if there is none, or if
    anything that `_survey_key` covers has changed."""
    try:
        record = parse_json(read_file(folder / f"{source.number:08x}.json", _RECORD_LIMIT))
    except (OSError, CorruptionError):
        return None
    if not isinstance(record, dict) or record.get("key") != key:
        return None
    runs = [_run_from_json(folder, run) for run in record["runs"]]
    try:
        if any(os.stat(run.path).st_size != run.bytes for run in runs):
            return None
    except OSError:
        return None
    return FileSurvey(
        runs,
        list(map(finding_from_json, record["findings"])),
        {LedgerId(scope, ledger): lac for scope, ledger, lac in record["lacs"]},
        {
            LedgerId(scope, ledger): JournaledLedger(
                None if master_key is None else bytes.fromhex(master_key), fenced
            )
            for scope, ledger, master_key, fenced in record["states"]
        },
        record["may_hide_records"],
    )


def _run_from_json(folder: Path, run: dict[str, Any]) -> SortedRun:
    samples = [tuple(sample) for sample in run["samples"]]
    return SortedRun(folder / run["name"], run["rows"], run["columns"], run["step"], samples)
