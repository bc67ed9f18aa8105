package modeaware;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Importance;
import org.apache.kafka.common.config.ConfigDef.Range;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.common.config.ConfigDef.ValidString;
import org.apache.kafka.common.config.ConfigException;

/** The plug-ins' settings among those of a producer. Nothing of them is logged. Immutable. */
final class Settings extends AbstractConfig {
    static final String LOG_TOPIC = "modeaware.mode.log.topic";
    static final String VIEW_TIMEOUT_MS = "modeaware.view.timeout.ms";
    static final String ON_UNKNOWN = "modeaware.on.unknown";
    static final String PARTITIONER = "modeaware.partitioner";
    private static final ConfigDef DEFINITION = new ConfigDef()
        .define(LOG_TOPIC, Type.STRING, "__partition_modes", Importance.MEDIUM, "The mode log.")
        .define(VIEW_TIMEOUT_MS, Type.LONG, 10_000, Range.atLeast(0), Importance.MEDIUM,
            "How long the first record waits for the first view.")
        .define(ON_UNKNOWN, Type.STRING, "block", ValidString.in("block", "writable", "error"), Importance.MEDIUM,
            "What happens to a record without a view.")
        .define(PARTITIONER, Type.STRING, "murmur2_random",
            ValidString.in("murmur2_random", "consistent_random", "minimal_movement"), Importance.HIGH, "Where keys go.")
        .define(ProducerConfig.configDef().configKeys().get(ProducerConfig.BATCH_SIZE_CONFIG));
    private static final List<String> OF_CONNECTION = List.of("bootstrap.servers", "security.", "sasl.", "ssl.",
        "client.rack", "client.dns.lookup", "connections.max.idle.ms", "reconnect.backoff.", "retry.backoff.",
        "socket.connection.", "metadata.recovery.");

    /** Throws {@link ConfigException} where a setting is unknown or invalid. */
    Settings(Map<String, ?> configs) {
        super(DEFINITION, configs, false);
        for (String name : configs.keySet()) {
            if (name.startsWith("modeaware.") && !names().contains(name)) {
                throw new ConfigException("unknown setting " + name + ": known are " + names());
            }
        }
    }

    /** Returns the settings' names. Public for modeaware.spark, whose look-up fails if kafka-clients is missing. */
    public static Set<String> names() {
        return DEFINITION.names();
    }

    /** Returns whether the producer has {@code plugIn} among its classes under the setting {@code name}. */
    boolean has(String name, Class<?> plugIn) {
        return String.valueOf(originals().get(name)).contains(plugIn.getName());
    }

    /**
     * Returns the settings of a consumer that reads the mode log as the producer's user. Of the producer's settings,
     * only those of connection and security are among them: no interceptors, no serializers, no client id.
     */
    Map<String, Object> consumer() {
        Map<String, Object> found = new HashMap<>();
        originals().forEach((name, value) -> {
            if (OF_CONNECTION.stream().anyMatch(name::startsWith)) {
                found.put(name, value);
            }
        });
        found.put("isolation.level", "read_committed");
        found.put("auto.offset.reset", "none");
        found.put("enable.auto.commit", false);
        found.put("allow.auto.create.topics", false);
        found.put("enable.metrics.push", false);
        found.put("fetch.max.wait.ms", 5_000); // thousands of clients wait at one leader; a record ends the wait
        return found;
    }
}
