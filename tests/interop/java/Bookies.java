import com.fasterxml.jackson.databind.JsonNode;
import io.netty.buffer.ByteBuf;
import java.io.File;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.PrimitiveIterator;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.bookie.Bookie;
import org.apache.bookkeeper.bookie.BookieException;
import org.apache.bookkeeper.bookie.BookieImpl;
import org.apache.bookkeeper.bookie.LedgerStorage;
import org.apache.bookkeeper.bookie.SortedLedgerStorage;
import org.apache.bookkeeper.bookie.StateManager;
import org.apache.bookkeeper.bookie.InterleavedLedgerStorage;
import org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.discover.RegistrationManager;
import org.apache.bookkeeper.meta.MetadataDrivers;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.server.EmbeddedServer;
import org.apache.bookkeeper.server.conf.BookieConfiguration;
import org.apache.bookkeeper.versioning.Version;
import org.apache.bookkeeper.versioning.Versioned;
import org.apache.zookeeper.data.Stat;
import org.apache.zookeeper.server.NIOServerCnxnFactory;
import org.apache.zookeeper.server.ZooKeeperServer;

/** Real bookies with a real ZooKeeper: started on directories, asked, written to, stopped. */
class Bookies {
    private final Map<String, EmbeddedServer> running = new HashMap<>();
    private final Map<Integer, ZooKeeperServer> servers = new HashMap<>();

    void offer(Map<String, Driver.Call> calls) {
        calls.put("zookeeper", this::zookeeper);
        calls.put("expire", this::expire);
        calls.put("new_cluster", this::newCluster);
        calls.put("register_cookie", this::registerCookie);
        calls.put("start", this::start);
        calls.put("stop", this::stop);
        calls.put("read_only", this::readOnly);
        calls.put("ledgers", this::ledgers);
        calls.put("answers", this::answers);
        calls.put("add", this::add);
        calls.put("fence", this::fence);
        calls.put("explicit_lac", this::explicitLac);
        calls.put("flush", this::flush);
        calls.put("delete", this::delete);
        calls.put("collect_garbage", this::collectGarbage);
        calls.put("inconsistencies", this::inconsistencies);
    }

    // -- ZooKeeper

    private Object zookeeper(JsonNode arguments) throws Exception {
        File folder = new File(arguments.get("folder").asText());
        ZooKeeperServer server = new ZooKeeperServer(folder, folder, 500);
        NIOServerCnxnFactory connections = new NIOServerCnxnFactory();
        connections.configure(new InetSocketAddress("127.0.0.1", 0), 1000);
        connections.startup(server);
        servers.put(connections.getLocalPort(), server);
        return connections.getLocalPort();
    }

    /** Ends the session that an ephemeral node belongs to, as if its time were up. */
    private Object expire(JsonNode arguments) throws Exception {
        ZooKeeperServer server = servers.get(arguments.get("port").asInt());
        Stat stat = new Stat();
        server.getZKDatabase().getData(arguments.get("path").asText(), stat, null);
        server.closeSession(stat.getEphemeralOwner());
        return null;
    }

    static ServerConfiguration configured(JsonNode settings) {
        ServerConfiguration conf = new ServerConfiguration();
        Iterator<Map.Entry<String, JsonNode>> fields = settings.fields();
        while (fields.hasNext()) {
            Map.Entry<String, JsonNode> field = fields.next();
            conf.setProperty(field.getKey(), field.getValue().asText());
        }
        return conf;
    }

