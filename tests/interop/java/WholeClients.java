import com.fasterxml.jackson.databind.JsonNode;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.discover.BookieServiceInfo;
import org.apache.bookkeeper.discover.RegistrationManager;
import org.apache.bookkeeper.meta.MetadataBookieDriver;
import org.apache.bookkeeper.meta.MetadataDrivers;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.stats.NullStatsLogger;

/** The whole real client, with metadata in ZooKeeper, and bookies registered there for it. */
class WholeClients {
    private final Map<String, BookKeeper> open = new HashMap<>();
    private final Map<String, Map<Long, LedgerHandle>> handles = new HashMap<>();
    private final Map<String, MetadataBookieDriver> registered = new HashMap<>();
    private final Map<String, RegistrationManager> managers = new HashMap<>();

    void offer(Map<String, Driver.Call> calls) {
        calls.put("register", this::register);
        calls.put("unregister", this::unregister);
        calls.put("whole_open", this::openClient);
        calls.put("whole_close", this::closeClient);
        calls.put("whole_create", this::create);
        calls.put("whole_add", this::add);
        calls.put("whole_read", this::read);
        calls.put("whole_batch", this::batch);
        calls.put("whole_confirmed", this::confirmed);
        calls.put("whole_open_ledger", this::openLedger);
        calls.put("whole_close_ledger", this::closeLedger);
        calls.put("whole_delete", this::delete);
        calls.put("whole_list", this::list);
        calls.put("whole_ensembles", this::ensembles);
        calls.put("whole_outcomes", this::outcomes);
        calls.put("whole_await", this::startAwaiting);
        calls.put("whole_awaited", this::awaited);
        calls.put("whole_ledgers", this::ledgers);
        calls.put("whole_bookies", this::bookies);
    }

    // -- registration, as a bookie does it

    private Object register(JsonNode arguments) throws Exception {
        String uri = arguments.get("uri").asText();
        String id = arguments.get("bookie_id").asText();
        ServerConfiguration conf = new ServerConfiguration();
        conf.setMetadataServiceUri(uri);
        MetadataBookieDriver driver = MetadataDrivers.getBookieDriver(URI.create(uri));
        driver.initialize(conf, NullStatsLogger.INSTANCE);
        RegistrationManager manager = driver.createRegistrationManager();
        BookieServiceInfo.Endpoint endpoint = new BookieServiceInfo.Endpoint("bookie",
            arguments.get("port").asInt(), arguments.get("host").asText(), "bookie-rpc",
            Collections.emptyList(), Collections.emptyList());
        manager.registerBookie(BookieId.parse(id), false, new BookieServiceInfo(
            Collections.emptyMap(), Collections.singletonList(endpoint)));
        registered.put(uri + id, driver);
        managers.put(uri + id, manager);
        return null;
    }

    private Object unregister(JsonNode arguments) throws Exception {
        String key = arguments.get("uri").asText() + arguments.get("bookie_id").asText();
        managers.remove(key).close();
        registered.remove(key).close();
        return null;
    }

    // -- clients

    private static String name(JsonNode arguments) {
        return arguments.get("name").asText();
    }

    private BookKeeper client(JsonNode arguments) {
        return open.get(name(arguments));
    }

    private LedgerHandle handle(JsonNode arguments) {
        return handles.get(name(arguments)).get(arguments.get("ledger").asLong());
    }

    private static byte[] password(JsonNode arguments) {
        return arguments.get("password").asText().getBytes(StandardCharsets.UTF_8);
    }

    private Object openClient(JsonNode arguments) throws Exception {
        ClientConfiguration conf = new ClientConfiguration();
        conf.setMetadataServiceUri(arguments.get("uri").asText());
        conf.setUseV2WireProtocol(arguments.get("v2").asBoolean());
        conf.setExplictLacInterval(arguments.get("explicit_lac_ms").asInt());
        conf.setNumChannelsPerBookie(1);
        conf.setNumIOThreads(1);
        conf.setNumWorkerThreads(1);
        arguments.get("settings").fields().forEachRemaining(
            setting -> conf.setProperty(setting.getKey(), setting.getValue().asText()));
        open.put(name(arguments), new BookKeeper(conf));
        handles.put(name(arguments), new HashMap<>());
        return null;
    }

    private Object closeClient(JsonNode arguments) throws Exception {
        handles.remove(name(arguments));
        Driver.close(open.remove(name(arguments))::close);
        return null;
    }

    private static Map<String, byte[]> custom(JsonNode arguments) {
        Map<String, byte[]> found = new LinkedHashMap<>();
        arguments.get("custom").fields().forEachRemaining(
            entry -> found.put(entry.getKey(), Hex.bytes(entry.getValue().asText())));
        return found;
    }

    private Object create(JsonNode arguments) throws Exception {
        LedgerHandle handle = client(arguments).createLedger(
            arguments.get("ensemble").asInt(), arguments.get("write").asInt(),
            arguments.get("ack").asInt(),
            BookKeeper.DigestType.valueOf(arguments.get("digest").asText()), password(arguments),
            custom(arguments));
        handles.get(name(arguments)).put(handle.getId(), handle);
        return handle.getId();
    }

    /**
     * Sends payloads, all under way together, from the thread in which the client changes the
     * ledger's ensembles. From another one an add is lost for good when the ensemble changes
     * between the two steps of taking the bookies and joining the queue (upstream issue 4261).
     */
    private List<CompletableFuture<Long>> send(JsonNode arguments) {
        List<CompletableFuture<Long>> sent = new ArrayList<>();
        LedgerHandle handle = handle(arguments);
        for (JsonNode payload : arguments.get("payloads")) {
            byte[] data = Hex.bytes(payload.asText());
            CompletableFuture<Long> future = new CompletableFuture<>();
            client(arguments).getMainWorkerPool().executeOrdered(handle.getId(), () ->
                handle.asyncAddEntry(data, (rc, of, entry, context) -> {
                    if (rc == BKException.Code.OK) {
                        future.complete(entry);
                    } else {
                        future.completeExceptionally(BKException.create(rc));
                    }
                }, null));
            sent.add(future);
        }
        return sent;
    }

