"""The keys of a `bk_server.conf`: BookKeeper's types and defaults, and the options they set.

Source: `conf/ServerConfiguration`, `conf/AbstractConfiguration`, `storage/ldb/DbLedgerStorage`.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from bkstore.formats.syntax.configuration import Configuration

Kind = Literal["text", "list", "int", "long", "float", "double", "boolean"]

_MIB, _KIB, _MS = 1 << 20, 1 << 10, 1e-3


class Key(NamedTuple):
    """A key that is honored: its type and default in BookKeeper, and the option that it sets.

    The option's value is the key's times `unit`: MiB and ms become bytes and seconds. `storage`,
    `journal`, `server`, `disks` and `garbage` before a dot are classes of options
    (`StorageOptions`, ...); options without a dot are of `bkstore serve`.
    """

    name: str
    kind: Kind
    default: Any
    option: str
    unit: float = 1

    def is_given(self, conf: Configuration) -> bool:
        """Return whether the file has a value; like `DbLedgerStorage`, ignores its empty ones."""
        is_ignored_empty = self.name.startswith("dbStorage_") and not conf.string(self.name, "")
        return self.name in conf and not is_ignored_empty

    def read(self, conf: Configuration) -> Any:
        """Return the file's value or BookKeeper's default; `InvalidArgument` for another type."""
        if self.kind == "list":
            return conf.strings(self.name) if self.name in conf else self.default
        if self.kind == "text":
            return conf.string(self.name, self.default)
        if self.kind in ("int", "long"):
            return conf.integer(self.name, self.default, 32 if self.kind == "int" else 64)
        if self.kind == "boolean":
            return conf.boolean(self.name, self.default)
        read_number = conf.single if self.kind == "float" else conf.double
        return read_number(self.name, self.default)


_PACKAGE = "org.apache.bookkeeper"

_HONORED_KEYS = [
    Key("ledgerDirectories", "list", ["/tmp/bk-data"], "ledger directories"),  # noqa: S108
    Key("journalDirectories", "list", None, "journal directories"),
    Key("journalDirectory", "text", "/tmp/bk-txn", "journal directories"),  # noqa: S108
    Key("indexDirectories", "list", None, "index directories"),
    Key("ledgerStorageClass", "text", f"{_PACKAGE}.bookie.SortedLedgerStorage", "--storage"),
    Key("sortedLedgerStorageEnabled", "boolean", True, "--storage"),
    # The bookie among others.
    Key("bookiePort", "int", 3181, "--port"),
    Key("bookieId", "text", None, "--bookie-id"),
    Key("advertisedAddress", "text", None, "--advertise"),
    Key("listeningInterface", "text", None, "--host"),
    Key("metadataServiceUri", "text", None, "--metadata"),
    Key("zkServers", "list", None, "--metadata"),
    Key("zkLedgersRootPath", "text", "/ledgers", "--metadata"),
    Key("ledgerManagerFactoryClass", "text", None, "--metadata"),
    Key("zkTimeout", "int", 10000, "--session-timeout", _MS),
    Key("httpServerEnabled", "boolean", False, "--http"),
    Key("httpServerHost", "text", "0.0.0.0", "--http"),  # noqa: S104
    Key("httpServerPort", "int", 8080, "--http"),
    Key("saslJaasBookieSectionName", "text", "Bookie", "--jaas-section"),
    Key("saslJaasClientAllowedIds", "text", ".*bookkeeper.*", "--sasl-allowed-ids"),
    Key("flushInterval", "int", 10000, "--checkpoint-interval", _MS),
    # Entry logs, caches and the index.
    Key("logSizeLimit", "long", 1 << 30, "storage.entry_log_size"),
    Key("entryLogPerLedgerEnabled", "boolean", False, "storage.entry_log_per_ledger"),
    Key("maximumNumberOfActiveEntryLogs", "int", 500, "storage.max_active_logs"),
    Key("skipListSizeLimit", "long", 64 * _MIB, "storage.write_cache (sorted)"),
    Key("dbStorage_writeCacheMaxSizeMb", "long", None, "storage.write_cache (db)", _MIB),
    Key("pageSize", "int", 8192, "storage.page_size"),
    Key("pageLimit", "int", -1, "storage.pending_locations"),
    Key("fileInfoFormatVersionToWrite", "int", 1, "storage.index_header_version"),
    Key("maxBatchReadSize", "long", 5 * _MIB, "storage.max_batch_size"),
    Key("nettyMaxFrameSizeBytes", "int", 5 * _MIB, "server.max_frame"),
    # Journals.
    Key("journalFormatVersionToWrite", "int", 6, "journal.version"),
    Key("journalMaxSizeMB", "long", 2048, "journal.max_size", _MIB),
    Key("journalPreAllocSizeMB", "int", 16, "journal.preallocate", _MIB),
    Key("journalAlignmentSize", "int", 512, "journal.alignment"),
    Key("journalWriteBufferSizeKB", "int", 64, "journal.write_buffer", _KIB),
    Key("journalMaxBackups", "int", 5, "journal.max_backups"),
    Key("skipReplayJournalInvalidRecord", "boolean", False, "journal.skip_invalid_records"),
    # Garbage collection.
    Key("gcWaitTime", "long", 600000, "garbage.gc_wait_time", _MS),
    Key("minorCompactionThreshold", "double", 0.2, "garbage.minor_compaction_threshold"),
    Key("minorCompactionInterval", "long", 3600, "garbage.minor_compaction_interval"),
    Key("minorCompactionMaxTimeMillis", "long", -1, "garbage.minor_compaction_max_time", _MS),
    Key("majorCompactionThreshold", "double", 0.8, "garbage.major_compaction_threshold"),
    Key("majorCompactionInterval", "long", 86400, "garbage.major_compaction_interval"),
    Key("majorCompactionMaxTimeMillis", "long", -1, "garbage.major_compaction_max_time", _MS),
    Key("compactionRate", "int", 1000, "garbage.compaction_rate_by_entries"),
    Key("compactionRateByEntries", "int", None, "garbage.compaction_rate_by_entries"),
    Key("compactionRateByBytes", "int", 1000000, "garbage.compaction_rate_by_bytes"),
    Key("isThrottleByBytes", "boolean", False, "garbage.is_throttle_by_bytes"),
    Key(
        "compactionMaxOutstandingRequests",
        "int",
        100000,
        "garbage.compaction_max_outstanding_requests",
    ),
    Key("useTransactionalCompaction", "boolean", False, "garbage.use_transactional_compaction"),
    Key("useTargetEntryLogSizeForGc", "boolean", False, "garbage.use_target_entry_log_size_for_gc"),
    Key("gcMetadataOpRateLimit", "int", 1000, "garbage.gc_metadata_op_rate_limit"),
    Key("isForceGCAllowWhenNoSpace", "boolean", False, "garbage.is_force_gc_allow_when_no_space"),
    Key("forceAllowCompaction", "boolean", False, "garbage.force_allow_compaction"),
    Key(
        "entryLocationCompactionInterval",
        "long",
        -1,
        "garbage.entry_location_compaction_interval",
    ),
    # Disks.
    Key("diskUsageThreshold", "float", 0.95, "disks.full"),
    Key("diskUsageLwmThreshold", "float", None, "disks.writable_again"),
    Key("diskCheckInterval", "int", 10000, "disks.interval", _MS),
    Key("readOnlyModeOnAnyDiskFullEnabled", "boolean", True, "disks.any_full"),
    Key("readOnlyModeEnabled", "boolean", True, "the bookie stops instead of being read-only"),
    Key("forceReadOnlyBookie", "boolean", False, "the bookie is read-only"),
]

HONORED: dict[str, Key] = {key.name: key for key in _HONORED_KEYS}

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

NOT_HONORED: dict[str, object] = {
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
    return sorted(key for key in NOT_HONORED if key in conf and not _is_default(conf, key))


def _is_default(conf: Configuration, key: str) -> bool:
    default = NOT_HONORED[key]
    kind_of_type: dict[type, Kind] = {bool: "boolean", int: "long", str: "text"}
    text = conf.string(key, "")
    return not text or Key(key, kind_of_type[type(default)], default, "").read(conf) == default
