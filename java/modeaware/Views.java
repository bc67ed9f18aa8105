package modeaware;

import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.Uuid;

/**
 * The views of one cluster that are in force. Immutable: one of these decides a record's topic and partition.
 *
 * <p>Only a tombstone removes a view, and no view is replaced by an older one, even where the log is read again.
 */
final class Views {
    static final Views NONE = new Views(Map.of(), List.of());

    private final Map<String, TopicView> byName;
    private final List<TopicView> all; // also of topic ids whose name has a view of another id in force
    private final Map<String, String> writtenTopics = new HashMap<>(); // of names that are replaced

    private Views(Map<String, TopicView> byName, List<TopicView> all) {
        this.byName = byName;
        this.all = all;
        byName.values().stream().filter(TopicView::isReplaced).forEach(
            view -> writtenTopics.put(view.topic, endOfChain(view)));
    }

    /** Returns the views after what {@code replay} has read: under each name the view that was written last. */
    Views after(Replay replay) {
        Map<String, TopicView> next = new HashMap<>();
        List<TopicView> read = replay.views();
        read.forEach(view -> next.put(view.topic, view));
        byName.forEach((topic, held) -> {
            TopicView now = next.get(topic);
            if (now == null ? !replay.hasSeen(held.topicId) : now.isOlderThan(held)) {
                next.put(topic, held);
            }
        });
        return new Views(next, read);
    }

    Set<String> topics() {
        return byName.keySet();
    }

    /** Returns the view in force under a name; null: none. */
    TopicView held(String topic) {
        return byName.get(topic);
    }

    /** Returns the topic that producers write to when they name {@code topic}. */
    String writtenTopic(String topic) {
        return writtenTopics.getOrDefault(topic, topic);
    }

    /** Returns the view of the topic with this name and id in the cluster; null: all its partitions are writable. */
    TopicView view(String topic, Uuid id) {
        TopicView held = byName.get(topic);
        if (held == null || isOf(held, topic, id)) {
            return held;
        }
        return all.stream().filter(each -> isOf(each, topic, id) && !each.isOlderThan(held)).findFirst().orElse(null);
    }

    private static boolean isOf(TopicView view, String topic, Uuid id) {
        return view.topic.equals(topic) && view.appliesTo(id) && !view.isReplaced();
    }

    /** A chain may lead back to an earlier name, of a topic with another id: each id is passed once. */
    private String endOfChain(TopicView first) {
        Set<String> passedIds = new HashSet<>();
        TopicView view = first;
        while (passedIds.add(view.topicId) && view.isReplaced() && !passedIds.contains(view.newTopicId)) {
            TopicView next = byName.get(view.newTopic);
            if (next == null || !next.topicId.equals(view.newTopicId)) {
                return view.newTopic;
            }
            view = next;
        }
        return view.topic;
    }
}
