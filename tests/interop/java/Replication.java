import com.fasterxml.jackson.databind.JsonNode;
import java.net.URI;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.meta.LedgerUnderreplicationManager;
import org.apache.bookkeeper.meta.MetadataBookieDriver;
import org.apache.bookkeeper.meta.MetadataDrivers;
import org.apache.bookkeeper.meta.UnderreplicatedLedger;
import org.apache.bookkeeper.replication.Auditor;
import org.apache.bookkeeper.replication.AutoRecoveryMain;
import org.apache.bookkeeper.replication.ReplicationWorker;
import org.apache.bookkeeper.stats.NullStatsLogger;

/** The real auditor and replication worker, one beside the other or together, and the marks. */
class Replication {
    private interface Stopping {
        void stop() throws Exception;
    }

    private final Map<String, Stopping> running = new HashMap<>();
    private final Map<String, LedgerUnderreplicationManager> managers = new HashMap<>();

    void offer(Map<String, Driver.Call> calls) {
        calls.put("auditor_start", this::auditor);
        calls.put("worker_start", this::worker);
        calls.put("autorecovery_start", this::autorecovery);
        calls.put("replication_stop", this::stop);
        calls.put("marks_open", this::open);
        calls.put("marks_close", this::close);
        calls.put("marks", this::marks);
        calls.put("mark", this::mark);
        calls.put("marks_take", arguments -> manager(arguments).pollLedgerToRereplicate());
        calls.put("marks_done", this::done);
        calls.put("marks_release", this::release);
        calls.put("marks_locked", this::locked);
        calls.put("marks_enabled", arguments -> manager(arguments).isLedgerReplicationEnabled());
        calls.put("marks_enable", this::enable);
    }

    private static String name(JsonNode arguments) {
        return arguments.get("name").asText();
    }

    private Object auditor(JsonNode arguments) throws Exception {
        ServerConfiguration conf = Bookies.configured(arguments.get("conf"));
        Auditor auditor = new Auditor(conf.getBookieId(), conf, NullStatsLogger.INSTANCE);
        auditor.start();
        running.put(name(arguments), auditor::shutdown);
        return null;
    }

    private Object worker(JsonNode arguments) throws Exception {
        ReplicationWorker worker =
            new ReplicationWorker(Bookies.configured(arguments.get("conf")));
        worker.start();
        running.put(name(arguments), worker::shutdown);
        return null;
    }

    private Object autorecovery(JsonNode arguments) throws Exception {
        AutoRecoveryMain both =
            new AutoRecoveryMain(Bookies.configured(arguments.get("conf")));
        both.start();
        running.put(name(arguments), both::shutdown);
        return null;
    }

    /** Stops it; returns whether it ended: a worker that is interrupted while it copies may not. */
    private Object stop(JsonNode arguments) throws Exception {
        Stopping found = running.remove(name(arguments));
        Thread stopping = new Thread(() -> {
            try {
                found.stop();
            } catch (Exception error) {
                error.printStackTrace();
            }
        });
        stopping.setDaemon(true);
        stopping.start();
        stopping.join(10_000);
        return !stopping.isAlive();
    }

    // -- marks

    private final Map<String, MetadataBookieDriver> drivers = new HashMap<>();

    private LedgerUnderreplicationManager manager(JsonNode arguments) {
        return managers.get(name(arguments));
    }

    private static long ledger(JsonNode arguments) {
        return arguments.get("ledger").asLong();
    }

    private Object open(JsonNode arguments) throws Exception {
        ServerConfiguration conf = Bookies.configured(arguments.get("conf"));
        MetadataBookieDriver driver =
            MetadataDrivers.getBookieDriver(URI.create(conf.getMetadataServiceUri()));
        driver.initialize(conf, NullStatsLogger.INSTANCE);
        drivers.put(name(arguments), driver);
        managers.put(name(arguments),
            driver.getLedgerManagerFactory().newLedgerUnderreplicationManager());
        return null;
    }

    private Object close(JsonNode arguments) throws Exception {
        managers.remove(name(arguments)).close();
        drivers.remove(name(arguments)).close();
        return null;
    }

    /** The replicas that are missing, by ledger. */
    private Object marks(JsonNode arguments) {
        Map<Long, List<String>> found = new TreeMap<>();
        Iterator<UnderreplicatedLedger> all = manager(arguments).listLedgersToRereplicate(null);
        while (all.hasNext()) {
            UnderreplicatedLedger one = all.next();
            found.put(one.getLedgerId(), new ArrayList<>(one.getReplicaList()));
        }
        return found;
    }

    private Object mark(JsonNode arguments) throws Exception {
        List<String> bookies = new ArrayList<>();
        arguments.get("bookies").forEach(bookie -> bookies.add(bookie.asText()));
        manager(arguments).markLedgerUnderreplicatedAsync(ledger(arguments), bookies).get();
        return null;
    }

    private Object done(JsonNode arguments) throws Exception {
        manager(arguments).markLedgerReplicated(ledger(arguments));
        return null;
    }

    private Object release(JsonNode arguments) throws Exception {
        manager(arguments).releaseUnderreplicatedLedger(ledger(arguments));
        return null;
    }

    private Object locked(JsonNode arguments) throws Exception {
        return manager(arguments).isLedgerBeingReplicated(ledger(arguments));
    }

    private Object enable(JsonNode arguments) throws Exception {
        if (arguments.get("enabled").asBoolean()) {
            manager(arguments).enableLedgerReplication();
        } else {
            manager(arguments).disableLedgerReplication();
        }
        return null;
    }
}
