"""ServerSettings: all that a `bk_server.conf` asks of a bookie, as options of ours."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from bkstore.cluster.garbage.options import GarbageOptions
from bkstore.errors import BkstoreError, InvalidArgument
from bkstore.formats.metadata.service_info import check_bookie_id
from bkstore.formats.syntax.configuration import Configuration
from bkstore.formats.syntax.java_values import is_blank
from bkstore.formats.syntax.properties_text import trim
from bkstore.network.disk_watch import DiskOptions
from bkstore.network.settings.interfaces import interface_address
from bkstore.network.settings.keys import HONORED, not_honored
from bkstore.network.settings.security import (
    TlsFiles,
    asks_for_sasl,
    check_security,
    configured_tls,
)
from bkstore.storage.directories.server_conf import read_server_conf
from bkstore.storage.options import JournalOptions, Storage, StorageOptions
from bkstore.wire.server import ServerOptions

_SORTED = "org.apache.bookkeeper.bookie.SortedLedgerStorage"
_INTERLEAVED = "org.apache.bookkeeper.bookie.InterleavedLedgerStorage"
_DB = "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage"
_STORAGES: dict[str, Storage] = {_SORTED: "sorted", _INTERLEAVED: "interleaved", _DB: "db"}

_MANAGERS = {
    f"org.apache.bookkeeper.meta.{name}LedgerManagerFactory": name.lower()
    for name in ("Hierarchical", "Flat", "LongHierarchical")
}

_INTERVAL = "diskCheckInterval"
_APART = ("pageLimit",)
"""Keys whose options are worked out of several."""
_TOGETHER = (
    "journalPreAllocSizeMB",
    "journalAlignmentSize",
    "gcWaitTime",
    "minorCompactionThreshold",
    "minorCompactionInterval",
    "majorCompactionThreshold",
    "majorCompactionInterval",
    "entryLocationCompactionInterval",
)
"""Keys whose options are right or wrong together, with others of their group."""

_Options = TypeVar("_Options", StorageOptions, JournalOptions, ServerOptions, GarbageOptions)


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """What a file asks for; a field is None where it says nothing. Times in seconds.

    `metadata` is a service URI, `host` where to listen, `advertise` what clients are told, `http`
    where the admin listens (host, port). `sasl` is whether clients must authenticate, as users of
    `jaas_section` whose names match `sasl_allowed_ids`. `stop_when_full` and `read_only` are
    ``readOnlyModeEnabled=false`` and `forceReadOnlyBookie`. `not_honored` are the keys that would
    change what the bookie does, and do not.
    """

    storage: Storage | None = None
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
    not_honored: tuple[str, ...] = ()
    conf: Configuration = field(default_factory=lambda: Configuration({}))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the settings of a `bk_server.conf`.

        Raises as `read_server_conf`; `InvalidArgument` for values that a bookie does not start
        with, `IllegalOperation` for security that is not served. Both name file and key.
        """
        conf = read_server_conf(path)
        try:
            check_security(conf)
            _check_together(conf)
            return cls(
                storage=_storage(conf),
                port=_port(conf, "bookiePort"),
                host=_host(conf),
                advertise=trim(_given(conf, "advertisedAddress") or "") or None,
                bookie_id=_bookie_id(conf),
                metadata=trim(metadata_service_uri(conf) or "") or None,
                session_timeout=_seconds(conf, "zkTimeout"),
                checkpoint_interval=_seconds(conf, "flushInterval"),
                http=_http(conf),
                tls=configured_tls(conf),
                sasl=asks_for_sasl(conf),
                jaas_section=_given(conf, "saslJaasBookieSectionName"),
                sasl_allowed_ids=_given(conf, "saslJaasClientAllowedIds"),
                journal=_options(conf, "journal", JournalOptions()),
                server=_options(conf, "server", ServerOptions()),
                disks=_disks(conf),
                garbage=_options(conf, "garbage", GarbageOptions()),
                stop_when_full=not _value(conf, "readOnlyModeEnabled"),
                read_only=_value(conf, "forceReadOnlyBookie"),
                not_honored=tuple(not_honored(conf)),
                conf=conf,
            )
        except BkstoreError as error:
            raise type(error)(f"{path}: {error}") from None

    def storage_options(self, storage: Storage) -> StorageOptions:
        """Return the options of a bookie with this storage: each has a cache of its own size.

        Where a frame may be larger than usual, so may a record.
        """
        made = _options(self.conf, "storage", StorageOptions(), storage)
        largest = self.server.max_frame
        if largest > made.max_entry_size:
            made = replace(made, max_entry_size=largest)
        pages = _value(self.conf, "pageLimit")
        if "pageLimit" in self.conf and pages > 0:
            made = replace(made, pending_locations=pages * (made.page_size // 8))
        return made

    def shown(self) -> dict[str, str]:
        """Return the keys that set options of the bookie, as the file has them: no secrets.

        What the command line may say otherwise is not among them.
        """
        found = {}
        for key in HONORED.values():
            text = self.conf.string(key.name, None) if "." in key.option else None
            if text is not None:
                found[key.name] = text
        return found


def ledger_storage_class(conf: Configuration) -> str:
    """Return the name of the class of the ledger storage, as the real one takes it to be."""
    name: str = _value(conf, "ledgerStorageClass")
    if name == _SORTED and not _value(conf, "sortedLedgerStorageEnabled"):
        return _INTERLEAVED
    return name


def metadata_service_uri(conf: Configuration) -> str | None:
    """Return where the metadata are, out of the older keys where the newer one says nothing.

    Raises `InvalidArgument` for a ledger manager that has no service URI.
    """
    uri = conf.string("metadataServiceUri", None)
    if uri is not None and not is_blank(uri):
        return uri
    factory = conf.string("ledgerManagerFactoryClass", None)
    manager = "null" if factory is None else _MANAGERS.get(factory)
    if manager is None:
        raise InvalidArgument(f"ledgerManagerFactoryClass: {factory} has no service URI")
    servers = ",".join(conf.strings("zkServers")).replace(",", ";")
    if "zkServers" not in conf:
        return uri
    return f"zk+{manager}://{servers}{_value(conf, 'zkLedgersRootPath')}"


def _value(conf: Configuration, name: str) -> Any:
    """Return what a key says, else BookKeeper's default."""
    return HONORED[name].read(conf)


def _given(conf: Configuration, name: str) -> Any:
    """Return what a key says in the unit of its option, None where it is not there."""
    key = HONORED[name]
    if not key.is_given(conf):
        return None
    found = key.read(conf)
    if isinstance(found, str) and "${" in found:
        raise InvalidArgument(f"{name}: {found} has a variable that nothing defines")
    return found if key.unit == 1 or found is None else found * key.unit


def _storage(conf: Configuration) -> Storage | None:
    if "ledgerStorageClass" not in conf and _value(conf, "sortedLedgerStorageEnabled"):
        return None
    name = ledger_storage_class(conf)
    if name not in _STORAGES:
        known = ", ".join(each.rpartition(".")[2] for each in _STORAGES)
        raise InvalidArgument(f"ledgerStorageClass: {name or 'nothing'} is none of {known}")
    return _STORAGES[name]


def _host(conf: Configuration) -> str | None:
    interface = _given(conf, "listeningInterface")
    try:
        return interface_address(interface) if interface else None
    except InvalidArgument as error:
        raise InvalidArgument(f"listeningInterface: {error}") from None


def _http(conf: Configuration) -> tuple[str, int] | None:
    """Return where the admin listens: on loopback unless a host is named."""
    if not _value(conf, "httpServerEnabled"):
        return None
    port = _port(conf, "httpServerPort")
    if port is None:
        port = HONORED["httpServerPort"].default
    return _given(conf, "httpServerHost") or "127.0.0.1", port


def _port(conf: Configuration, name: str) -> int | None:
    port: int | None = _given(conf, name)
    if port is not None and not 0 <= port <= 65535:
        raise InvalidArgument(f"{name}: {port} is no port")
    return port


def _seconds(conf: Configuration, name: str) -> float | None:
    seconds: float | None = _given(conf, name)
    if seconds is not None and seconds <= 0:
        raise InvalidArgument(f"{name}: must be above 0")
    return seconds


def _bookie_id(conf: Configuration) -> str | None:
    name: str = _given(conf, "bookieId") or ""
    try:
        return check_bookie_id(name) if name else None
    except InvalidArgument as error:
        raise InvalidArgument(f"bookieId: {error}") from None


def _disks(conf: Configuration) -> DiskOptions:
    """Return the limits of the disks; the low-water mark is the threshold where it is not set."""
    full = _value(conf, "diskUsageThreshold")
    again = full if "diskUsageLwmThreshold" not in conf else _value(conf, "diskUsageLwmThreshold")
    if not 0 < full < 1:
        raise InvalidArgument(f"diskUsageThreshold: {full} is no share between 0 and 1")
    if not 0 < again <= full:
        raise InvalidArgument(
            f"diskUsageLwmThreshold: {again} is not above 0 and at most diskUsageThreshold, {full}"
        )
    seconds = {} if _INTERVAL not in conf else {"interval": _given(conf, _INTERVAL)}
    try:
        return DiskOptions(
            full=full,
            writable_again=again,
            any_full=_value(conf, "readOnlyModeOnAnyDiskFullEnabled"),
            **seconds,
        )
    except InvalidArgument as error:
        raise InvalidArgument(f"{_INTERVAL}: {error}") from None


def _options(
    conf: Configuration, group: str, defaults: _Options, storage: Storage | None = None
) -> _Options:
    """Return options with what the keys of a group say; an error names the key."""
    found: dict[str, Any] = {}
    together = [
        name for name in _TOGETHER if name in conf and HONORED[name].option.startswith(f"{group}.")
    ]
    for key in HONORED.values():
        place, _, of_storage = key.option.partition(" ")
        options, _, name = place.partition(".")
        if options != group or not key.is_given(conf) or key.name in _APART:
            continue
        if of_storage in ("", f"({storage})"):
            found[name] = _given(conf, key.name)
            if key.name not in together:
                _try(key.name, defaults, {name: found[name]})
    return _try(", ".join(together), defaults, found)


def _try(name: str, defaults: _Options, values: dict[str, Any]) -> _Options:
    """Return options with other values; an error begins with `name`."""
    try:
        return replace(defaults, **values)
    except InvalidArgument as error:
        raise InvalidArgument(f"{name}: {error}") from None


def _check_together(conf: Configuration) -> None:
    """Raise `InvalidArgument` for keys of which a bookie does not start with both."""
    alignment = _value(conf, "journalAlignmentSize")
    if alignment < 512 or alignment % 512:
        raise InvalidArgument(f"journalAlignmentSize: {alignment} is no multiple of 512")
    if alignment > _value(conf, "journalPreAllocSizeMB") << 20:
        raise InvalidArgument("journalPreAllocSizeMB: is less than journalAlignmentSize")
    journal = _value(conf, "journalFormatVersionToWrite")
    index = _value(conf, "fileInfoFormatVersionToWrite")
    if (journal >= 6) != (index >= 1):
        raise InvalidArgument(
            "journalFormatVersionToWrite: must be 6 or more if fileInfoFormatVersionToWrite is 1 "
            "or more, and only then: both keep explicit LACs"
        )
    if _value(conf, "forceReadOnlyBookie") and not _value(conf, "readOnlyModeEnabled"):
        raise InvalidArgument("forceReadOnlyBookie: needs readOnlyModeEnabled, which is false")
    if not _value(conf, "bookiePort") and not conf.boolean("allowEphemeralPorts", False):
        raise InvalidArgument("bookiePort: 0 takes any port, and needs allowEphemeralPorts=true")
