import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.meta.LedgerMetadataSerDe;

/** What administrators do to a cluster, and ledger metadata as the real classes read them. */
class Clusters {
    void offer(Map<String, Driver.Call> calls) {
        calls.put("format_cluster", this::format);
        calls.put("nuke_cluster", this::nuke);
        calls.put("read_metadata", this::readMetadata);
    }

    /** `metaformat`; returns whether it was done. */
    private Object format(JsonNode arguments) throws Exception {
        ServerConfiguration conf = Bookies.configured(arguments.get("conf"));
        return BookKeeperAdmin.format(conf, false, arguments.get("force").asBoolean());
    }

    private Object nuke(JsonNode arguments) throws Exception {
        ServerConfiguration conf = Bookies.configured(arguments.get("conf"));
        return BookKeeperAdmin.nukeExistingCluster(conf, arguments.get("root").asText(), null, true);
    }

    /** What the real reader finds in the bytes of a ledger's metadata, and what it would write. */
    private Object readMetadata(JsonNode arguments) throws Exception {
        LedgerMetadataSerDe coder = new LedgerMetadataSerDe();
        LedgerMetadata found = coder.parseConfig(Hex.bytes(arguments.get("data").asText()),
            arguments.get("ledger").asLong(), Optional.empty());
        Map<String, Object> said = new LinkedHashMap<>();
        said.put("format", found.getMetadataFormatVersion());
        said.put("sizes", new int[] {
            found.getEnsembleSize(), found.getWriteQuorumSize(), found.getAckQuorumSize()});
        said.put("state", found.getState().toString());
        said.put("last", found.isClosed() ? found.getLastEntryId() : null);
        said.put("length", found.isClosed() ? found.getLength() : null);
        said.put("digest", found.getDigestType().toString());
        said.put("password", Hex.text(found.getPassword()));
        Map<String, String> custom = new LinkedHashMap<>();
        found.getCustomMetadata().forEach((key, value) -> custom.put(key, Hex.text(value)));
        said.put("custom", custom);
        List<Object> segments = new ArrayList<>();
        found.getAllEnsembles().forEach((first, members) -> {
            List<String> ids = new ArrayList<>();
            members.forEach(member -> ids.add(member.toString()));
            segments.add(new Object[] {first, ids});
        });
        said.put("segments", segments);
        said.put("written", Hex.text(coder.serialize(found)));
        return said;
    }
}
