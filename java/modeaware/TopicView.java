package modeaware;

import java.util.BitSet;
import java.util.Map;
import org.apache.kafka.common.Uuid;

/** What a producer applies to the topic with one id, by the latest record of that topic. Immutable. */
final class TopicView {
    final String topic;
    final String topicId;
    final long controllerEpoch;
    final long epoch;
    /** The partitions that take writes, ascending; null: all partitions that the cluster has. */
    final int[] writable;
    /** The topic that producers write to in place of this one since the switch, and its id; null: this one. */
    final String newTopic;
    final String newTopicId;
    private final Uuid uuid;

    private TopicView(Map<String, Object> fields) {
        topic = (String) fields.get("topic");
        topicId = (String) fields.get("topic_id");
        uuid = uuidOf(topicId);
        controllerEpoch = (Long) fields.get("controller_epoch");
        epoch = (Long) fields.get("epoch");
        BitSet open = Ranges.writable(fields.get("modes"));
        int count = Ranges.count(fields.get("modes"));
        writable = open.cardinality() == count ? null : open.stream().toArray();
        for (String columns : new String[] {"retired", "opening"}) {
            BitSet closed = fields.containsKey(columns) ? Ranges.partitions(Form.object(fields.get(columns))) : new BitSet();
            Json.require(closed.length() <= count && !closed.intersects(open),
                "a ReadWrite partition, or one without a mode, among the retired or opening");
        }
        Object found = fields.get("replacement");
        Map<String, Object> replacement = found == null ? Map.of() : Form.object(found);
        boolean isSwitched = replacement.get("switched_ms") != null && replacement.get("undone_ms") == null
            && replacement.get("successor_id") != null;
        newTopic = isSwitched ? (String) replacement.get("successor") : null;
        newTopicId = isSwitched ? (String) replacement.get("successor_id") : null;
    }

    /** Returns the view of a topic's record; throws {@link Json.Malformed}. */
    static TopicView read(byte[] record) {
        return new TopicView(Records.topic(record));
    }

    /** Returns whether producers write to another topic in place of this one. */
    boolean isReplaced() {
        return newTopic != null;
    }

    /** Returns whether the view may be applied to the topic with this id in the cluster; the zero id is not known. */
    boolean appliesTo(Uuid id) {
        return id == null || id.equals(Uuid.ZERO_UUID) || id.equals(uuid);
    }

    /** Returns whether {@code other} is a later view of the same topic id: this one never replaces it. */
    boolean isOlderThan(TopicView other) {
        int controllers = Long.compare(controllerEpoch, other.controllerEpoch);
        return topicId.equals(other.topicId) && (controllers < 0 || (controllers == 0 && epoch < other.epoch));
    }

    private static Uuid uuidOf(String topicId) {
        try {
            return Uuid.fromString(topicId);
        } catch (IllegalArgumentException error) {
            return null; // the id of no topic of a cluster
        }
    }
}
