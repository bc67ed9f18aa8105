package modeaware;

import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.Uuid;

/**
 * The views of one cluster that are in force. Immutable: a record's way is decided by one of these.
 *
 * <p>A view goes only by a tombstone, and never back to an older version, whatever a log contains that is read again.
 */
final class Views {
    static final Views NONE = new Views(Map.of(), Map.of(), Map.of());

    private final Map<String, TopicView> inForce;
    private final Map<String, List<TopicView>> byName; // of names that several topic ids have, or had
    private final Map<String, TopicView> beforeSwitch;
    private final Map<String, String> pointsTo = new HashMap<>();

    private Views(
            Map<String, TopicView> inForce, Map<String, List<TopicView>> byName, Map<String, TopicView> beforeSwitch) {
        this.inForce = inForce;
        this.byName = byName;
        this.beforeSwitch = beforeSwitch;
        for (TopicView view : inForce.values()) {
            if (view.switched) {
                pointsTo.put(view.topic, endOfChain(view));
            }
        }
    }

    /** Returns the views after the records of {@code changed} topics have changed; others keep their view. */
    Views with(Replay replay, Collection<String> changed) {
        Map<String, TopicView> next = new HashMap<>(inForce);
        Map<String, TopicView> before = new HashMap<>(beforeSwitch);
        Set<String> topics = new HashSet<>(changed);
        // Of a tombstone, too, whose topic is not in the log any more.
        inForce.values().stream().filter(view -> replay.removed.contains(view.topicId)).forEach(v -> topics.add(v.topic));
        for (String topic : topics) {
            List<TopicView> found = replay.byName.get(topic);
            TopicView held = inForce.get(topic);
            TopicView view = found == null ? null : found.get(found.size() - 1);
            if (view == null) {
                next.remove(topic);
                before.remove(topic);
            } else if (!view.isOlderThan(held)) {
                next.put(topic, view);
                if (view.switched && held != null && !held.switched && held.topicId.equals(view.topicId)) {
                    before.put(topic, held);
                }
            }
        }
        Map<String, List<TopicView>> several = new HashMap<>();
        replay.byName.forEach((name, views) -> {
            if (views.size() > 1) {
                several.put(name, List.copyOf(views));
            }
        });
        return new Views(next, several, before);
    }

    /** Returns the view in force under a name; null: there is none. */
    TopicView held(String topic) {
        return inForce.get(topic);
    }

    Set<String> topics() {
        return inForce.keySet();
    }

    /** Returns the topic that records go to which name {@code topic}. */
    String written(String topic) {
        return pointsTo.getOrDefault(topic, topic);
    }

    /** Returns the view of the topic that has this name and id in the cluster; null: all its partitions are writable. */
    TopicView view(String topic, Uuid live) {
        TopicView held = inForce.get(topic);
        if (held == null || (held.appliesTo(live) && !held.switched)) {
            return held;
        }
        List<TopicView> views = byName.getOrDefault(topic, List.of());
        return views.stream().filter(view -> view.appliesTo(live) && !view.switched).findFirst().orElse(null);
    }

    /** Returns the last view of a topic before its name pointed to the successor; null where none was seen. */
    TopicView beforeSwitch(String topic) {
        return beforeSwitch.get(topic);
    }

    /** A chain may lead back to an earlier name, of a topic with another id: each id is passed once. */
    private String endOfChain(TopicView first) {
        Set<String> passed = new HashSet<>();
        TopicView view = first;
        while (passed.add(view.topicId) && view.switched && !passed.contains(view.successorId)) {
            TopicView held = inForce.get(view.successor);
            if (held == null || !held.topicId.equals(view.successorId)) {
                return view.successor;
            }
            view = held;
        }
        return view.topic;
    }
}
