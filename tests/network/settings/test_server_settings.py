"""`ServerSettings`: each key of a `bk_server.conf` reaches its option, or is refused by name."""

from __future__ import annotations

import getpass
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bkstore import BkstoreError, IllegalOperation, InvalidArgument
from bkstore.cluster.garbage import GarbageOptions
from bkstore.network.disk_watch import DiskOptions
from bkstore.network.settings import ServerSettings
from bkstore.network.settings.keys import HONORED_KEYS, IGNORED_KEYS, REFUSED_KEYS
from bkstore.network.settings.security import TlsFiles
from bkstore.storage.options import JournalOptions, StorageOptions
from bkstore.wire.server import ServerOptions

MIB = 1 << 20
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="addresses of interfaces: Linux only")


def _read(folder: Path, *lines: str) -> ServerSettings:
    path = folder / "bk_server.conf"
    text = "\n".join(("ledgerDirectories=/data", *lines))
    path.write_text(text, encoding="iso-8859-1")
    return ServerSettings.read(path)


def test_a_conf_that_says_nothing(tmp_path: Path) -> None:
    """What is not in the file is as without one."""
    nothing = ServerSettings()

    assert nothing == replace(_read(tmp_path), conf=nothing.conf)
    assert StorageOptions() == _read(tmp_path).storage_options("db")


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("bookiePort 4000", "port", 4000),
        ("bookieId : b1", "bookie_id", "b1"),
        ("bookieId=", "bookie_id", None),
        ("advertisedAddress= host.example ", "advertise", "host.example"),
        ("advertisedAddress=", "advertise", None),
        pytest.param("listeningInterface=lo", "host", "127.0.0.1", marks=LINUX),
        ("metadataServiceUri=zk+flat://a:1/l", "metadata", "zk+flat://a:1/l"),
        ("zkServers=a:1,b:2", "metadata", "zk+null://a:1;b:2/ledgers"),
        ("zkServers=a:1\nzkLedgersRootPath=/x", "metadata", "zk+null://a:1/x"),
        (
            "zkServers=a:1\nledgerManagerFactoryClass="
            "org.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory",
            "metadata",
            "zk+longhierarchical://a:1/ledgers",
        ),
        ("metadataServiceUri=zk://a/l\nzkServers=b:1", "metadata", "zk://a/l"),
        ("metadataServiceUri= \\t \nzkServers=b:1", "metadata", "zk+null://b:1/ledgers"),
        ("metadataServiceUri=\xa0\nzkServers=b:1", "metadata", "\xa0"),  # no white space of Java's
        ("zkTimeout=2500", "session_timeout", 2.5),
        ("flushInterval=500", "checkpoint_interval", 0.5),
        ("httpServerEnabled=true", "http", ("127.0.0.1", 8080)),
        ("httpServerEnabled=1\nhttpServerHost=::\nhttpServerPort=0", "http", ("::", 0)),
        ("httpServerPort=9000", "http", None),
        (
            "ledgerStorageClass=org.apache.bookkeeper.bookie.SortedLedgerStorage",
            "storage",
            "sorted",
        ),
        ("sortedLedgerStorageEnabled=false", "storage", "interleaved"),
        (
            "ledgerStorageClass=org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
            "storage",
            "db",
        ),
        ("forceReadOnlyBookie=yes", "read_only", True),
        ("readOnlyModeEnabled=no", "stop_when_full", True),
        ("nettyMaxFrameSizeBytes=1000000", "server", ServerOptions(max_frame=1000000)),
        (
            "journalFormatVersionToWrite=5\nfileInfoFormatVersionToWrite=0",
            "journal",
            JournalOptions(version=5),
        ),
        ("journalMaxSizeMB=0x10", "journal", JournalOptions(max_size=16 * MIB)),
        ("journalPreAllocSizeMB=4", "journal", JournalOptions(preallocate=4 * MIB)),
        (
            "journalAlignmentSize=1536\njournalPreAllocSizeMB=3",
            "journal",
            JournalOptions(alignment=1536, preallocate=3 * MIB),
        ),
        (
            "journalAlignmentSize=1048576\njournalPreAllocSizeMB=1",
            "journal",
            JournalOptions(alignment=MIB, preallocate=MIB),
        ),
        ("journalWriteBufferSizeKB=1", "journal", JournalOptions(write_buffer=1024)),
        ("journalMaxBackups=0", "journal", JournalOptions(max_backups=0)),
        (
            "skipReplayJournalInvalidRecord=true",
            "journal",
            JournalOptions(skip_invalid_records=True),
        ),
        ("diskUsageThreshold=.9", "disks", DiskOptions(full=0.9, writable_again=0.9)),
        ("diskUsageLwmThreshold=0.8", "disks", DiskOptions(writable_again=0.8)),
        ("diskCheckInterval=250", "disks", DiskOptions(interval=0.25)),
        ("readOnlyModeOnAnyDiskFullEnabled=false", "disks", DiskOptions(any_full=False)),
    ],
)
def test_what_a_key_sets(tmp_path: Path, line: str, field: str, value: Any) -> None:
    """A key sets its option, in the option's unit."""
    assert value == getattr(_read(tmp_path, line), field)


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("logSizeLimit=1048576", {"entry_log_size": MIB}),
        ("entryLogPerLedgerEnabled=true", {"entry_log_per_ledger": True}),
        ("maximumNumberOfActiveEntryLogs=7", {"max_active_logs": 7}),
        ("skipListSizeLimit=1000000\ndbStorage_writeCacheMaxSizeMb=1", {"write_cache": 1000000}),
        ("pageSize=4096", {"page_size": 4096}),
        ("pageSize=4096\npageLimit=10", {"page_size": 4096, "pending_locations": 5120}),
        ("pageLimit=-1", {}),
        (
            "fileInfoFormatVersionToWrite=0\njournalFormatVersionToWrite=5",
            {"index_header_version": 0},
        ),
        ("maxBatchReadSize=1000", {"max_batch_size": 1000}),
        ("nettyMaxFrameSizeBytes=6000000", {"max_entry_size": 6000000}),
        ("nettyMaxFrameSizeBytes=1000000", {}),
    ],
)
def test_storage_options(tmp_path: Path, line: str, options: dict[str, Any]) -> None:
    """Keys of the storage, the caches of each kind apart."""
    assert StorageOptions(**options) == _read(tmp_path, line).storage_options("sorted")


