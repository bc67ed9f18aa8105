package modeaware;

import static modeaware.Json.require;

import java.util.Map;
import java.util.SortedMap;
import org.apache.kafka.common.Uuid;

/** What a producer applies to the topic with one id, by the latest record of that topic. Immutable. */
final class TopicView {
    private static final long READ_WRITE = 0;

    final String topic;
    final String topicId;
    final long controllerEpoch;
    final long epoch;
    /** The partitions that take writes by the record, ascending. */
    final int[] open;
    /** The same, or null if all partitions take writes: then all that the cluster has. */
    final int[] writable;
    /** The new topic, to which producers write since the switch, and its id; null: producers write to this topic. */
    final String newTopic;
    final String newTopicId;
    /** How many partitions the new topic was created with. */
    final long newCount;
    /** Both ids in Kafka's form; null: no id, or one that Kafka cannot read. */
    final Uuid uuid;
    final Uuid newUuid;

    /** Throws SerializationException if the bytes are no record of a topic. */
    TopicView(byte[] record) {
        Map<String, Object> fields = Records.read("topic", record);
        topic = (String) fields.get("topic");
        topicId = (String) fields.get("topic_id");
        uuid = uuidOf(topicId);
        controllerEpoch = (Long) fields.get("controller_epoch");
        epoch = (Long) fields.get("epoch");
        SortedMap<Integer, Long> modes = Records.modes(fields.get("modes"));
        open = modes.keySet().stream().filter(each -> modes.get(each) == READ_WRITE).mapToInt(each -> each).toArray();
        writable = open.length == modes.size() ? null : open;
        for (String columns : new String[] {"retired", "opening"}) {
            for (int partition : Records.partitions(fields.get(columns))) {
                require(modes.getOrDefault(partition, READ_WRITE) != READ_WRITE, partition + " is ReadWrite, or has no mode");
            }
        }
        Map<?, ?> replacement = fields.get("replacement") == null ? Map.of() : (Map<?, ?>) fields.get("replacement");
        boolean isSwitched = replacement.get("switched_ms") != null && replacement.get("undone_ms") == null
            && replacement.get("new_topic_id") != null;
        newTopic = isSwitched ? (String) replacement.get("new_topic") : null;
        newTopicId = isSwitched ? (String) replacement.get("new_topic_id") : null;
        newCount = isSwitched ? (Long) replacement.get("num_partitions") : 0;
        newUuid = uuidOf(newTopicId);
    }

    /** Returns whether producers write to another topic in place of this one. */
    boolean isReplaced() {
        return newTopic != null;
    }

    /** Returns whether {@code other} is a later view of the same topic id, which this view never replaces. */
    boolean isOlderThan(TopicView other) {
        int controllers = Long.compare(controllerEpoch, other.controllerEpoch);
        return topicId.equals(other.topicId) && (controllers < 0 || (controllers == 0 && epoch < other.epoch));
    }

    private static Uuid uuidOf(String topicId) {
        try {
            return topicId == null ? null : Uuid.fromString(topicId);
        } catch (IllegalArgumentException error) {
            return null;
        }
    }
}
