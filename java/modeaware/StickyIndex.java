package modeaware;

import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.IntPredicate;

/**
 * Where records without a key go in one topic, for as many bytes as a batch takes, as Kafka's own partitioner sends them
 * (KIP-794). A producer does not report new batches since kafka-clients 4.0. Thread-safe.
 */
final class StickyIndex {
    private static final int MAX_DRAWS = 5;
    private static final int BATCH_OVERHEAD_BYTES = 61;
    private static final int RECORD_OVERHEAD_BYTES = 11; // without headers, up to 8 KB

    final int index;
    private final int count;
    private final AtomicLong leftBytes;

    /** Draws an index among {@code count} for a record and those after it, preferring partitions that are available. */
    StickyIndex(long batchBytes, int count, int recordBytes, IntPredicate isAvailable) {
        this.count = count;
        leftBytes = new AtomicLong(batchBytes - BATCH_OVERHEAD_BYTES - recordBytes - RECORD_OVERHEAD_BYTES);
        int drawn;
        int draws = 0;
        do {
            drawn = ThreadLocalRandom.current().nextInt(count);
            draws++;
        } while (draws < MAX_DRAWS && !isAvailable.test(drawn));
        index = drawn;
    }

    /** Returns whether the next record goes there, among {@code count} partitions; otherwise a new index is drawn. */
    boolean takes(int count, int recordBytes) {
        // The first record of which the batch has no room begins the next one: behind it that would be a batch by itself.
        return this.count == count && leftBytes.addAndGet(-recordBytes - RECORD_OVERHEAD_BYTES) >= 0;
    }
}