def test_the_write_cache_of_db_storage(tmp_path: Path) -> None:
    """It has a key of its own, in MiB."""
    settings = _read(tmp_path, "skipListSizeLimit=1000000", "dbStorage_writeCacheMaxSizeMb=2")

    assert 2 * MIB == settings.storage_options("db").write_cache


def test_an_empty_key_of_db_storage(tmp_path: Path) -> None:
    """It is no key, as `DbLedgerStorage` reads it; an empty one of others is no number."""
    settings = _read(tmp_path, "dbStorage_writeCacheMaxSizeMb=", "dbStorage_directIOEntryLogger=")

    assert StorageOptions() == settings.storage_options("db")
    assert () == settings.ignored_keys
    with pytest.raises(InvalidArgument, match="logSizeLimit"):
        _read(tmp_path, "logSizeLimit=").storage_options("db")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("bookiePort=x", "bookiePort: 'x' is not an integer"),
        ("bookiePort=0", "bookiePort: 0 .any free port. needs"),
        ("bookiePort=65536", "bookiePort: 65536 is not a port"),
        ("bookieId=a b", "bookieId: "),
        ("flushInterval=0", "flushInterval: must be above 0"),
        ("zkTimeout=-1", "zkTimeout: must be above 0"),
        ("bookieId=${none}", "bookieId: .* has an undefined variable"),
        ("advertisedAddress=${sys:x}", "advertisedAddress: .*replace it by its value"),
        pytest.param(
            "listeningInterface=nosuch0", "listeningInterface: .*no IPv4 address.*lo", marks=LINUX
        ),
        ("ledgerStorageClass=org.example.Own", "ledgerStorageClass: .*Own is not one of Sorted"),
        ("ledgerManagerFactoryClass=org.example.Own", "ledgerManagerFactoryClass: .*Own"),
        ("httpServerEnabled=maybe", "httpServerEnabled: 'maybe' is neither"),
        ("httpServerEnabled=true\nhttpServerPort=70000", "httpServerPort: 70000"),
        ("journalMaxSizeMB=0", "journalMaxSizeMB: max_size must be"),
        ("journalAlignmentSize=100", "journalAlignmentSize: 100 is not a multiple"),
        ("journalPreAllocSizeMB=0", "journalPreAllocSizeMB: is less than"),
        ("journalAlignmentSize=1536", "journalAlignmentSize: preallocate must be a multiple"),
        ("journalFormatVersionToWrite=5", "journalFormatVersionToWrite: must be 6"),
        ("diskUsageThreshold=1", "diskUsageThreshold: 1.0 is not a share"),
        ("diskUsageLwmThreshold=0.99", "diskUsageLwmThreshold: 0.99 is not above 0 and at most"),
        ("diskCheckInterval=0", "diskCheckInterval: interval must be"),
        ("nettyMaxFrameSizeBytes=1", "nettyMaxFrameSizeBytes: max_frame must be"),
        ("forceReadOnlyBookie=true\nreadOnlyModeEnabled=false", "forceReadOnlyBookie: needs"),
    ],
)
def test_wrong_values(tmp_path: Path, line: str, why: str) -> None:
    """A value that a bookie does not start with is refused with the file and the key."""
    with pytest.raises(InvalidArgument, match=rf"bk_server\.conf: {why}"):
        _read(tmp_path, line)


