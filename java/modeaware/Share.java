package modeaware;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.errors.TimeoutException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** A plug-in's settings, and its share of the tail that all plug-ins with the same connection have. Thread-safe. */
final class Share {
    static final String LOG_TOPIC = "modeaware.mode.log.topic";
    static final String VIEW_TIMEOUT = "modeaware.view.timeout.ms";
    static final String ON_UNKNOWN = "modeaware.on.unknown";
    static final String PARTITIONER = "modeaware.partitioner";
    private static final Logger LOG = LoggerFactory.getLogger(Share.class);
    private static final Set<String> SETTINGS = Set.of(LOG_TOPIC, VIEW_TIMEOUT, ON_UNKNOWN, PARTITIONER);
    private static final List<String> CONNECTION = List.of("bootstrap.servers", "security.", "sasl.", "ssl.", "client.rack",
        "client.dns.lookup", "connections.max.idle.ms", "reconnect.backoff.", "retry.backoff.", "socket.connection.",
        "metadata.recovery.");
    private static final AtomicInteger MADE = new AtomicInteger();

    private final Map<String, ?> configs;
    private final Tail tail;
    private final long timeoutNs;
    private final String onUnknown;
    private long deadlineNs;
    private boolean isWaiting;
    private boolean isReleased;
    private volatile boolean isUnknownAllowed;

    /** Takes a share for the producer with these {@code configs}; throws {@link ConfigException}. */
    Share(Map<String, ?> configs) {
        this.configs = configs;
        for (String name : configs.keySet()) {
            if (name.startsWith("modeaware.") && !SETTINGS.contains(name)) {
                throw new ConfigException("unknown setting " + name + ": known are " + SETTINGS);
            }
        }
        timeoutNs = number(VIEW_TIMEOUT, 10_000) * 1_000_000;
        onUnknown = oneOf(ON_UNKNOWN, "block", "writable", "error");
        Map<String, Object> connection = new HashMap<>();
        configs.forEach((name, value) -> {
            if (CONNECTION.stream().anyMatch(name::startsWith)) {
                connection.put(name, value);
            }
        });
        tail = Tail.acquire(connection, text(LOG_TOPIC, "__partition_modes"));
    }

    /** Returns the settings of a consumer that reads the log as the producer's user, with nothing else of the producer. */
    static Map<String, Object> consumerSettings(Map<String, Object> connection) {
        Map<String, Object> settings = new HashMap<>(connection);
        settings.put("client.id", "modeaware-modes-" + MADE.incrementAndGet());
        settings.put("isolation.level", "read_committed");
        settings.put("auto.offset.reset", "none");
        settings.put("enable.auto.commit", false);
        settings.put("allow.auto.create.topics", false);
        settings.put("enable.metrics.push", false);
        settings.put("fetch.max.wait.ms", 5_000); // thousands of clients wait at one leader; a record ends the wait
        return settings;
    }

    /**
     * Returns the views in force, after a wait for the first where {@code waits}; null where there is none in time and
     * records have to be refused. All calls have one deadline.
     */
    Views views(boolean waits) {
        if (tail.views() == null && waits) {
            tail.await(leftNs());
        }
        Views views = tail.views();
        if (views == null && onUnknown.equals("writable")) {
            if (!isUnknownAllowed) {
                isUnknownAllowed = true;
                LOG.warn("{}; every partition is taken as ReadWrite until there is one", noView().getMessage());
            }
            return Views.NONE;
        }
        return views;
    }

    /** Returns why a record is refused without a view: to be tried again with {@code block}, not with {@code error}. */
    ApiException noView() {
        String why = "no view of the partition modes within " + timeoutNs / 1_000_000 + " ms (" + VIEW_TIMEOUT + "): "
            + tail.trouble();
        return onUnknown.equals("error") ? new ApiException(why) : new TimeoutException(why);
    }

    private synchronized long leftNs() {
        if (!isWaiting) {
            isWaiting = true;
            deadlineNs = System.nanoTime() + timeoutNs;
        }
        return deadlineNs - System.nanoTime();
    }

    /** Gives the share back. Idempotent. */
    synchronized void close() {
        if (!isReleased) {
            isReleased = true;
            tail.release();
        }
    }

    /** Returns whether the producer has {@code plugIn} among its classes under this setting. */
    boolean has(String setting, Class<?> plugIn) {
        return String.valueOf(configs.get(setting)).contains(plugIn.getName());
    }

    long number(String name, long otherwise) {
        try {
            long found = Long.parseLong(text(name, Long.toString(otherwise)));
            if (found >= 0) {
                return found;
            }
        } catch (NumberFormatException error) {
            LOG.debug("{} is no number", name);
        }
        throw new ConfigException(name, configs.get(name), "a whole number, 0 or more");
    }

    /** Returns a setting that is one of {@code known}; the first of them where it is not set. */
    String oneOf(String name, String... known) {
        String found = text(name, known[0]);
        if (!List.of(known).contains(found)) {
            throw new ConfigException(name, found, "one of " + List.of(known));
        }
        return found;
    }

    private String text(String name, String otherwise) {
        Object found = configs.get(name);
        return found == null ? otherwise : found.toString().trim();
    }
}
