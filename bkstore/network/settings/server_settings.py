"""ServerSettings: the settings of a `bk_server.conf`, as bkstore's options."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from bkstore.cluster.garbage.options import GarbageOptions
from bkstore.errors import BkstoreError, InvalidArgument
from bkstore.formats.metadata.bookie_ids import check_bookie_id
from bkstore.formats.syntax.configuration import Configuration
from bkstore.formats.syntax.java_values import is_blank, trim
from bkstore.network.disk_watch import DiskOptions
from bkstore.network.settings.conflicting_keys import check_conflicts
from bkstore.network.settings.interfaces import find_interface_address
from bkstore.network.settings.keys import HONORED_KEYS, list_ignored_keys
from bkstore.network.settings.security import TlsFiles, check_security, read_tls, requires_sasl
from bkstore.storage.directories.server_conf import read_server_conf
from bkstore.storage.options import JournalOptions, StorageKind, StorageOptions
from bkstore.wire.server import ServerOptions

_SORTED = "org.apache.bookkeeper.bookie.SortedLedgerStorage"
_INTERLEAVED = "org.apache.bookkeeper.bookie.InterleavedLedgerStorage"
_DB = "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage"
_STORAGES: dict[str, StorageKind] = {_SORTED: "sorted", _INTERLEAVED: "interleaved", _DB: "db"}

_SCHEME_OF_FACTORY = {
    f"org.apache.bookkeeper.meta.{name}LedgerManagerFactory": name.lower()
    for name in ("Hierarchical", "Flat", "LongHierarchical")
}

_INTERVAL = "diskCheckInterval"
_COMPUTED_KEYS = ("pageLimit",)
"""Keys whose options are computed from several keys."""
_JOINT_KEYS = (
    "journalPreAllocSizeMB",
    "journalAlignmentSize",
    "gcWaitTime",
    "minorCompactionThreshold",
    "minorCompactionInterval",
    "majorCompactionThreshold",
    "majorCompactionInterval",
    "entryLocationCompactionInterval",
)
"""Keys whose options are valid only in combination with others of their group."""

_Options = TypeVar("_Options", StorageOptions, JournalOptions, ServerOptions, GarbageOptions)


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """A file's settings; a field is None if the file does not set it. Times in seconds.

    `metadata` is a service URI, `host` where to listen, `advertise` the host for clients, `http`
    where the admin listens (host, port). `sasl` is whether clients must authenticate, as users of
    `jaas_section` whose names match `sasl_allowed_ids`. `stop_when_full` and `read_only` are
    ``readOnlyModeEnabled=false`` and `forceReadOnlyBookie`. `ignored_keys` are keys in the file
    that have no effect; `conf` is the file itself.
    """

    storage: StorageKind | None = None
    port: int | None = None
    host: str | None = None
    advertise: str | None = None
    bookie_id: str | None = None
    metadata: str | None = None
    session_timeout: float | None = None
    checkpoint_interval: float | None = None
    http: tuple[str, int] | None = None
    tls: TlsFiles | None = None
    sasl: bool = False
    jaas_section: str | None = None
    sasl_allowed_ids: str | None = None
    journal: JournalOptions = field(default_factory=JournalOptions)
    server: ServerOptions = field(default_factory=ServerOptions)
    disks: DiskOptions = field(default_factory=DiskOptions)
    garbage: GarbageOptions = field(default_factory=GarbageOptions)
    stop_when_full: bool = False
    read_only: bool = False
    ignored_keys: tuple[str, ...] = ()
    conf: Configuration = field(default_factory=lambda: Configuration({}))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the settings of a `bk_server.conf`. Raises what `read_server_conf` raises;
        `InvalidArgument` for values that a bookie refuses to start with, `IllegalOperation` for
        unsupported security. Both name file and key."""
        conf = read_server_conf(path)
        try:
            check_security(conf)
            check_conflicts(conf)
            return cls(
                storage=_read_storage(conf),
                port=_read_port(conf, "bookiePort"),
                host=_read_host(conf),
                advertise=trim(_read_given(conf, "advertisedAddress") or "") or None,
                bookie_id=_read_bookie_id(conf),
                metadata=trim(read_metadata_uri(conf) or "") or None,
                session_timeout=_read_seconds(conf, "zkTimeout"),
                checkpoint_interval=_read_seconds(conf, "flushInterval"),
                http=_read_http(conf),
                tls=read_tls(conf),
                sasl=requires_sasl(conf),
                jaas_section=_read_given(conf, "saslJaasBookieSectionName"),
                sasl_allowed_ids=_read_given(conf, "saslJaasClientAllowedIds"),
                journal=_read_options(conf, "journal", JournalOptions()),
                server=_read_options(conf, "server", ServerOptions()),
                disks=_read_disk_options(conf),
                garbage=_read_options(conf, "garbage", GarbageOptions()),
                stop_when_full=not _read_key(conf, "readOnlyModeEnabled"),
                read_only=_read_key(conf, "forceReadOnlyBookie"),
                ignored_keys=tuple(list_ignored_keys(conf)),
                conf=conf,
            )
        except BkstoreError as error:
            raise type(error)(f"{path}: {error}") from None

    def storage_options(self, storage: StorageKind) -> StorageOptions:
        """Return the configured options for a kind of storage (each has its own key for the size of
        its write cache). Entries may be as large as the largest frame, if that is configured above
        their default limit."""
        options = _read_options(self.conf, "storage", StorageOptions(), storage)
        max_frame = self.server.max_frame
        if max_frame > options.max_entry_size:
            options = replace(options, max_entry_size=max_frame)
        page_limit = _read_key(self.conf, "pageLimit")
        if "pageLimit" in self.conf and page_limit > 0:
            locations_per_page = options.page_size // 8  # a location is 8 bytes
            options = replace(options, pending_locations=page_limit * locations_per_page)
        return options

    def list_option_texts(self) -> dict[str, str]:
        """Return the keys that set options of the bookie, except those that the command line can
        override, with their text in the file: no secrets."""
        values = {}
        for key in HONORED_KEYS.values():
            # The command line's own options have no dot: "--port", but "server.max_frame".
            text = self.conf.string(key.name, None) if "." in key.option else None
            if text is not None:
                values[key.name] = text
        return values


