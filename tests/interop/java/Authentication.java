import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.CallbackHandler;
import javax.security.auth.callback.NameCallback;
import javax.security.auth.callback.PasswordCallback;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.login.Configuration;
import javax.security.sasl.AuthorizeCallback;
import javax.security.sasl.RealmCallback;
import javax.security.sasl.Sasl;
import javax.security.sasl.SaslServer;

/** JAAS files and SASL as the JDK has them; what a JAAS file says holds for the whole JVM. */
public class Authentication {
    private SaslServer server;

    void offer(Map<String, Driver.Call> calls) {
        calls.put("jaas_use", arguments -> {
            use(arguments.get("file").asText());
            return null;
        });
        calls.put("jaas_none", arguments -> {
            System.clearProperty("java.security.auth.login.config");
            Configuration.setConfiguration(null);
            return null;
        });
        calls.put("jaas_sections", this::sections);
        calls.put("digest_challenge", arguments -> {
            server = Sasl.createSaslServer("DIGEST-MD5", "bookkeeper", "bookkeeper", null,
                knowing(arguments.get("user").asText(), arguments.get("password").asText()));
            return Hex.text(server.evaluateResponse(new byte[0]));
        });
        calls.put("digest_verdict", arguments ->
            Hex.text(server.evaluateResponse(Hex.bytes(arguments.get("response").asText()))));
    }

    private static void use(String file) {
        System.setProperty("java.security.auth.login.config", file);
        Configuration.setConfiguration(null); // else the one of before stays
    }

    private Object sections(JsonNode arguments) {
        use(arguments.get("file").asText());
        Map<String, Object> found = new LinkedHashMap<>();
        for (JsonNode each : arguments.get("sections")) {
            AppConfigurationEntry[] entries =
                Configuration.getConfiguration().getAppConfigurationEntry(each.asText());
            if (entries == null) {
                continue;
            }
            List<Object> modules = new ArrayList<>();
            for (AppConfigurationEntry entry : entries) {
                modules.add(List.of(entry.getLoginModuleName(), entry.getOptions()));
            }
            found.put(each.asText(), modules);
        }
        return found;
    }

    private static CallbackHandler knowing(String user, String password) {
        return callbacks -> {
            boolean known = false;
            for (Callback callback : callbacks) {
                if (callback instanceof NameCallback) {
                    known = ((NameCallback) callback).getDefaultName().equals(user);
                } else if (callback instanceof PasswordCallback && known) {
                    ((PasswordCallback) callback).setPassword(password.toCharArray());
                } else if (callback instanceof RealmCallback) {
                    RealmCallback realm = (RealmCallback) callback;
                    realm.setText(realm.getDefaultText());
                } else if (callback instanceof AuthorizeCallback) {
                    AuthorizeCallback ids = (AuthorizeCallback) callback;
                    ids.setAuthorized(
                        ids.getAuthenticationID().equals(ids.getAuthorizationID()));
                }
            }
        };
    }
}