    /** Makes the nodes of a cluster; returns its instance id. */
    private Object newCluster(JsonNode arguments) throws Exception {
        ServerConfiguration conf = configured(arguments.get("conf"));
        if (!BookKeeperAdmin.initNewCluster(conf)) {
            throw new IllegalStateException("the cluster is there already");
        }
        return MetadataDrivers.runFunctionWithRegistrationManager(conf, manager -> {
            try {
                return manager.getClusterInstanceId();
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        });
    }

    private Object registerCookie(JsonNode arguments) throws Exception {
        ServerConfiguration conf = configured(arguments.get("conf"));
        BookieId id = BookieId.parse(arguments.get("bookie_id").asText());
        byte[] text = arguments.get("text").asText().getBytes(StandardCharsets.UTF_8);
        return MetadataDrivers.runFunctionWithRegistrationManager(conf, manager -> {
            try {
                manager.writeCookie(id, new Versioned<>(text, version(manager, id)));
                return null;
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        });
    }

    private static Version version(RegistrationManager manager, BookieId id) throws Exception {
        try {
            return manager.readCookie(id).getVersion();
        } catch (BookieException.CookieNotFoundException error) {
            return Version.NEW;
        }
    }

    // -- bookies

    private Object start(JsonNode arguments) throws Exception {
        ServerConfiguration conf = configured(arguments.get("conf"));
        EmbeddedServer server = EmbeddedServer.builder(new BookieConfiguration(conf)).build();
        server.getLifecycleComponentStack().start();
        if (!server.getBookieService().getServer().isRunning()) {
            int code = server.getBookieService().getServer().getExitCode();
            server.getLifecycleComponentStack().close();
            throw new IllegalStateException("the bookie ended with exit code " + code);
        }
        running.put(arguments.get("name").asText(), server);
        return server.getBookieService().getServer().getBookieId().toString();
    }

    private Object stop(JsonNode arguments) {
        running.remove(arguments.get("name").asText()).getLifecycleComponentStack().close();
        return null;
    }

    /** Makes a bookie read-only, or writable again, as the monitor of its disks does. */
    private Object readOnly(JsonNode arguments) throws Exception {
        StateManager state = ((BookieImpl) bookie(arguments)).getStateManager();
        return arguments.get("read_only").asBoolean()
            ? state.transitionToReadOnlyMode().get() : state.transitionToWritableMode().get();
    }

    private Bookie bookie(JsonNode arguments) {
        String name = arguments.get("name").asText();
        return running.get(name).getBookieService().getServer().getBookie();
    }

    private static Iterable<Long> active(LedgerStorage storage) throws Exception {
        if (storage instanceof DbLedgerStorage) {
            return ((DbLedgerStorage) storage).getActiveLedgersInRange(0, Long.MAX_VALUE);
        }
        if (storage instanceof SortedLedgerStorage) {
            return ((SortedLedgerStorage) storage).getActiveLedgersInRange(0, Long.MAX_VALUE);
        }
        return ((InterleavedLedgerStorage) storage).getActiveLedgersInRange(0, Long.MAX_VALUE);
    }

    private Object ledgers(JsonNode arguments) throws Exception {
        List<Long> found = new ArrayList<>();
        active(bookie(arguments).getLedgerStorage()).forEach(found::add);
        return found;
    }

    private interface Question {
        Object ask() throws Exception;
    }

    private static Object answer(Question question) {
        try {
            return question.ask();
        } catch (Throwable error) {
            return "!" + error.getClass().getSimpleName();
        }
    }

    /** States of ledgers and a digest of the records asked for; what is missing, by its error. */
    private Object answers(JsonNode arguments) throws Exception {
        LedgerStorage storage = bookie(arguments).getLedgerStorage();
        List<Object> found = new ArrayList<>();
        for (JsonNode asked : arguments.get("ledgers")) {
            long ledger = asked.get("ledger").asLong();
            Map<String, Object> said = new LinkedHashMap<>();
            said.put("ledger", ledger);
            said.put("exists", answer(() -> storage.ledgerExists(ledger)));
            said.put("master_key", answer(() -> Hex.text(storage.readMasterKey(ledger))));
            said.put("fenced", answer(() -> storage.isFenced(ledger)));
            said.put("limbo", answer(() -> storage.hasLimboState(ledger)));
            said.put("lac", answer(() -> storage.getLastAddConfirmed(ledger)));
            said.put("explicit_lac", answer(() -> Hex.text(storage.getExplicitLac(ledger))));
            said.put("last_entry", answer(() -> entryId(storage.getEntry(ledger, -1))));
            said.put("listed", answer(() -> listed(storage, ledger)));
            read(storage, ledger, asked.get("runs"), said);
            found.add(said);
        }
        return found;
    }

    private static long entryId(ByteBuf record) {
        long id = record.getLong(record.readerIndex() + 8);
        record.release();
        return id;
    }

    private static List<long[]> listed(LedgerStorage storage, long ledger) throws Exception {
        List<long[]> runs = new ArrayList<>();
        PrimitiveIterator.OfLong entries = storage.getListOfEntriesOfLedger(ledger);
        while (entries.hasNext()) {
            append(runs, entries.nextLong());
        }
        return runs;
    }

    private static void append(List<long[]> runs, long entry) {
        if (!runs.isEmpty() && runs.get(runs.size() - 1)[1] == entry - 1) {
            runs.get(runs.size() - 1)[1] = entry;
        } else {
            runs.add(new long[] {entry, entry});
        }
    }

    private static void read(
        LedgerStorage storage, long ledger, JsonNode runs, Map<String, Object> said) throws Exception {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        Map<String, List<long[]>> missing = new TreeMap<>();
        for (JsonNode run : runs) {
            for (long entry = run.get(0).asLong(); entry <= run.get(1).asLong(); entry++) {
                try {
                    ByteBuf record = storage.getEntry(ledger, entry);
                    digest.update(record.nioBuffer());
                    record.release();
                } catch (Exception error) {
                    String name = error.getClass().getSimpleName();
                    append(missing.computeIfAbsent(name, key -> new ArrayList<>()), entry);
                }
            }
        }
        said.put("records", Hex.text(digest.digest()));
        said.put("missing", missing);
    }

    /** Adds records through the journal, as a client's adds go; waits for all. */
    private Object add(JsonNode arguments) throws Exception {
        Bookie bookie = bookie(arguments);
        byte[] key = Hex.bytes(arguments.get("master_key").asText());
        List<CompletableFuture<Integer>> done = new ArrayList<>();
        for (JsonNode record : arguments.get("records")) {
            CompletableFuture<Integer> future = new CompletableFuture<>();
            bookie.addEntry(Hex.buffer(record.asText()), false,
                (rc, ledger, entry, address, context) -> future.complete(rc), null, key);
            done.add(future);
        }
        for (CompletableFuture<Integer> future : done) {
            if (future.get() != BKException.Code.OK) {
                throw BKException.create(future.get());
            }
        }
        return done.size();
    }

    private Object fence(JsonNode arguments) throws Exception {
        byte[] key = Hex.bytes(arguments.get("master_key").asText());
        return bookie(arguments).fenceLedger(arguments.get("ledger").asLong(), key).get();
    }

    private Object explicitLac(JsonNode arguments) throws Exception {
        byte[] key = Hex.bytes(arguments.get("master_key").asText());
        CompletableFuture<Integer> future = new CompletableFuture<>();
        bookie(arguments).setExplicitLac(Hex.buffer(arguments.get("body").asText()),
            (rc, ledger, entry, address, context) -> future.complete(rc), null, key);
        return future.get();
    }

    private Object flush(JsonNode arguments) throws Exception {
        bookie(arguments).getLedgerStorage().flush();
        return null;
    }

    /** What garbage collection does to a ledger that metadata no longer have. */
    private Object delete(JsonNode arguments) throws Exception {
        bookie(arguments).getLedgerStorage().deleteLedger(arguments.get("ledger").asLong());
        return null;
    }

    /** Collects garbage and compacts entry logs, as far as the settings say; waits for the end. */
    private Object collectGarbage(JsonNode arguments) throws Exception {
        LedgerStorage storage = bookie(arguments).getLedgerStorage();
        storage.flush();
        storage.forceGC(true, true);
        while (storage.isInForceGC()) {
            Thread.sleep(10);
        }
        storage.flush();
        return null;
    }

    private Object inconsistencies(JsonNode arguments) throws Exception {
        List<String> found = new ArrayList<>();
        bookie(arguments).getLedgerStorage().localConsistencyCheck(java.util.Optional.empty())
            .forEach(one -> found.add(one.getLedgerId() + "/" + one.getEntryId()));
        return found;
    }
}
