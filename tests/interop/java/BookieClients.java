import com.fasterxml.jackson.databind.JsonNode;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.PooledByteBufAllocator;
import io.netty.buffer.Unpooled;
import io.netty.buffer.UnpooledByteBufAllocator;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.util.ReferenceCounted;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.api.WriteFlag;
import org.apache.bookkeeper.common.util.OrderedExecutor;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.net.BookieSocketAddress;
import org.apache.bookkeeper.proto.BookieAddressResolver;
import org.apache.bookkeeper.proto.BookieClientImpl;
import org.apache.bookkeeper.proto.BookkeeperInternalCallbacks.ReadEntryCallbackCtx;
import org.apache.bookkeeper.proto.DataFormats.LedgerMetadataFormat.DigestType;
import org.apache.bookkeeper.proto.checksum.DigestManager;
import org.apache.bookkeeper.stats.NullStatsLogger;
import org.apache.bookkeeper.util.ByteBufList;

/** The real client's layer for one bookie, without metadata: requests to an address. */
class BookieClients {
    private static final long SECONDS = 30;

    private final Map<String, Client> open = new HashMap<>();

    void offer(Map<String, Driver.Call> calls) {
        calls.put("client_open", arguments -> {
            open.put(arguments.get("name").asText(), new Client(arguments));
            return null;
        });
        calls.put("client_close", arguments -> {
            open.remove(arguments.get("name").asText()).close();
            return null;
        });
        calls.put("client_do", arguments ->
            open.get(arguments.get("name").asText()).all(arguments.get("operations")));
    }

    private static class Client {
        private final boolean v2;
        private final BookieId bookie;
        private final EventLoopGroup loops = new NioEventLoopGroup(1);
        private final OrderedExecutor executor =
            OrderedExecutor.newBuilder().name("client").numThreads(1).build();
        private final ScheduledExecutorService scheduler =
            Executors.newSingleThreadScheduledExecutor();
        private final BookieClientImpl client;

        Client(JsonNode arguments) throws Exception {
            v2 = arguments.get("v2").asBoolean();
            BookieSocketAddress address = new BookieSocketAddress(
                arguments.get("host").asText(), arguments.get("port").asInt());
            bookie = address.toBookieId();
            BookieAddressResolver resolver = id -> address;
            ClientConfiguration conf = new ClientConfiguration();
            conf.setUseV2WireProtocol(v2);
            conf.setNumChannelsPerBookie(1);
            conf.setAddEntryTimeout((int) SECONDS);
            conf.setReadEntryTimeout((int) SECONDS);
            arguments.get("settings").fields().forEachRemaining(
                setting -> conf.setProperty(setting.getKey(), setting.getValue().asText()));
            client = new BookieClientImpl(conf, loops, PooledByteBufAllocator.DEFAULT, executor,
                scheduler, NullStatsLogger.INSTANCE, resolver);
        }

        void close() throws Exception {
            Driver.close(client::close);
            executor.shutdown();
            scheduler.shutdown();
            loops.shutdownGracefully(0, 1, TimeUnit.SECONDS);
        }

        /** Sends all operations, one behind the other; returns the answers in the same order. */
        List<Object> all(JsonNode operations) throws Exception {
            List<CompletableFuture<Map<String, Object>>> sent = new ArrayList<>();
            for (JsonNode operation : operations) {
                sent.add(send(operation));
            }
            List<Object> answers = new ArrayList<>();
            for (CompletableFuture<Map<String, Object>> future : sent) {
                answers.add(future.get(2 * SECONDS, TimeUnit.SECONDS));
            }
            return answers;
        }

        private CompletableFuture<Map<String, Object>> send(JsonNode operation) throws Exception {
            switch (operation.get("op").asText()) {
                case "add":
                    return add(operation);
                case "read":
                    return read(operation);
                case "batch":
                    return batch(operation);
                case "long_poll":
                    return longPoll(operation);
                case "read_lac":
                    return readLac(operation);
                case "write_lac":
                    return writeLac(operation);
                case "force":
                    return force(operation);
                case "list":
                    return list(operation);
                case "info":
                    return info();
                default:
                    throw new IllegalArgumentException("no operation " + operation);
            }
        }

