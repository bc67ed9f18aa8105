package modeaware;

import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.IntPredicate;

/**
 * The index to which one topic's records without a key go, for as many bytes as a batch takes (KIP-794, as in Kafka's
 * own partitioner). Since kafka-clients 4.0 a producer does not report new batches. Thread-safe.
 */
final class StickyIndex {
    private static final int MAX_DRAWS = 5;
    private static final int BATCH_OVERHEAD_BYTES = 61;
    private static final int RECORD_OVERHEAD_BYTES = 11; // without headers, up to 8 KB

    final int index;
    private final int count;
    private final AtomicLong leftBytes;

    /** Draws an index below {@code count} for a record and later ones. Available partitions are preferred. */
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

    /** Returns whether the next record, of {@code count} partitions, goes to this index; else the caller draws anew. */
    boolean takes(int count, int recordBytes) {
        // A record for which the batch has no room goes to a new index: at this one it would be a batch by itself.
        return this.count == count && leftBytes.addAndGet(-recordBytes - RECORD_OVERHEAD_BYTES) >= 0;
    }
}
