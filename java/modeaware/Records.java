package modeaware;

import static modeaware.Json.require;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.SortedMap;
import java.util.TreeMap;
import org.apache.kafka.common.errors.SerializationException;

/**
 * The records of the mode log (docs/mode-log.md). Methods throw {@link SerializationException} on a malformed value.
 *
 * <p>A record is checked as a whole, though a producer needs few of its fields. If one reader accepted a record that
 * another reader rejects, the two would send a key to different partitions. Unknown fields are ignored.
 *
 * <p>{@code records.json} has the form of each record. An object has the forms of its known fields: a name with
 * {@code !} is a required field, a name with {@code ?} a field that may be null. {@code *} stands for every field, and
 * {@code #} for the columns of rows. A list has the form of each of its values. {@code a|b} is one of these words.
 */
final class Records {
    private static final long READER_VERSION = 1;
    static final int MAX_PARTITIONS = 100_000;
    private static final Map<String, Object> FORMS = forms();

    private Records() { }

    /** Returns the fields of a record; {@code kind} is {@code topic} or {@code claim}. */
    static Map<String, Object> read(String kind, byte[] value) {
        Map<String, Object> found = object(Json.parse(value));
        long reader = cast(Long.class, found.getOrDefault("min_reader", READER_VERSION));
        require(reader <= READER_VERSION, "it needs a reader of version " + reader);
        check(FORMS.get(kind), found);
        return found;
    }

    /** Returns the mode of each partition. */
    static SortedMap<Integer, Long> modes(Object ranges) {
        SortedMap<Integer, Long> found = partitions(ranges, 3);
        require(!found.isEmpty() && found.lastKey() == found.size() - 1, "no mode, or none of some partition");
        require(found.values().stream().allMatch(mode -> mode >= -1 && mode <= 1), "an unknown mode");
        return found;
    }

    /** Returns the partitions that have rows in columns; null: there are no columns. */
    static Collection<Integer> partitions(Object columns) {
        return columns == null ? List.of() : partitions(object(columns).get("partitions"), 2).keySet();
    }

    /** Returns the partitions of ascending ranges, each with the last number of its range: first, last, others. */
    private static SortedMap<Integer, Long> partitions(Object ranges, int size) {
        SortedMap<Integer, Long> found = new TreeMap<>();
        for (Object range : cast(List.class, ranges)) {
            List<?> numbers = cast(List.class, range);
            numbers.forEach(each -> cast(Long.class, each));
            require(numbers.size() == size, "a range of " + numbers.size() + " numbers");
            long first = (Long) numbers.get(0);
            long last = (Long) numbers.get(1);
            require(first > (found.isEmpty() ? -1 : found.lastKey()) && first <= last && last < MAX_PARTITIONS,
                "partitions " + first + " to " + last + " overlap with others, or are beyond " + MAX_PARTITIONS);
            for (long partition = first; partition <= last; partition++) {
                found.put((int) partition, (Long) numbers.get(size - 1));
            }
        }
        return found;
    }

    private static void check(Object form, Object value) {
        if (form instanceof Map) {
            Map<String, Object> found = object(value);
            object(form).forEach((name, ofField) -> checkField(name, ofField, found));
        } else if (form instanceof List) {
            for (Object each : cast(List.class, value)) {
                check(((List<?>) form).get(0), each);
            }
        } else if (form.equals("int")) {
            cast(Long.class, value);
        } else if (form.equals("text")) {
            cast(String.class, value);
        } else if (form.equals("modes")) {
            modes(value);
        } else if (!form.equals("any")) {
            require(Arrays.asList(((String) form).split("\\|")).contains(value), "another value than " + form);
        }
    }

    private static void checkField(String mark, Object form, Map<String, Object> found) {
        String name = mark.replaceAll("[!?]", "");
        if (name.equals("#")) {
            checkColumns(object(form), found);
            return;
        }
        require(found.containsKey(name) || !mark.contains("!"), "no field " + name);
        found.forEach((key, value) -> {
            if ((name.equals(key) || name.equals("*")) && (value != null || !mark.contains("?"))) {
                check(form, value);
            }
        });
    }

    /** A column is a list with a value for each row, or the one value of all rows. Null is a field at its default. */
    private static void checkColumns(Map<String, Object> forms, Map<String, Object> columns) {
        int rows = partitions(columns).size();
        forms.forEach((name, form) -> {
            Object column = columns.get(name);
            List<?> values = column instanceof List ? (List<?>) column : Collections.nCopies(rows, column);
            require(values.size() == rows, "a column " + name + " of another length");
            values.stream().filter(Objects::nonNull).forEach(each -> check(form, each));
        });
    }

    private static <T> T cast(Class<T> kind, Object value) {
        require(kind.isInstance(value), "a value that is not a " + kind.getSimpleName());
        return kind.cast(value);
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Object> object(Object value) {
        return cast(Map.class, value);
    }

    private static Map<String, Object> forms() {
        try (InputStream file = Records.class.getResourceAsStream("records.json")) {
            return object(Json.parse(file.readAllBytes()));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
