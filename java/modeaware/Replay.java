package modeaware;

import static modeaware.Json.require;

import java.util.Collection;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import modeaware.Json.Malformed;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The fold over one reading of the mode log: the last record of each topic id counts, versions only rise, and records of
 * a controller that was replaced do not count. A record that cannot be read changes nothing. For one thread.
 */
final class Replay {
    private static final Logger LOG = LoggerFactory.getLogger(Replay.class);
    private static final int MAX_LOGGED_KEYS = 1_000;
    private static final Set<String> KEYS_OF_CONTROLLERS = Set.of("group-rules", "observed-brokers");
    private static final String KEYS_OF_GROUPS = "moved:";

    private final Map<String, TopicView> byId = new LinkedHashMap<>();
    private final Set<String> removedIds = new HashSet<>();
    private final Set<String> loggedKeys = new HashSet<>();
    private long claimedEpoch = Long.MIN_VALUE;

    /** Returns the views of all topic ids; the one written last comes last. */
    Collection<TopicView> views() {
        return byId.values();
    }

    /** Returns whether the log had a record of this topic id, or a tombstone. */
    boolean hasSeen(String topicId) {
        return byId.containsKey(topicId) || removedIds.contains(topicId);
    }

    /** Applies the next record. */
    void apply(byte[] key, byte[] value) {
        String name = "";
        try {
            require(key != null, "no key");
            name = Json.decode(key);
            if (name.equals("controller")) {
                require(value != null, "a tombstone for a claim");
                claimedEpoch = current((Long) Records.claim(value).get("controller_epoch"));
            } else if (!KEYS_OF_CONTROLLERS.contains(name) && !name.startsWith(KEYS_OF_GROUPS)) {
                applyTopic(name, value);
            }
        } catch (Malformed error) {
            if (loggedKeys.size() < MAX_LOGGED_KEYS && loggedKeys.add(name)) {
                LOG.warn("mode log: skipped a record with key {}: {}", name, error.getMessage());
            }
        }
    }

    private void applyTopic(String id, byte[] value) {
        if (value == null) {
            byId.remove(id);
            removedIds.add(id);
            return;
        }
        TopicView view = TopicView.read(value);
        TopicView held = byId.get(id);
        require(view.topicId.equals(id), "it is a record of topic id " + view.topicId);
        current(view.controllerEpoch);
        require(held == null || !view.isOlderThan(held), "it comes after a later version");
        byId.remove(id); // a put alone would leave it in its earlier place
        byId.put(id, view);
        removedIds.remove(id);
    }

    private long current(long controllerEpoch) {
        require(controllerEpoch >= claimedEpoch, "controller epoch " + controllerEpoch + " after " + claimedEpoch);
        return controllerEpoch;
    }
}
