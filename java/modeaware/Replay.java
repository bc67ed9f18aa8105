package modeaware;

import static modeaware.Json.require;

import java.math.BigInteger;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import modeaware.Json.Malformed;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The fold over the mode log: the last record of each topic id counts, versions only rise, and records of a controller
 * that was replaced do not count. A record that cannot be read changes nothing. For one thread.
 */
final class Replay {
    private static final Logger LOG = LoggerFactory.getLogger(Replay.class);
    private static final int MAX_LOGGED = 1_000;
    private static final Set<String> KEYS_OF_CONTROLLERS = Set.of("group-rules", "observed-brokers");

    /** The ids of topics whose latest record is a tombstone. */
    final Set<String> removed = new HashSet<>();
    /** Name -> the views of all topic ids that have, or had, it; the one written last comes last. */
    final Map<String, List<TopicView>> byName = new HashMap<>();
    private final Map<String, TopicView> byId = new HashMap<>();
    private final Set<String> logged = new HashSet<>();
    private BigInteger claimed;

    /** Applies the next record, and returns the names of the topics that may have changed. */
    Set<String> apply(byte[] key, byte[] value) {
        String name = "";
        try {
            require(key != null, "no key");
            name = Json.decode(key);
            if (name.equals("controller")) {
                require(value != null, "a claim cannot be taken back by a tombstone");
                claimed = current(Form.integer(Form.CLAIM.read(value).get("controller_epoch")));
            } else if (!KEYS_OF_CONTROLLERS.contains(name)) {
                return applyTopic(name, value);
            }
        } catch (Malformed error) {
            if (logged.size() < MAX_LOGGED && logged.add(name)) {
                LOG.warn("mode log: a record is passed over (key {}): {}", name, error.getMessage());
            }
        }
        return Set.of();
    }

    private Set<String> applyTopic(String id, byte[] value) {
        TopicView view = value == null ? null : TopicView.read(value);
        TopicView held = byId.get(id);
        if (view != null) {
            require(view.topicId.equals(id), "it is a record of the topic id " + view.topicId);
            current(view.controllerEpoch);
            require(!view.isOlderThan(held), "it comes after a later version");
        }
        Set<String> changed = new HashSet<>();
        if (held != null) {
            byId.remove(id);
            byName.computeIfPresent(held.topic, (name, views) -> views.remove(held) && views.isEmpty() ? null : views);
            changed.add(held.topic);
        }
        if (view == null) {
            removed.add(id);
        } else {
            removed.remove(id);
            byId.put(id, view);
            byName.computeIfAbsent(view.topic, name -> new ArrayList<>()).add(view);
            changed.add(view.topic);
        }
        return changed;
    }

    private BigInteger current(BigInteger epoch) {
        require(claimed == null || epoch.compareTo(claimed) >= 0, "controller epoch " + epoch + " comes after " + claimed);
        return epoch;
    }
}