def read_storage_class(conf: Configuration) -> str:
    """Return the class name of the ledger storage, chosen as BookKeeper does."""
    class_name: str = _read_key(conf, "ledgerStorageClass")
    if class_name == _SORTED and not _read_key(conf, "sortedLedgerStorageEnabled"):
        return _INTERLEAVED
    return class_name


def read_metadata_uri(conf: Configuration) -> str | None:
    """Return the metadata service URI, built from the older keys if the newer one is blank or not
    given; None, or the blank text, if there are no older keys. Raises `InvalidArgument` for a
    ledger manager that has no service URI."""
    uri = conf.string("metadataServiceUri", None)
    if uri is not None and not is_blank(uri):
        return uri
    factory = conf.string("ledgerManagerFactoryClass", None)
    manager = "null" if factory is None else _SCHEME_OF_FACTORY.get(factory)
    if manager is None:
        raise InvalidArgument(f"ledgerManagerFactoryClass: {factory} has no service URI")
    if "zkServers" not in conf:
        return uri
    servers = ",".join(conf.strings("zkServers")).replace(",", ";")
    return f"zk+{manager}://{servers}{_read_key(conf, 'zkLedgersRootPath')}"


def _read_key(conf: Configuration, key: str) -> Any:
    return HONORED_KEYS[key].read(conf)


def _read_given(conf: Configuration, key_name: str) -> Any:
    """Return a key's value in the unit of its option, None if the file has none."""
    key = HONORED_KEYS[key_name]
    if not key.is_given(conf):
        return None
    value = key.read(conf)
    if isinstance(value, str) and "${" in value:
        raise InvalidArgument(f"{key_name}: {value} has an undefined variable")
    return value if key.unit == 1 or value is None else value * key.unit


def _read_storage(conf: Configuration) -> StorageKind | None:
    """Return the storage that the file sets, None if it has only the defaults."""
    if "ledgerStorageClass" not in conf and _read_key(conf, "sortedLedgerStorageEnabled"):
        return None
    class_name = read_storage_class(conf)
    if class_name not in _STORAGES:
        known = ", ".join(path.rpartition(".")[2] for path in _STORAGES)
        name = class_name or "nothing"
        raise InvalidArgument(f"ledgerStorageClass: {name} is not one of {known}")
    return _STORAGES[class_name]


