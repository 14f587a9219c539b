package org.apache.bookkeeper.proto;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.bookie.Bookie;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.util.PortManager;
import org.junit.AssumptionViolatedException;

/**
 * A bookie of bkstore, a process of its own, where BookKeeper's tests start one by configuration.
 *
 * <p>The process gets the test's configuration as a file; `-Dbkstore.storage` names a storage that
 * goes before the configured one. A test that asks for what only an object in this JVM has is
 * aborted, and says why.
 */
public class BkstoreServer extends BookieServer {
    private static final String COMMAND = System.getProperty("bkstore.bin");
    private static final String STORAGE = System.getProperty("bkstore.storage", "");
    private static final int START_SECONDS = 90;
    private static final int STOP_SECONDS = 30;
    private static final Map<String, String> CLASSES = Map.of(
        "sorted", "org.apache.bookkeeper.bookie.SortedLedgerStorage",
        "interleaved", "org.apache.bookkeeper.bookie.InterleavedLedgerStorage",
        "db", "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage");

    private final ServerConfiguration conf;
    private Path file;
    private Process process;

    /** Whether a bookie of this configuration is one of ours: not one of a class of a test's own. */
    public static boolean fits(ServerConfiguration conf) {
        return COMMAND != null
            && CLASSES.containsValue(conf.getLedgerStorageClass())
            && !conf.isEnableLocalTransport()
            && isEmpty(conf.getBookieAuthProviderFactoryClass())
            && isEmpty(conf.getTLSProviderFactoryClass());
    }

    private static boolean isEmpty(String text) {
        return text == null || text.isEmpty();
    }

    public BkstoreServer(ServerConfiguration conf) {
        super(conf);
        this.conf = conf;
        if (!STORAGE.isEmpty()) { // a bookie of the test's own that takes over the directory has it too
            conf.setLedgerStorageClass(CLASSES.get(STORAGE));
        }
        if (conf.getBookiePort() == 0) {
            conf.setBookiePort(PortManager.nextFreePort());
        }
    }

    @Override
    public synchronized void start() throws InterruptedException, IOException {
        file = Files.createTempFile("bk_server", ".conf");
        writeConfiguration();
        List<String> directories = new ArrayList<>(List.of(conf.getJournalDirNames()));
        directories.addAll(List.of(conf.getLedgerDirNames()));
        if (conf.getIndexDirNames() != null) {
            directories.addAll(List.of(conf.getIndexDirNames()));
        }
        for (String directory : directories) {
            new File(directory, "current").mkdirs();
        }
        List<String> command = new ArrayList<>(List.of(
            COMMAND, "serve", file.toString(), "--create", "--host", "127.0.0.1",
            "--port", String.valueOf(conf.getBookiePort()), "--session-timeout", "30", "--http", "none"));
        try {
            command.addAll(List.of("--bookie-id", getBookieId().toString()));
        } catch (Exception error) {
            throw new IOException(error);
        }
        process = new ProcessBuilder(command).redirectErrorStream(true).start();
        waitUntilItServes();
    }

    /** Write what the test has configured, and nothing that is a default. */
    private void writeConfiguration() throws IOException {
        Map<String, String> lines = new TreeMap<>();
        for (Iterator<String> keys = conf.getKeys(); keys.hasNext();) {
            String key = keys.next();
            Object value = conf.getProperty(key);
            if (!key.contains(".") && value != null) {
                lines.put(key, value instanceof Collection ? joined((Collection<?>) value) : value.toString());
            }
        }
        lines.put("journalDirectories", String.join(",", conf.getJournalDirNames()));
        lines.remove("journalDirectory");
        // Versions that disagree, as those of most tests do, are refused where a bookie starts by Main.
        if (conf.getJournalFormatVersionToWrite() >= 6 ^ conf.getFileInfoFormatVersionToWrite() >= 1) {
            lines.remove("journalFormatVersionToWrite");
            lines.remove("fileInfoFormatVersionToWrite");
        }
        lines.put("ledgerDirectories", String.join(",", conf.getLedgerDirNames()));
        lines.put("ledgerStorageClass", conf.getLedgerStorageClass());
        try {
            lines.put("metadataServiceUri", conf.getMetadataServiceUri());
        } catch (Exception error) {
            throw new IOException(error);
        }
        try (PrintWriter writer = new PrintWriter(Files.newBufferedWriter(file, StandardCharsets.ISO_8859_1))) {
            lines.forEach((key, value) -> writer.println(key + "=" + value.replace("\\", "\\\\")));
        }
    }

    private static String joined(Collection<?> values) {
        List<String> texts = new ArrayList<>();
        values.forEach(value -> texts.add(value.toString()));
        return String.join(",", texts);
    }

    private void waitUntilItServes() throws InterruptedException, IOException {
        CountDownLatch serving = new CountDownLatch(1);
        StringBuffer said = new StringBuffer();
        Thread reader = new Thread(() -> {
            try (BufferedReader lines = new BufferedReader(
                    new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8))) {
                for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                    said.append(line).append('\n');
                    System.err.println("[bkstore " + conf.getBookiePort() + "] " + line);
                    if (line.startsWith("bkstore: serving")) {
                        serving.countDown();
                    }
                }
            } catch (IOException error) {
                said.append(error);
            }
            serving.countDown();
        });
        reader.setDaemon(true);
        reader.start();
        boolean told = serving.await(START_SECONDS, TimeUnit.SECONDS);
        if (!told || said.indexOf("bkstore: serving") < 0) {
            process.destroyForcibly();
            throw new IOException("bkstore did not start: " + said);
        }
    }

    private void signal(String name) {
        try {
            new ProcessBuilder("kill", "-" + name, String.valueOf(process.pid())).start().waitFor();
        } catch (IOException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public void suspendProcessing() {
        signal("STOP");
    }

    @Override
    public void resumeProcessing() {
        signal("CONT");
    }

    @Override
    public synchronized void shutdown() {
        if (process == null) {
            return;
        }
        signal("CONT");
        process.destroy();
        try {
            if (!process.waitFor(STOP_SECONDS, TimeUnit.SECONDS)) {
                System.err.println("bkstore did not stop in " + STOP_SECONDS + " s");
                process.destroyForcibly().waitFor();
            }
            Files.deleteIfExists(file);
        } catch (IOException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public boolean isRunning() {
        return process != null && process.isAlive();
    }

    @Override
    public boolean isBookieRunning() {
        return isRunning();
    }

    @Override
    public void join() throws InterruptedException {
        process.waitFor();
    }

    @Override
    public int getExitCode() {
        return process.isAlive() ? 0 : process.exitValue();
    }

    @Override
    public Bookie getBookie() {
        throw new AssumptionViolatedException("the test looks inside of a bookie");
    }

    @Override
    public BookieRequestProcessor getBookieRequestProcessor() {
        throw new AssumptionViolatedException("the test looks inside of a bookie");
    }
}