def test_wrong_values_of_the_storage(tmp_path: Path) -> None:
    """So is one of the storage, when its options are made."""
    settings = _read(tmp_path, "logSizeLimit=2000000000")
    with pytest.raises(InvalidArgument, match="logSizeLimit: entry_log_size must be"):
        settings.storage_options("sorted")


TLS = "tlsProviderFactoryClass=org.apache.bookkeeper.tls.TLSContextFactory\ntlsKeyStoreType=PEM"
FILES = f"{TLS}\ntlsKeyStore=/key\ntlsCertificatePath=/cert"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("authorizedRoles=a,b", "authorizedRoles: "),
        ("zkEnableSecurity=true", "zkEnableSecurity: "),
        ("permittedStartupUsers=nobody-of-this-name", "permittedStartupUsers: .* not one of them"),
        ("httpServerEnabled=true\nhttpServerTlsEnable=true", "httpServerTlsEnable: "),
        (
            "tlsProviderFactoryClass org.example.Own",
            "tlsProviderFactoryClass: .*Own is not supported",
        ),
        (TLS.replace("PEM", "JKS"), "tlsKeyStoreType: "),
        (TLS, "tlsCertificatePath: names no file"),
        (f"{FILES}\ntlsEnabledProtocols=TLSv1.3", "tlsEnabledProtocols: "),
        (f"{FILES}\ntlsEnabledCipherSuites=x", "tlsEnabledCipherSuites: "),
        (f"{FILES}\ntlsKeyStorePasswordPath=/p", "tlsKeyStorePasswordPath: "),
        (f"{FILES}\ntlsClientAuthentication=true", "tlsTrustStoreType: "),
        (
            f"{FILES}\ntlsClientAuthentication=true\ntlsTrustStoreType=PEM",
            "tlsTrustStore: names no file",
        ),
    ],
)
def test_security_that_is_not_served(tmp_path: Path, line: str, why: str) -> None:
    """A bookie is not served with less protection than its conf asks for."""
    with pytest.raises(IllegalOperation, match=rf"bk_server\.conf: {why}"):
        _read(tmp_path, line)