        private static Map<String, Object> code(int rc) {
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("rc", rc);
            return answer;
        }

        private static long ledger(JsonNode operation) {
            return operation.get("ledger").asLong();
        }

        private static int number(JsonNode operation, String name) {
            return operation.has(name) ? operation.get(name).asInt() : 0;
        }

        private static byte[] password(JsonNode operation) {
            return operation.get("password").asText().getBytes(StandardCharsets.UTF_8);
        }

        /** The master key of a password, null where the operation has none. */
        private static byte[] key(JsonNode operation) throws Exception {
            return operation.has("password")
                ? DigestManager.generateMasterKey(password(operation)) : null;
        }

        private DigestManager digests(JsonNode operation) throws Exception {
            return DigestManager.instantiate(ledger(operation), password(operation),
                DigestType.valueOf(operation.get("digest").asText()),
                UnpooledByteBufAllocator.DEFAULT, v2);
        }

        /** The payload of a record whose digest the real client verifies, if it is to. */
        private String payload(JsonNode operation, long entry, ByteBuf record) throws Exception {
            if (!operation.has("digest")) {
                return null;
            }
            ByteBuf slice = record.slice(); // digests are verified at indexes from 0 on
            ByteBuf data = digests(operation).verifyDigestAndReturnData(entry, slice);
            return io.netty.buffer.ByteBufUtil.hexDump(data);
        }

        private CompletableFuture<Map<String, Object>> add(JsonNode operation) throws Exception {
            CompletableFuture<Map<String, Object>> future = new CompletableFuture<>();
            long entry = operation.get("entry").asLong();
            int options = number(operation, "options");
            byte[] key = key(operation);
            byte[] payload = Hex.bytes(operation.get("payload").asText());
            ReferenceCounted request = digests(operation).computeDigestAndPackageForSending(entry,
                operation.get("lac").asLong(), operation.get("length").asLong(),
                Unpooled.wrappedBuffer(payload), key, options);
            EnumSet<WriteFlag> flags = WriteFlag.NONE;
            if (operation.has("deferred_sync")) {
                flags = EnumSet.of(WriteFlag.DEFERRED_SYNC);
            }
            client.addEntry(bookie, ledger(operation), key, entry, request,
                (rc, id, added, address, context) -> {
                    Map<String, Object> answer = code(rc);
                    answer.put("entry", added);
                    future.complete(answer);
                }, null, options, false, flags);
            return future;
        }

        private static class Piggyback implements ReadEntryCallbackCtx {
            private volatile long lac = -1;

            @Override
            public void setLastAddConfirmed(long lastAddConfirmed) {
                lac = lastAddConfirmed;
            }

            @Override
            public long getLastAddConfirmed() {
                return lac;
            }
        }

        private void readDone(JsonNode operation, int rc, long entry, ByteBuf record,
            Piggyback context, CompletableFuture<Map<String, Object>> future) {
            try {
                Map<String, Object> answer = code(rc);
                answer.put("lac", context.getLastAddConfirmed());
                answer.put("entry", entry);
                if (rc == BKException.Code.OK && record != null && record.isReadable()) {
                    long id = record.getLong(record.readerIndex() + 8);
                    answer.put("payload", payload(operation, id, record));
                    answer.put("record", io.netty.buffer.ByteBufUtil.hexDump(record));
                }
                future.complete(answer);
            } catch (Throwable error) {
                future.completeExceptionally(error);
            }
        }

        private CompletableFuture<Map<String, Object>> read(JsonNode operation) throws Exception {
            CompletableFuture<Map<String, Object>> future = new CompletableFuture<>();
            Piggyback context = new Piggyback();
            client.readEntry(bookie, ledger(operation), operation.get("entry").asLong(),
                (rc, id, entry, record, ctx) ->
                    readDone(operation, rc, entry, record, context, future),
                context, number(operation, "flags"), key(operation));
            return future;
        }

        private CompletableFuture<Map<String, Object>> longPoll(JsonNode operation) {
            CompletableFuture<Map<String, Object>> future = new CompletableFuture<>();
            Piggyback context = new Piggyback();
            client.readEntryWaitForLACUpdate(bookie, ledger(operation), -1,
                operation.get("previous_lac").asLong(), number(operation, "timeout_ms"), true,
                (rc, id, entry, record, ctx) ->
                    readDone(operation, rc, entry, record, context, future),
                context);
            return future;
        }

