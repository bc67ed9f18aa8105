package modeaware;

import static modeaware.Json.require;

import java.math.BigInteger;
import java.util.Arrays;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * The form of the mode log's records, field by field, as docs/mode-log.md has it. A record is checked as a whole, though
 * a producer needs few of its fields: a reader that took a record which another one rejects would send the records of a
 * key to another partition. Unknown fields are ignored.
 */
interface Form {
    int READER_VERSION = 1;
    int MAX_PARTITIONS = 100_000;
    Set<String> STATES = Set.of("OnlineReplica", "OfflineReplica", "ReplicaDeletionStarted",
        "ReplicaDeletionSuccessful", "ReplicaDeletionIneligible");

    Form ANY = value -> { };
    Form INT = value -> integer(value);
    Form TEXT = value -> as(String.class, value);
    Form INT_OR_NULL = value -> as(BigInteger.class, value == null ? BigInteger.ZERO : value);
    Form TEXT_OR_NULL = value -> as(String.class, value == null ? "" : value);
    Form TEXTS = value -> list(value).forEach(TEXT::check);
    Form STATE = value -> require(STATES.contains(as(String.class, value)), "an unknown replica state");

    Form MODES = value -> modes(value);

    Form STRAGGLER = of("offset!", INT, "producer_id", INT, "producer_epoch", INT, "timestamp_ms", INT);
    Form RETIRED = columns("replica_state", STATE, "seal_offset", INT, "seal_leader_epoch", INT, "resume_offset", INT,
        "drained_by", INT, "lowest_commit", INT, "stragglers", INT, "straggler", STRAGGLER, "truncated_to", INT,
        "evacuated_to", INT, "read_up_to", INT);
    Form DELETION = of("delete_partitions!", INT, "delete_partitions_delay_ms!", INT_OR_NULL, "immediate_delete!",
        ANY, "create_timestamp_ms!", INT, "previous_count!", INT, "accept_state_loss", TEXTS);
    Form REPLACEMENT = of("successor!", TEXT, "num_partitions!", INT, "requested_ms!", INT, "replication_factor", INT,
        "configs", mapOf(TEXT), "delete_partitions_delay_ms", INT_OR_NULL, "fence", TEXT, "accept_state_loss", TEXTS,
        "successor_id", TEXT_OR_NULL, "announced_ms", INT_OR_NULL, "switched_ms", INT_OR_NULL,
        "own_configs", optional(mapOf(TEXT_OR_NULL)), "fenced_ms", INT_OR_NULL, "let_go_ms", INT_OR_NULL,
        "deleting_ms", INT_OR_NULL, "gone_ms", INT_OR_NULL, "undone_ms", INT_OR_NULL, "evacuation_epoch", INT_OR_NULL,
        "reason", TEXT_OR_NULL);
    Form ASSIGNMENTS = value -> list(value).forEach(each -> list(each).forEach(INT::check));
    Form TOPIC = of("topic!", TEXT, "topic_id!", TEXT, "epoch!", INT, "controller_epoch!", INT, "modes!", MODES,
        "deletion", optional(DELETION), "retired!", RETIRED, "required_groups!", TEXTS, "drained_groups",
        optional(TEXTS), "waived", mapOf(TEXTS), "opening", columns("offset", INT), "opening_since_ms", INT_OR_NULL,
        "opening_assignments", ASSIGNMENTS, "replacement", optional(REPLACEMENT), "changed_ms!", INT);
    Form CLAIM = of("controller_epoch!", INT, "address!", TEXT_OR_NULL, "controller_id!", TEXT, "claimed_ms!", INT,
        "host!", TEXT, "security_protocol!", TEXT, "generation", INT);

    /** Throws {@link Json.Malformed} where the value does not have this form. */
    void check(Object value);

    /** Returns the fields of a record of this form; throws {@link Json.Malformed}. */
    default Map<String, Object> read(byte[] value) {
        Map<String, Object> found = fields(Json.parse(value));
        BigInteger reader = integer(found.getOrDefault("min_reader", BigInteger.ONE));
        require(reader.compareTo(BigInteger.valueOf(READER_VERSION)) <= 0, "it needs a reader of version " + reader);
        check(found);
        return found;
    }

    static BigInteger integer(Object value) {
        return as(BigInteger.class, value);
    }

    /** Returns which of the partitions 0, 1, 2, ... are writable. */
    static boolean[] modes(Object value) {
        boolean[] writable = new boolean[MAX_PARTITIONS];
        int count = 0;
        for (Object each : list(value)) {
            List<?> range = range(each, 3);
            int mode = bounded(range.get(2), -1, 1);
            int end = bounded(range.get(1), bounded(range.get(0), count, count), MAX_PARTITIONS - 1) + 1;
            Arrays.fill(writable, count, end, mode == 0);
            count = end;
        }
        require(count > 0, "no modes");
        return Arrays.copyOf(writable, count);
    }

    /** Returns the partitions that columns have rows for. */
    static BitSet partitions(Object value) {
        BitSet found = new BitSet();
        for (Object each : list(fields(value).get("partitions"))) {
            List<?> range = range(each, 2);
            int first = bounded(range.get(0), found.length(), MAX_PARTITIONS - 1);
            found.set(first, bounded(range.get(1), first, MAX_PARTITIONS - 1) + 1);
        }
        return found;
    }

    private static Form columns(Object... namesAndForms) {
        Map<String, Form> known = known(namesAndForms);
        return value -> {
            Map<String, Object> found = fields(value);
            int rows = partitions(value).cardinality();
            known.forEach((name, form) -> {
                Object column = found.get(name);
                List<?> values = column instanceof List ? (List<?>) column : Arrays.asList(new Object[rows]);
                require(values.size() == rows, "a column " + name + " of another length");
                values.stream().filter(each -> each != null).forEach(form::check);
                if (column != null && !(column instanceof List) && rows > 0) {
                    form.check(column);
                }
            });
        };
    }

    /** An object: the names of its known fields, with a {@code !} where one has to be there, and their forms. */
    private static Form of(Object... namesAndForms) {
        Map<String, Form> known = known(namesAndForms);
        return value -> {
            Map<String, Object> found = fields(value);
            known.forEach((each, form) -> {
                String name = each.replace("!", "");
                require(found.containsKey(name) || name.equals(each), "no field " + name);
                if (found.containsKey(name)) {
                    form.check(found.get(name));
                }
            });
        };
    }

    private static Map<String, Form> known(Object... namesAndForms) {
        Map<String, Form> known = new HashMap<>();
        for (int at = 0; at < namesAndForms.length; at += 2) {
            known.put((String) namesAndForms[at], (Form) namesAndForms[at + 1]);
        }
        return known;
    }

    private static Form optional(Form form) {
        return value -> {
            if (value != null) {
                form.check(value);
            }
        };
    }

    private static Form mapOf(Form form) {
        return value -> fields(value).values().forEach(form::check);
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Object> fields(Object value) {
        return as(Map.class, value);
    }

    private static List<?> list(Object value) {
        return as(List.class, value);
    }

    private static List<?> range(Object value, int size) {
        List<?> found = list(value);
        require(found.size() == size, "a range of " + found.size() + " numbers");
        return found;
    }

    private static int bounded(Object value, int lowest, int highest) {
        BigInteger number = integer(value);
        require(number.bitLength() < 32 && number.intValue() >= lowest && number.intValue() <= highest,
            number + " is not within " + lowest + " to " + highest);
        return number.intValue();
    }

    private static <T> T as(Class<T> kind, Object value) {
        require(kind.isInstance(value), "a value that is no " + kind.getSimpleName());
        return kind.cast(value);
    }
}