@pytest.mark.parametrize(
    ("lines", "files"),
    [
        ("tlsKeyStoreType=JKS", None),
        ("tlsProviderFactoryClass=", None),
        ("httpServerTlsEnable=true", None),
        (f"permittedStartupUsers=x,{getpass.getuser()}", None),
        ("permittedStartupUsers=", None),
        ("zkEnableSecurity=false\nauthorizedRoles=", None),
        (FILES, TlsFiles(Path("/cert"), Path("/key"), None)),
        (
            f"{FILES}\ntlsClientAuthentication=yes\ntlsTrustStoreType=PEM\ntlsTrustStore=/ca",
            TlsFiles(Path("/cert"), Path("/key"), Path("/ca")),
        ),
    ],
)
def test_security_that_is_served(tmp_path: Path, lines: str, files: TlsFiles | None) -> None:
    """PEM files are those of START_TLS; keys that ask for nothing refuse nothing."""
    assert files == _read(tmp_path, lines).tls


def test_keys_that_are_not_honored(tmp_path: Path) -> None:
    """They are named where they would change what a bookie does, and not with the value that it
    has anyway."""
    settings = _read(
        tmp_path,
        "journalSyncData=false",
        "journalWriteData=true",
        "extraServerComponents=",
        "localScrubInterval=0",
        "maxReadsInProgressLimit=0x5",
        "autoRecoveryDaemonEnabled : yes",
        "numAddWorkerThreads=8",
        "my.own=1",
    )
    assert ("autoRecoveryDaemonEnabled", "journalSyncData", "maxReadsInProgressLimit") == (
        settings.ignored_keys
    )


def test_garbage_collection_as_the_file_says(tmp_path: Path) -> None:
    """Times are in seconds; what is right only together is taken together, and refused by its
    keys where a bookie does not start."""
    settings = _read(
        tmp_path,
        "gcWaitTime=7200000",
        "minorCompactionThreshold=0.85",
        "minorCompactionInterval=7200",
        "majorCompactionThreshold=0.9",
        "majorCompactionMaxTimeMillis=1500",
        "compactionRate=7",
        "useTransactionalCompaction=true",
    )
    assert settings.garbage == GarbageOptions(
        gc_wait_time=7200,
        minor_compaction_threshold=0.85,
        minor_compaction_interval=7200,
        major_compaction_threshold=0.9,
        major_compaction_max_time=1.5,
        compaction_rate_by_entries=7,
        use_transactional_compaction=True,
    )
    with pytest.raises(BkstoreError, match=r"gcWaitTime: minor_compaction_interval must be at"):
        _read(tmp_path, "gcWaitTime=7200000")


def test_options_of_the_table_are_there() -> None:
    """Each option that the table names is a field of its class, and each key stands once."""
    classes = {
        "storage": StorageOptions(),
        "journal": JournalOptions(),
        "server": ServerOptions(),
        "disks": DiskOptions(),
        "garbage": GarbageOptions(),
    }
    for key in HONORED_KEYS.values():
        group, dot, name = key.option.partition(" ")[0].partition(".")
        if dot and group in classes:
            assert hasattr(classes[group], name), key
    groups = [set(HONORED_KEYS), set(IGNORED_KEYS), set(REFUSED_KEYS)]
    assert sum(map(len, groups)) == len(set().union(*groups))


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, key in HONORED_KEYS.items()
        if key.value_type != "list" and not key.option.endswith("directories")
    ],
)
def test_no_key_is_passed_over(tmp_path: Path, name: str) -> None:
    """A key of the table with a value that is none of its type is refused by its name."""
    key = HONORED_KEYS[name]
    line = f"{name}=${{{name}}}" if key.value_type == "text" else f"{name}=?"
    with pytest.raises(BkstoreError, match=f"{name}: "):
        _read(tmp_path, line, "zkServers=a:1", "httpServerEnabled=true").storage_options(
            "db" if name.startswith("dbStorage") else "sorted"
        )
