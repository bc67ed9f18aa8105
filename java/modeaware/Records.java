package modeaware;

import static modeaware.Form.LONG;
import static modeaware.Form.TEXT;
import static modeaware.Form.TEXTS;
import static modeaware.Form.columnsOf;
import static modeaware.Form.listOf;
import static modeaware.Form.mapOf;
import static modeaware.Form.objectOf;
import static modeaware.Form.optional;
import static modeaware.Json.require;

import java.util.Map;
import java.util.Set;

/**
 * The records of the mode log, field by field (docs/mode-log.md).
 *
 * <p>A record is checked as a whole, though a producer needs few of its fields: a reader that took a record which
 * another one rejects would send the records of a key to another partition. Unknown fields are ignored.
 */
final class Records {
    private static final long READER_VERSION = 1;
    private static final Set<String> REPLICA_STATES = Set.of("OnlineReplica", "OfflineReplica", "ReplicaDeletionStarted",
        "ReplicaDeletionSuccessful", "ReplicaDeletionIneligible");

    private static final Form ANY = value -> { };
    private static final Form OPTIONAL_LONG = optional(LONG);
    private static final Form OPTIONAL_TEXT = optional(TEXT);
    private static final Form MODES = value -> require(Ranges.writable(value) != null && Ranges.count(value) > 0, "modes");
    private static final Form REPLICA_STATE = value ->
        require(REPLICA_STATES.contains(Form.cast(String.class, value)), "an unknown replica state");

    private static final Form STRAGGLER = objectOf(
        "offset!", LONG, "producer_id", LONG, "producer_epoch", LONG, "timestamp_ms", LONG);
    private static final Form RETIRED = columnsOf(
        "replica_state", REPLICA_STATE, "seal_offset", LONG, "seal_leader_epoch", LONG, "resume_offset", LONG,
        "drained_by", LONG, "lowest_commit", LONG, "stragglers", LONG, "straggler", STRAGGLER, "truncated_to", LONG,
        "evacuated_to", LONG, "read_up_to", LONG);
    private static final Form DELETION = objectOf(
        "delete_partitions!", LONG, "delete_partitions_delay_ms!", OPTIONAL_LONG, "immediate_delete!", ANY,
        "create_timestamp_ms!", LONG, "previous_count!", LONG, "accept_state_loss", TEXTS);
    private static final Form REPLACEMENT = objectOf(
        "successor!", TEXT, "num_partitions!", LONG, "requested_ms!", LONG, "replication_factor", LONG,
        "configs", mapOf(TEXT), "delete_partitions_delay_ms", OPTIONAL_LONG, "fence", TEXT, "accept_state_loss", TEXTS,
        "successor_id", OPTIONAL_TEXT, "announced_ms", OPTIONAL_LONG, "switched_ms", OPTIONAL_LONG,
        "own_configs", optional(mapOf(OPTIONAL_TEXT)), "fenced_ms", OPTIONAL_LONG, "let_go_ms", OPTIONAL_LONG,
        "deleting_ms", OPTIONAL_LONG, "gone_ms", OPTIONAL_LONG, "undone_ms", OPTIONAL_LONG,
        "evacuation_epoch", OPTIONAL_LONG, "reason", OPTIONAL_TEXT);
    private static final Form TOPIC = objectOf(
        "topic!", TEXT, "topic_id!", TEXT, "epoch!", LONG, "controller_epoch!", LONG, "modes!", MODES,
        "deletion", optional(DELETION), "retired!", RETIRED, "required_groups!", TEXTS, "drained_groups", optional(TEXTS),
        "waived", mapOf(TEXTS), "opening", columnsOf("offset", LONG), "opening_since_ms", OPTIONAL_LONG,
        "opening_assignments", listOf(listOf(LONG)), "replacement", optional(REPLACEMENT), "changed_ms!", LONG);
    private static final Form CLAIM = objectOf(
        "controller_epoch!", LONG, "address!", OPTIONAL_TEXT, "controller_id!", TEXT, "claimed_ms!", LONG, "host!", TEXT,
        "security_protocol!", TEXT, "generation", LONG);

    private Records() { }

    /** Returns the fields of a topic's record; throws {@link Json.Malformed}. */
    static Map<String, Object> topic(byte[] value) {
        return read(TOPIC, value);
    }

    /** Returns the fields of a controller's claim; throws {@link Json.Malformed}. */
    static Map<String, Object> claim(byte[] value) {
        return read(CLAIM, value);
    }

    private static Map<String, Object> read(Form form, byte[] value) {
        Map<String, Object> found = Form.object(Json.parse(value));
        long reader = Form.cast(Long.class, found.getOrDefault("min_reader", READER_VERSION));
        require(reader <= READER_VERSION, "it needs a reader of version " + reader);
        form.check(found);
        return found;
    }
}
