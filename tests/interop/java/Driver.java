import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import org.apache.bookkeeper.client.BKException;

/**
 * Drives the real BookKeeper by lines of JSON: {"call": NAME, ...} in, {"result": ...} or
 * {"error": CLASS, "message": TEXT, "code": N} out, one line each, one call at a time.
 */
public class Driver {
    /** One call: its arguments, what it returns as JSON. */
    interface Call {
        Object run(JsonNode arguments) throws Exception;
    }

    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // what the libraries print is no answer
        Map<String, Call> calls = new HashMap<>();
        new Bookies().offer(calls);
        new BookieClients().offer(calls);
        new WholeClients().offer(calls);
        new Clusters().offer(calls);
        new Replication().offer(calls);
        new Configurations().offer(calls);
        new Authentication().offer(calls);
        new HttpServices().offer(calls);
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                JsonNode arguments = JSON.readTree(line);
                String name = arguments.get("call").asText();
                if (!calls.containsKey(name)) {
                    throw new IllegalArgumentException("no call " + name);
                }
                answer.put("result", calls.get(name).run(arguments));
            } catch (Throwable error) {
                Throwable cause = cause(error);
                cause.printStackTrace();
                answer.put("error", cause.getClass().getSimpleName());
                answer.put("message", String.valueOf(cause.getMessage()));
                if (cause instanceof BKException) {
                    answer.put("code", ((BKException) cause).getCode());
                }
            }
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
        System.exit(0); // threads of bookies that were not stopped must not keep it
    }

    /** Something of the real client that is closed. */
    interface Closing {
        void close() throws Exception;
    }

    /**
     * Closes it, again after the real client's own race: an answer that comes while it closes is
     * recycled twice, which ends in a null pointer.
     */
    static void close(Closing client) throws Exception {
        try {
            client.close();
        } catch (NullPointerException error) {
            error.printStackTrace();
            client.close();
        }
    }

    private static Throwable cause(Throwable error) {
        Throwable found = error;
        while ((found instanceof ExecutionException || found instanceof CompletionException)
            && found.getCause() != null) {
            found = found.getCause();
        }
        return found;
    }
}
