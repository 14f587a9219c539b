import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage;
import org.apache.bookkeeper.conf.AbstractConfiguration;
import org.apache.bookkeeper.conf.ServerConfiguration;

/** What ServerConfiguration says of files: every key read in every way; "!X" is an exception. */
class Configurations {
    private interface Reading {
        Object read() throws Exception;
    }

    void offer(Map<String, Driver.Call> calls) {
        calls.put("configurations", arguments -> {
            List<Object> found = new ArrayList<>();
            for (JsonNode path : arguments.get("paths")) {
                found.add(attempt(() -> load(new File(path.asText()))));
            }
            return found;
        });
        calls.put("configurationKeys", arguments -> {
            Set<String> found = new TreeSet<>();
            for (Class<?> type : new Class<?>[] {
                ServerConfiguration.class, AbstractConfiguration.class, DbLedgerStorage.class}) {
                for (Field field : type.getDeclaredFields()) {
                    if (field.getType() == String.class && Modifier.isStatic(field.getModifiers())) {
                        field.setAccessible(true);
                        found.add((String) field.get(null));
                    }
                }
            }
            return found;
        });
    }

    private static Object load(File file) throws Exception {
        ServerConfiguration conf = new ServerConfiguration();
        conf.loadConf(file.toURI().toURL());
        Map<String, Object> keys = new LinkedHashMap<>();
        for (Iterator<String> names = conf.getKeys(); names.hasNext(); ) {
            String key = names.next();
            Map<String, Object> read = new LinkedHashMap<>();
            read.put("strings", attempt(() -> conf.getStringArray(key)));
            read.put("string", attempt(() -> conf.getString(key)));
            read.put("integer", attempt(() -> conf.getInt(key)));
            read.put("long", attempt(() -> conf.getLong(key)));
            read.put("double", attempt(() -> String.valueOf(conf.getDouble(key))));
            read.put("single", attempt(() -> String.valueOf(conf.getFloat(key))));
            read.put("boolean", attempt(() -> conf.getBoolean(key)));
            keys.put(key, read);
        }
        Map<String, Object> getters = new LinkedHashMap<>();
        getters.put("journalDirs", attempt(conf::getJournalDirNames));
        getters.put("ledgerDirs", attempt(conf::getLedgerDirNames));
        getters.put("indexDirs", attempt(conf::getIndexDirNames));
        getters.put("ledgerStorageClass", attempt(conf::getLedgerStorageClass));
        getters.put("metadataServiceUri", attempt(conf::getMetadataServiceUri));
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("keys", keys);
        found.put("getters", getters);
        return found;
    }

    private static Object attempt(Reading reading) {
        try {
            return reading.read();
        } catch (Throwable error) {
            return "!" + error.getClass().getSimpleName();
        }
    }
}
