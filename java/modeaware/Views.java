package modeaware;

import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.stream.IntStream;
import org.apache.kafka.common.Uuid;

/**
 * The views of one cluster that are in force. Immutable: the same object decides a record's topic and its partition.
 *
 * <p>Only a tombstone, or a later topic of the same name, removes a view. A topic's older view never replaces its later
 * one, even if the log is read again.
 *
 * <p>A producer's metadata may be minutes old, and of a deleted topic: a change that keeps a name takes less time. Then
 * the partitions and the view of the topic that has the name by the log count, not those of the deleted topic.
 */
final class Views {
    static final Views NONE = new Views(Map.of(), Map.of(), Map.of(), null);

    final Map<String, TopicView> byName; // the view in force under a name
    private final Map<String, TopicView> byId; // also of topic ids whose name has a view of another id in force
    private final Map<Uuid, String> pastIds; // id -> name, if removed or if another topic got the name later
    private final Replay replay; // the reading of the log that these views are of
    private final Map<Uuid, int[]> writableById = new HashMap<>(); // for a stale id: of the topic that has its name
    private final Map<String, int[]> writableByName = new HashMap<>(); // for metadata without ids
    private final Map<String, String> writtenTopics = new HashMap<>(); // of names that are replaced

    private Views(Map<String, TopicView> byName, Map<String, TopicView> byId, Map<Uuid, String> pastIds, Replay replay) {
        this.byName = byName;
        this.byId = byId;
        this.pastIds = pastIds;
        this.replay = replay;
        Map<Uuid, String> stale = new HashMap<>(pastIds); // no producer writes to these ids
        byId.values().stream().filter(TopicView::isReplaced).forEach(view -> stale.put(view.uuid, view.topic));
        Map<String, int[]> live = new HashMap<>(); // name -> partitions of the topic that has the name by the log
        byId.values().stream().filter(view -> view.isReplaced() && !stale.containsKey(view.newUuid)).forEach(
            view -> live.put(view.newTopic, all(view.newCount)));
        byId.values().stream().filter(view -> !stale.containsKey(view.uuid)).forEach(view -> {
            live.put(view.topic, view.open); // it may have been shrunk since its creation
            writableById.put(view.uuid, view.writable);
        });
        byId.values().stream().filter(view -> !view.isReplaced()).forEach(
            view -> writableByName.put(view.topic, view.writable));
        stale.forEach((id, name) -> writableById.put(id, live.get(name)));
        byName.values().stream().filter(TopicView::isReplaced).forEach(
            view -> writtenTopics.put(view.topic, endOfChain(view)));
    }

    /** Returns the views after the reading {@code now} of the log: under each name the view that was written last. */
    Views after(Replay now) {
        Map<String, TopicView> read = now.views();
        Map<String, TopicView> next = new HashMap<>();
        Map<Uuid, String> past = new HashMap<>(pastIds);
        Set<String> renewed = new HashSet<>(); // names of topic ids that the log did not have before
        read.forEach((id, view) -> {
            next.put(view.topic, view);
            if (!byId.containsKey(id)) {
                past.remove(view.uuid);
                renewed.add(view.topic);
            }
        });
        byId.forEach((id, known) -> {
            // In another reading the order of ids proves nothing: compaction keeps only the last record of each.
            boolean isRemoved = now.hasSeen(id) && !read.containsKey(id);
            if (isRemoved || (now == replay && renewed.contains(known.topic))) {
                past.put(known.uuid, known.topic);
            }
        });
        byName.forEach((topic, held) -> {
            TopicView latest = next.get(topic);
            if (latest == null ? !now.hasSeen(held.topicId) : latest.isOlderThan(held)) {
                next.put(topic, held);
                read.put(held.topicId, held);
            }
        });
        return new Views(next, read, past, now);
    }

    /** Returns the topic that producers write to when they name {@code topic}. */
    String writtenTopic(String topic) {
        return writtenTopics.getOrDefault(topic, topic);
    }

    /**
     * Returns the partitions that take writes, ascending, in a topic that is not replaced; null: all in the metadata.
     * {@code id} is the topic's in the metadata, or the zero id.
     */
    int[] writable(String topic, Uuid id) {
        return id.equals(Uuid.ZERO_UUID) ? writableByName.get(topic) : writableById.get(id);
    }

    private static int[] all(long count) {
        return IntStream.range(0, (int) Math.min(count, Records.MAX_PARTITIONS)).toArray();
    }

    /** Returns the chain's last name. A name may occur again, for a topic with another id; each id is passed once. */
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
