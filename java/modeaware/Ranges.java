package modeaware;

import static modeaware.Json.require;

import java.util.BitSet;
import java.util.List;
import java.util.Map;

/** Ranges of partitions in the records of the mode log: both ends belong to a range. All methods throw Malformed. */
final class Ranges {
    private static final int MAX_PARTITIONS = 100_000;
    private static final int READ_WRITE = 0;

    private Ranges() { }

    /** Returns how many partitions have a mode. */
    static int count(Object modes) {
        List<?> ranges = Form.list(modes);
        require(!ranges.isEmpty(), "no modes");
        return end(range(ranges.get(ranges.size() - 1), 3), 0);
    }

    /** Returns the partitions that are ReadWrite. */
    static BitSet writable(Object modes) {
        BitSet found = new BitSet();
        int next = 0;
        for (Object each : Form.list(modes)) {
            List<?> range = range(each, 3);
            int first = number(range.get(0), next, next);
            next = end(range, first);
            found.set(first, next, number(range.get(2), -1, 1) == READ_WRITE);
        }
        return found;
    }

    /** Returns the partitions for which columns have rows. */
    static BitSet partitions(Map<String, Object> columns) {
        BitSet found = new BitSet();
        for (Object each : Form.list(columns.get("partitions"))) {
            List<?> range = range(each, 2);
            int first = number(range.get(0), found.length(), MAX_PARTITIONS - 1);
            found.set(first, end(range, first));
        }
        return found;
    }

    private static List<?> range(Object value, int size) {
        List<?> found = Form.list(value);
        require(found.size() == size, "a range of " + found.size() + " numbers");
        return found;
    }

    private static int end(List<?> range, int first) {
        return number(range.get(1), first, MAX_PARTITIONS - 1) + 1;
    }

    private static int number(Object value, int lowest, int highest) {
        long found = Form.cast(Long.class, value);
        require(found >= lowest && found <= highest, found + " is not within " + lowest + " to " + highest);
        return (int) found;
    }
}
