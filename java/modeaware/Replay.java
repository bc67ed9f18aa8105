package modeaware;

import static modeaware.Json.require;

import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.kafka.common.errors.SerializationException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The fold over one reading of the mode log: the last record of each topic id counts, versions only rise, and records of
 * a controller that was replaced do not count. A record that cannot be read changes nothing. For one thread.
 */
final class Replay {
    private static final Logger LOG = LoggerFactory.getLogger(Replay.class);
    private static final int MAX_KEY_BYTES = 1_000; // as in Python
    private static final int MAX_LOGGED_KEYS = 1_000;
    private static final Pattern NO_TOPIC = Pattern.compile("(?s)group-rules|observed-brokers|moved:.*");

    private final Map<String, TopicView> byId = new LinkedHashMap<>(); // null: a tombstone
    private final Set<String> loggedKeys = new HashSet<>();
    private long claimedEpoch = Long.MIN_VALUE;

    /** Returns the views by topic id; the one written last comes last. */
    Map<String, TopicView> views() {
        Map<String, TopicView> found = new LinkedHashMap<>(byId);
        found.values().removeIf(Objects::isNull);
        return found;
    }

    /** Returns whether the log had a record of this topic id, or a tombstone. */
    boolean hasSeen(String topicId) {
        return byId.containsKey(topicId);
    }

    /** Applies the next record. */
    void apply(byte[] key, byte[] value) {
        try {
            require(key != null && key.length <= MAX_KEY_BYTES, "no key, or one of more than " + MAX_KEY_BYTES + " bytes");
            String name = Json.decode(key);
            if (name.equals("controller")) {
                require(value != null, "a tombstone for a claim");
                claimedEpoch = current((Long) Records.read("claim", value).get("controller_epoch"));
            } else if (!NO_TOPIC.matcher(name).matches()) {
                applyTopic(name, value);
            }
        } catch (SerializationException error) {
            String shown = shown(key);
            if (loggedKeys.size() < MAX_LOGGED_KEYS && loggedKeys.add(shown)) {
                LOG.warn("mode log: skipped a record with key {}: {}", shown, error.getMessage());
            }
        }
    }

    private static String shown(byte[] key) {
        String start = key == null ? "" : new String(key, 0, Math.min(key.length, 80), StandardCharsets.US_ASCII);
        return '"' + start.replaceAll("[^ -~]", "?") + '"';
    }

    private void applyTopic(String id, byte[] value) {
        TopicView view = null;
        if (value != null) {
            view = new TopicView(value);
            TopicView held = byId.get(id);
            require(view.topicId.equals(id), "it is a record of another topic id");
            current(view.controllerEpoch);
            require(held == null || !view.isOlderThan(held), "it comes after a later version");
        }
        byId.remove(id); // a put alone would leave it in its earlier place
        byId.put(id, view);
    }

    private long current(long controllerEpoch) {
        require(controllerEpoch >= claimedEpoch, "controller epoch " + controllerEpoch + " after " + claimedEpoch);
        return controllerEpoch;
    }
}
