import com.fasterxml.jackson.databind.JsonNode;
import java.net.URI;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.http.HttpServer;
import org.apache.bookkeeper.http.service.HttpServiceRequest;
import org.apache.bookkeeper.http.service.HttpServiceResponse;
import org.apache.bookkeeper.meta.MetadataBookieDriver;
import org.apache.bookkeeper.meta.MetadataDrivers;
import org.apache.bookkeeper.server.http.BKHttpServiceProvider;
import org.apache.bookkeeper.stats.NullStatsLogger;

/** The services behind the HTTP admin of a bookie that is none: what they say of a cluster. */
class HttpServices {
    private final Map<String, BKHttpServiceProvider> providers = new HashMap<>();
    private final Map<String, MetadataBookieDriver> drivers = new HashMap<>();

    void offer(Map<String, Driver.Call> calls) {
        calls.put("http_open", this::open);
        calls.put("http_close", this::close);
        calls.put("http_ask", this::ask);
    }

    private Object open(JsonNode arguments) throws Exception {
        String name = arguments.get("name").asText();
        ServerConfiguration conf = Bookies.configured(arguments.get("conf"));
        MetadataBookieDriver driver =
            MetadataDrivers.getBookieDriver(URI.create(conf.getMetadataServiceUri()));
        driver.initialize(conf, NullStatsLogger.INSTANCE);
        drivers.put(name, driver);
        providers.put(name, new BKHttpServiceProvider.Builder()
            .setServerConfiguration(conf)
            .setLedgerManagerFactory(driver.getLedgerManagerFactory())
            .build());
        return null;
    }

    private Object close(JsonNode arguments) throws Exception {
        String name = arguments.get("name").asText();
        providers.remove(name).close();
        drivers.remove(name).close();
        return null;
    }

    /** Returns status and body; a service that throws is a status 500, as its servers make of it. */
    private Object ask(JsonNode arguments) throws Exception {
        Map<String, String> parameters = new HashMap<>();
        for (Iterator<Map.Entry<String, JsonNode>> fields = arguments.get("parameters").fields();
                fields.hasNext(); ) {
            Map.Entry<String, JsonNode> field = fields.next();
            parameters.put(field.getKey(), field.getValue().asText());
        }
        JsonNode body = arguments.get("body");
        HttpServiceRequest request = new HttpServiceRequest(
            body == null || body.isNull() ? null : body.asText(),
            HttpServer.Method.valueOf(arguments.get("method").asText()),
            parameters);
        Map<String, Object> answer = new LinkedHashMap<>();
        try {
            HttpServiceResponse response = providers.get(arguments.get("name").asText())
                .provideHttpEndpointService(
                    HttpServer.ApiType.valueOf(arguments.get("service").asText()))
                .handle(request);
            answer.put("status", response.getStatusCode());
            answer.put("body", response.getBody());
        } catch (Exception error) {
            answer.put("status", 500);
            answer.put("body", String.valueOf(error));
        }
        return answer;
    }
}
