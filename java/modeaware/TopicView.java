package modeaware;

import java.math.BigInteger;
import java.util.BitSet;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.kafka.common.Uuid;

/** What a producer applies to the topic of one id, by the last record of that. Immutable. */
final class TopicView {
    final String topic;
    final String topicId;
    /** The partitions that take records, ascending; null: all that the cluster has. */
    final int[] writable;
    /** The topic that replaces this one, and its id; null: none does. */
    final String successor;
    final String successorId;
    /** How far the replacement has come: records go to the successor; the topic is released; it is deleted. */
    final boolean switched;
    final boolean released;
    final boolean gone;
    final BigInteger controllerEpoch;
    final BigInteger epoch;
    private final Uuid uuid;

    private TopicView(Map<String, Object> fields) {
        topic = (String) fields.get("topic");
        topicId = (String) fields.get("topic_id");
        uuid = uuidOf(topicId);
        controllerEpoch = (BigInteger) fields.get("controller_epoch");
        epoch = (BigInteger) fields.get("epoch");
        boolean[] modes = Form.modes(fields.get("modes"));
        int[] open = IntStream.range(0, modes.length).filter(partition -> modes[partition]).toArray();
        writable = open.length == modes.length ? null : open;
        for (String columns : new String[] {"retired", "opening"}) {
            BitSet closed = fields.containsKey(columns) ? Form.partitions(fields.get(columns)) : new BitSet();
            boolean fit = closed.stream().allMatch(partition -> partition < modes.length && !modes[partition]);
            Json.require(fit, "a ReadWrite partition, or one without a mode, among the retired or opening");
        }
        Object found = fields.get("replacement");
        Map<?, ?> replacement = found == null ? Map.of() : (Map<?, ?>) found;
        boolean stands = replacement.get("successor_id") != null && replacement.get("undone_ms") == null;
        successor = stands ? (String) replacement.get("successor") : null;
        successorId = stands ? (String) replacement.get("successor_id") : null;
        switched = stands && replacement.get("switched_ms") != null;
        gone = stands && replacement.get("gone_ms") != null;
        released = gone || stands && replacement.get("let_go_ms") != null;
    }

    /** Returns the view of a topic's record; throws {@link Json.Malformed}. */
    static TopicView read(byte[] value) {
        return new TopicView(Form.TOPIC.read(value));
    }

    /** Returns whether the view may be applied to the topic that has this id in the cluster; the zero id: not known. */
    boolean appliesTo(Uuid live) {
        return live == null || live.equals(Uuid.ZERO_UUID) || live.equals(uuid);
    }

    /** Returns whether {@code other} is a later view of the same topic id: this one never replaces it. */
    boolean isOlderThan(TopicView other) {
        if (other == null || !other.topicId.equals(topicId)) {
            return false;
        }
        int controllers = controllerEpoch.compareTo(other.controllerEpoch);
        return controllers < 0 || (controllers == 0 && epoch.compareTo(other.epoch) < 0);
    }

    private static Uuid uuidOf(String topicId) {
        try {
            return Uuid.fromString(topicId);
        } catch (IllegalArgumentException error) {
            return null; // a text that is the id of no topic of a cluster
        }
    }
}