        private CompletableFuture<Map<String, Object>> batch(JsonNode operation) throws Exception {
            CompletableFuture<Map<String, Object>> future = new CompletableFuture<>();
            client.batchReadEntries(bookie, ledger(operation), operation.get("start").asLong(),
                number(operation, "max_count"), operation.get("max_size").asLong(),
                (rc, id, start, records, context) -> {
                    try {
                        Map<String, Object> answer = code(rc);
                        answer.put("payloads", payloads(operation, start, records));
                        future.complete(answer);
                    } catch (Throwable error) {
                        future.completeExceptionally(error);
                    }
                }, new Piggyback(), number(operation, "flags"), key(operation));
            return future;
        }

        private List<String> payloads(JsonNode operation, long start, ByteBufList records)
            throws Exception {
            List<String> found = new ArrayList<>();
            for (int i = 0; records != null && i < records.size(); i++) {
                found.add(payload(operation, start + i, records.getBuffer(i)));
            }
            return found;
        }

        private CompletableFuture<Map<String, Object>> readLac(JsonNode operation) {
            CompletableFuture<Map<String, Object>> future = new CompletableFuture<>();
            client.readLac(bookie, ledger(operation), (rc, id, lac, last, context) -> {
                try {
                    Map<String, Object> answer = code(rc);
                    if (lac != null && lac.isReadable()) {
                        answer.put("lac", digests(operation).verifyDigestAndReturnLac(lac));
                    }
                    if (last != null && last.isReadable()) {
                        DigestManager.RecoveryData found =
                            digests(operation).verifyDigestAndReturnLastConfirmed(last);
                        answer.put("last_confirmed", found.getLastAddConfirmed());
                        answer.put("length", found.getLength());
                    }
                    future.complete(answer);
                } catch (Throwable error) {
                    future.completeExceptionally(error);
                }
            }, null);
            return future;
        }

        private CompletableFuture<Map<String, Object>> writeLac(JsonNode operation)
            throws Exception {
            CompletableFuture<Map<String, Object>> future = new CompletableFuture<>();
            long lac = operation.get("lac").asLong();
            ByteBufList body = digests(operation).computeDigestAndPackageForSendingLac(lac);
            client.writeLac(bookie, ledger(operation), key(operation), lac, body,
                (rc, id, address, context) -> future.complete(code(rc)), null);
            return future;
        }

        private CompletableFuture<Map<String, Object>> force(JsonNode operation) {
            CompletableFuture<Map<String, Object>> future = new CompletableFuture<>();
            client.forceLedger(bookie, ledger(operation),
                (rc, id, address, context) -> future.complete(code(rc)), null);
            return future;
        }

        /** Which of the entries asked about are available, and how many there are in all. */
        private CompletableFuture<Map<String, Object>> list(JsonNode operation) {
            return client.getListOfEntriesOfLedger(bookie, ledger(operation)).handle(
                (availability, error) -> {
                    if (error != null) {
                        return code(error instanceof BKException
                            ? ((BKException) error).getCode() : BKException.Code.UnexpectedConditionException);
                    }
                    Map<String, Object> answer = code(BKException.Code.OK);
                    answer.put("total", availability.getTotalNumOfAvailableEntries());
                    List<Boolean> available = new ArrayList<>();
                    for (JsonNode entry : operation.get("entries")) {
                        available.add(availability.isEntryAvailable(entry.asLong()));
                    }
                    answer.put("available", available);
                    return answer;
                });
        }

        private CompletableFuture<Map<String, Object>> info() {
            CompletableFuture<Map<String, Object>> future = new CompletableFuture<>();
            client.getBookieInfo(bookie, 3, (rc, info, context) -> {
                Map<String, Object> answer = code(rc);
                if (info != null) {
                    answer.put("free", info.getFreeDiskSpace());
                    answer.put("total", info.getTotalDiskSpace());
                }
                future.complete(answer);
            }, null);
            return future;
        }
    }
}