def _read_host(conf: Configuration) -> str | None:
    """Return the address of the configured network interface, None if none is configured."""
    interface = _read_given(conf, "listeningInterface")
    try:
        return find_interface_address(interface) if interface else None
    except InvalidArgument as error:
        raise InvalidArgument(f"listeningInterface: {error}") from None


def _read_http(conf: Configuration) -> tuple[str, int] | None:
    """Return (host, port) of the HTTP admin: on loopback unless a host is set; None if disabled."""
    if not _read_key(conf, "httpServerEnabled"):
        return None
    port = _read_port(conf, "httpServerPort")
    if port is None:
        port = HONORED_KEYS["httpServerPort"].default
    return _read_given(conf, "httpServerHost") or "127.0.0.1", port


def _read_port(conf: Configuration, key: str) -> int | None:
    port: int | None = _read_given(conf, key)
    if port is not None and not 0 <= port <= 65535:
        raise InvalidArgument(f"{key}: {port} is not a port")
    return port


def _read_seconds(conf: Configuration, key: str) -> float | None:
    seconds: float | None = _read_given(conf, key)
    if seconds is not None and seconds <= 0:
        raise InvalidArgument(f"{key}: must be above 0")
    return seconds


def _read_bookie_id(conf: Configuration) -> str | None:
    bookie_id: str = _read_given(conf, "bookieId") or ""
    try:
        return check_bookie_id(bookie_id) if bookie_id else None
    except InvalidArgument as error:
        raise InvalidArgument(f"bookieId: {error}") from None


def _read_disk_options(conf: Configuration) -> DiskOptions:
    """Return the disk options; the low-water mark defaults to the threshold."""
    full = _read_key(conf, "diskUsageThreshold")
    low = full if "diskUsageLwmThreshold" not in conf else _read_key(conf, "diskUsageLwmThreshold")
    if not 0 < full < 1:
        raise InvalidArgument(f"diskUsageThreshold: {full} is not a share between 0 and 1")
    if not 0 < low <= full:
        limit = f"at most diskUsageThreshold, {full}"
        raise InvalidArgument(f"diskUsageLwmThreshold: {low} is not above 0 and {limit}")
    interval = {} if _INTERVAL not in conf else {"interval": _read_given(conf, _INTERVAL)}
    try:
        any_full = _read_key(conf, "readOnlyModeOnAnyDiskFullEnabled")
        return DiskOptions(full=full, writable_again=low, any_full=any_full, **interval)
    except InvalidArgument as error:
        raise InvalidArgument(f"{_INTERVAL}: {error}") from None


def _read_options(
    conf: Configuration, group: str, defaults: _Options, storage: StorageKind | None = None
) -> _Options:
    """Return `defaults` with the values of a group's keys; errors name the key. An option is given
    as "group.field", or "group.field (storage)" if the key is that storage's only."""
    values: dict[str, Any] = {}
    given_keys = set()
    for key in HONORED_KEYS.values():
        option_path, _, storage_suffix = key.option.partition(" ")
        option_group, _, field_name = option_path.partition(".")
        if option_group != group or not key.is_given(conf) or key.name in _COMPUTED_KEYS:
            continue
        if storage_suffix in ("", f"({storage})"):
            values[field_name] = _read_given(conf, key.name)
            given_keys.add(key.name)
            # Check each value alone, so that an error names its key, unless it depends on others.
            if key.name not in _JOINT_KEYS:
                _replace_options(key.name, defaults, {field_name: values[field_name]})
    joint_keys = ", ".join(key for key in _JOINT_KEYS if key in given_keys)
    return _replace_options(joint_keys, defaults, values)


def _replace_options(prefix: str, defaults: _Options, values: dict[str, Any]) -> _Options:
    """Return options with `values` replaced; errors begin with `prefix`."""
    try:
        return replace(defaults, **values)
    except InvalidArgument as error:
        raise InvalidArgument(f"{prefix}: {error}") from None