    /** Adds payloads, all under way together; returns their entry ids. */
    private Object add(JsonNode arguments) throws Exception {
        List<Long> entries = new ArrayList<>();
        for (CompletableFuture<Long> future : send(arguments)) {
            entries.add(future.get());
        }
        return entries;
    }

    /** Adds payloads as `add` does; returns for each its entry id, or its error's code. */
    private Object outcomes(JsonNode arguments) throws Exception {
        List<Long> entries = new ArrayList<>();
        for (CompletableFuture<Long> future : send(arguments)) {
            entries.add(future.handle((entry, error) ->
                error == null ? entry : (long) ((BKException) error).getCode()).get());
        }
        return entries;
    }

    // -- waiting for a LAC to grow, while other calls go on

    private final Map<String, CompletableFuture<Map<String, Object>>> awaited = new HashMap<>();

    private Object startAwaiting(JsonNode arguments) {
        CompletableFuture<Map<String, Object>> future = new CompletableFuture<>();
        handle(arguments).asyncReadLastConfirmedAndEntry(arguments.get("entry").asLong(),
            arguments.get("timeout_ms").asLong(), false, (rc, lac, entry, context) -> {
                Map<String, Object> said = new LinkedHashMap<>();
                said.put("rc", rc);
                said.put("lac", lac);
                said.put("entry", entry == null ? null : entry.getEntryId());
                said.put("payload", entry == null ? null : Hex.text(entry.getEntry()));
                future.complete(said);
            }, null);
        awaited.put(name(arguments), future);
        return null;
    }

    private Object awaited(JsonNode arguments) throws Exception {
        return awaited.remove(name(arguments)).get();
    }

    private static List<String> payloads(Enumeration<LedgerEntry> entries) {
        List<String> found = new ArrayList<>();
        while (entries.hasMoreElements()) {
            found.add(Hex.text(entries.nextElement().getEntry()));
        }
        return found;
    }

    private Object read(JsonNode arguments) throws Exception {
        return payloads(handle(arguments).readEntries(
            arguments.get("first").asLong(), arguments.get("last").asLong()));
    }

    private Object batch(JsonNode arguments) throws Exception {
        return payloads(handle(arguments).batchReadEntries(arguments.get("start").asLong(),
            arguments.get("max_count").asInt(), arguments.get("max_size").asLong()));
    }

    /** What bookies say of the LAC: by entries, and by the explicit one. */
    private Object confirmed(JsonNode arguments) throws Exception {
        Map<String, Object> said = new LinkedHashMap<>();
        said.put("by_entries", handle(arguments).readLastConfirmed());
        said.put("explicit", handle(arguments).readExplicitLastConfirmed());
        return said;
    }

    private Object openLedger(JsonNode arguments) throws Exception {
        BookKeeper.DigestType digest =
            BookKeeper.DigestType.valueOf(arguments.get("digest").asText());
        long ledger = arguments.get("ledger").asLong();
        LedgerHandle handle = arguments.get("recovery").asBoolean()
            ? client(arguments).openLedger(ledger, digest, password(arguments))
            : client(arguments).openLedgerNoRecovery(ledger, digest, password(arguments));
        handles.get(name(arguments)).put(ledger, handle);
        Map<String, Object> said = new LinkedHashMap<>();
        said.put("last", handle.getLastAddConfirmed());
        said.put("length", handle.getLength());
        said.put("closed", handle.isClosed());
        return said;
    }

    private Object closeLedger(JsonNode arguments) throws Exception {
        handle(arguments).close();
        return null;
    }

    private Object delete(JsonNode arguments) throws Exception {
        client(arguments).deleteLedger(arguments.get("ledger").asLong());
        return null;
    }

    /** How many entries a bookie says it has of a ledger. */
    private Object list(JsonNode arguments) throws Exception {
        try (BookKeeperAdmin admin = new BookKeeperAdmin(client(arguments))) {
            return admin.asyncGetListOfEntriesOfLedger(
                BookieId.parse(arguments.get("bookie_id").asText()),
                arguments.get("ledger").asLong()).get().getTotalNumOfAvailableEntries();
        }
    }

    private Object ledgers(JsonNode arguments) throws Exception {
        try (BookKeeperAdmin admin = new BookKeeperAdmin(client(arguments))) {
            List<Long> found = new ArrayList<>();
            admin.listLedgers().forEach(found::add);
            return found;
        }
    }

    private static List<String> texts(Collection<BookieId> ids) {
        return ids.stream().map(BookieId::toString).sorted().collect(Collectors.toList());
    }

    /** The bookies as an administrator sees them. */
    private Object bookies(JsonNode arguments) throws Exception {
        try (BookKeeperAdmin admin = new BookKeeperAdmin(client(arguments))) {
            Map<String, Object> found = new LinkedHashMap<>();
            found.put("writable", texts(admin.getAvailableBookies()));
            found.put("read_only", texts(admin.getReadOnlyBookies()));
            found.put("ever", texts(admin.getAllBookies()));
            return found;
        }
    }

    private Object ensembles(JsonNode arguments) {
        Map<Long, List<String>> found = new LinkedHashMap<>();
        handle(arguments).getLedgerMetadata().getAllEnsembles().forEach((first, members) -> {
            List<String> ids = new ArrayList<>();
            members.forEach(member -> ids.add(member.toString()));
            found.put(first, ids);
        });
        return found;
    }
}
