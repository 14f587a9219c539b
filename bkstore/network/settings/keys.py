"""The keys of a `bk_server.conf`: BookKeeper's types and defaults, and the options they set.

Source: `conf/ServerConfiguration`, `conf/AbstractConfiguration`, `storage/ldb/DbLedgerStorage`.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from bkstore.formats.syntax.configuration import Configuration

KeyType = Literal["text", "list", "int", "long", "float", "double", "boolean"]

_MIB, _KIB, _MS = 1 << 20, 1 << 10, 1e-3


class ConfKey(NamedTuple):
    """A key that is honored: its type and default in BookKeeper, and the option that it sets.

    The option's value is the key's times `unit`: MiB and ms become bytes and seconds. `storage`,
    `journal`, `server`, `disks` and `garbage` before a dot are classes of options
    (`StorageOptions`, ...); options without a dot are of `bkstore serve`.
    """

    name: str
    value_type: KeyType
    default: Any
    option: str
    unit: float = 1

    def is_given(self, conf: Configuration) -> bool:
        """Return whether the file has a value; like `DbLedgerStorage`, ignores its empty ones."""
        is_ignored_empty = self.name.startswith("dbStorage_") and not conf.string(self.name, "")
        return self.name in conf and not is_ignored_empty

    def read(self, conf: Configuration) -> Any:
        """Return the file's value or BookKeeper's default; `InvalidArgument` for another type."""
        if self.value_type == "list":
            return conf.strings(self.name) if self.name in conf else self.default
        if self.value_type == "text":
            return conf.string(self.name, self.default)
        if self.value_type in ("int", "long"):
            return conf.integer(self.name, self.default, 32 if self.value_type == "int" else 64)
        if self.value_type == "boolean":
            return conf.boolean(self.name, self.default)
        read_number = conf.single if self.value_type == "float" else conf.double
        return read_number(self.name, self.default)


_PACKAGE = "org.apache.bookkeeper"

_HONORED_KEYS = [
    ConfKey("ledgerDirectories", "list", ["/tmp/bk-data"], "ledger directories"),  # noqa: S108
    ConfKey("journalDirectories", "list", None, "journal directories"),
    ConfKey("journalDirectory", "text", "/tmp/bk-txn", "journal directories"),  # noqa: S108
    ConfKey("indexDirectories", "list", None, "index directories"),
    ConfKey("ledgerStorageClass", "text", f"{_PACKAGE}.bookie.SortedLedgerStorage", "--storage"),
    ConfKey("sortedLedgerStorageEnabled", "boolean", True, "--storage"),
    # The bookie among others.
    ConfKey("bookiePort", "int", 3181, "--port"),
    ConfKey("bookieId", "text", None, "--bookie-id"),
    ConfKey("advertisedAddress", "text", None, "--advertise"),
    ConfKey("listeningInterface", "text", None, "--host"),
    ConfKey("metadataServiceUri", "text", None, "--metadata"),
    ConfKey("zkServers", "list", None, "--metadata"),
    ConfKey("zkLedgersRootPath", "text", "/ledgers", "--metadata"),
    ConfKey("ledgerManagerFactoryClass", "text", None, "--metadata"),
    ConfKey("zkTimeout", "int", 10000, "--session-timeout", _MS),
    ConfKey("httpServerEnabled", "boolean", False, "--http"),
    ConfKey("httpServerHost", "text", "0.0.0.0", "--http"),  # noqa: S104
    ConfKey("httpServerPort", "int", 8080, "--http"),
    ConfKey("saslJaasBookieSectionName", "text", "Bookie", "--jaas-section"),
    ConfKey("saslJaasClientAllowedIds", "text", ".*bookkeeper.*", "--sasl-allowed-ids"),
    ConfKey("flushInterval", "int", 10000, "--checkpoint-interval", _MS),
    # Entry logs, caches and the index.
    ConfKey("logSizeLimit", "long", 1 << 30, "storage.entry_log_size"),
    ConfKey("entryLogPerLedgerEnabled", "boolean", False, "storage.entry_log_per_ledger"),
    ConfKey("maximumNumberOfActiveEntryLogs", "int", 500, "storage.max_active_logs"),
    ConfKey("skipListSizeLimit", "long", 64 * _MIB, "storage.write_cache (sorted)"),
    ConfKey("dbStorage_writeCacheMaxSizeMb", "long", None, "storage.write_cache (db)", _MIB),
    ConfKey("pageSize", "int", 8192, "storage.page_size"),
    ConfKey("pageLimit", "int", -1, "storage.pending_locations"),
    ConfKey("fileInfoFormatVersionToWrite", "int", 1, "storage.index_header_version"),
    ConfKey("maxBatchReadSize", "long", 5 * _MIB, "storage.max_batch_size"),
    ConfKey("nettyMaxFrameSizeBytes", "int", 5 * _MIB, "server.max_frame"),
    # Journals.
    ConfKey("journalFormatVersionToWrite", "int", 6, "journal.version"),
    ConfKey("journalMaxSizeMB", "long", 2048, "journal.max_size", _MIB),
    ConfKey("journalPreAllocSizeMB", "int", 16, "journal.preallocate", _MIB),
    ConfKey("journalAlignmentSize", "int", 512, "journal.alignment"),
    ConfKey("journalWriteBufferSizeKB", "int", 64, "journal.write_buffer", _KIB),
    ConfKey("journalMaxBackups", "int", 5, "journal.max_backups"),
    ConfKey("skipReplayJournalInvalidRecord", "boolean", False, "journal.skip_invalid_records"),
    # Garbage collection.
    ConfKey("gcWaitTime", "long", 600000, "garbage.gc_wait_time", _MS),
    ConfKey("minorCompactionThreshold", "double", 0.2, "garbage.minor_compaction_threshold"),
    ConfKey("minorCompactionInterval", "long", 3600, "garbage.minor_compaction_interval"),
    ConfKey("minorCompactionMaxTimeMillis", "long", -1, "garbage.minor_compaction_max_time", _MS),
    ConfKey("majorCompactionThreshold", "double", 0.8, "garbage.major_compaction_threshold"),
    ConfKey("majorCompactionInterval", "long", 86400, "garbage.major_compaction_interval"),
    ConfKey("majorCompactionMaxTimeMillis", "long", -1, "garbage.major_compaction_max_time", _MS),
    ConfKey("compactionRate", "int", 1000, "garbage.compaction_rate_by_entries"),
    ConfKey("compactionRateByEntries", "int", None, "garbage.compaction_rate_by_entries"),
    ConfKey("compactionRateByBytes", "int", 1000000, "garbage.compaction_rate_by_bytes"),
    ConfKey("isThrottleByBytes", "boolean", False, "garbage.is_throttle_by_bytes"),
    ConfKey(
        "compactionMaxOutstandingRequests",
        "int",
        100000,
        "garbage.compaction_max_outstanding_requests",
    ),
    ConfKey("useTransactionalCompaction", "boolean", False, "garbage.use_transactional_compaction"),
    ConfKey(
        "useTargetEntryLogSizeForGc", "boolean", False, "garbage.use_target_entry_log_size_for_gc"
    ),
    ConfKey("gcMetadataOpRateLimit", "int", 1000, "garbage.gc_metadata_op_rate_limit"),
    ConfKey(
        "isForceGCAllowWhenNoSpace", "boolean", False, "garbage.is_force_gc_allow_when_no_space"
    ),
    ConfKey("forceAllowCompaction", "boolean", False, "garbage.force_allow_compaction"),
    ConfKey(
        "entryLocationCompactionInterval", "long", -1, "garbage.entry_location_compaction_interval"
    ),
    # Disks.
    ConfKey("diskUsageThreshold", "float", 0.95, "disks.full"),
    ConfKey("diskUsageLwmThreshold", "float", None, "disks.writable_again"),
    ConfKey("diskCheckInterval", "int", 10000, "disks.interval", _MS),
    ConfKey("readOnlyModeOnAnyDiskFullEnabled", "boolean", True, "disks.any_full"),
    ConfKey("readOnlyModeEnabled", "boolean", True, "the bookie stops instead of being read-only"),
    ConfKey("forceReadOnlyBookie", "boolean", False, "the bookie is read-only"),
]

HONORED_KEYS: dict[str, ConfKey] = {key.name: key for key in _HONORED_KEYS}

REFUSED_KEYS = {
    "bookieAuthProviderFactoryClass": "but `SASLBookieAuthProviderFactory`, with `--jaas`",
    "authorizedRoles": "any",
    "permittedStartupUsers": "without the user of the command",
    "tlsProviderFactoryClass": "but `TLSContextFactory` with key and certificates in PEM files",
    "tlsEnabledProtocols": "any, with a `tlsProviderFactoryClass`",
    "tlsEnabledCipherSuites": "any, with a `tlsProviderFactoryClass`",
    "httpServerTlsEnable": "`true`, with `httpServerEnabled`",
    "zkEnableSecurity": "`true`",
}
"""Keys of security, with the values that are refused because bkstore cannot enforce them."""

IGNORED_KEYS: dict[str, object] = {
    "allowMultipleDirsUnderSameDiskPartition": True,
    "allowStorageExpansion": False,
    "autoRecoveryDaemonEnabled": False,
    "closeChannelOnResponseTimeout": False,
    "dataIntegrityChecking": False,
    "dataIntegrityStampMissingCookies": False,
    "dbStorage_directIOEntryLogger": False,
    "defaultRocksdbConf": "",
    "disableServerSocketBind": False,
    "enableLocalTransport": False,
    "entryLocationRocksdbConf": "",
    "entrylogMapAccessExpiryTimeInSeconds": 300,
    "extraServerComponents": "",
    "flushEntrylogBytes": 0,
    "gcEntryLogMetadataCacheEnabled": False,
    "gcOverreplicatedLedgerMaxConcurrentRequests": 1000,
    "gcOverreplicatedLedgerWaitTime": 86400000,
    "journalChannelProvider": f"{_PACKAGE}.bookie.DefaultFileChannelProvider",
    "journalReuseFiles": False,
    "journalSyncData": True,
    "journalWriteData": True,
    "ledgerManagerType": "",
    "ledgerMetadataRocksdbConf": "",
    "localConsistencyCheckOnStartup": False,
    "localScrubInterval": 0,
    "maxAddsInProgressLimit": 0,
    "maxPendingAddRequestsPerThread": 10000,
    "maxPendingReadRequestsPerThread": 10000,
    "maxReadsInProgressLimit": 10000,
    "metastoreImplClass": "",
    "minUsableSizeForEntryLogCreation": "",
    "minUsableSizeForHighPriorityWrites": "",
    "minUsableSizeForIndexFileCreation": 100 * _MIB,
    "persistBookieStatusEnabled": False,
    "registrationManagerClass": "",
    "tlsCertFilesRefreshDurationSeconds": 0,
    "useHostNameAsBookieID": False,
    "useShortHostName": False,
    "waitTimeoutOnResponseBackpressureMs": -1,
}
"""Keys that change what a real bookie does and are not honored, with BookKeeper's defaults."""


def list_ignored_keys(conf: Configuration) -> list[str]:
    """Return the keys in the file that are not honored and differ from the default, sorted."""
    return sorted(key for key in IGNORED_KEYS if key in conf and not _is_default(conf, key))


def _is_default(conf: Configuration, key: str) -> bool:
    """Return whether an ignored key has no value in the file, or BookKeeper's default."""
    if not conf.string(key, ""):
        return True
    default = IGNORED_KEYS[key]
    kind_of_type: dict[type, KeyType] = {bool: "boolean", int: "long", str: "text"}
    ignored_key = ConfKey(key, kind_of_type[type(default)], default, "")
    return bool(ignored_key.read(conf) == default)
