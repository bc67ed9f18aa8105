package modeaware;

import java.util.concurrent.ThreadLocalRandom;
import java.util.function.IntPredicate;

/**
 * Where records without a key go in one topic: to one partition for as many bytes as a batch takes, or for the producer's
 * linger time unless that is 0. A producer does not report new batches since kafka-clients 4.0. Thread-safe.
 */
final class StickyIndex {
    private static final int MAX_DRAWS = 5;
    private static final int BATCH_OVERHEAD_BYTES = 61;
    private static final int RECORD_OVERHEAD_BYTES = 11; // without headers, up to 8 KB

    private final long batchBytes;
    private final long lingerNs;
    private int index;
    private int drawnFrom = -1;
    private long leftBytes;
    private long untilNs;

    StickyIndex(long batchBytes, long lingerNs) {
        this.batchBytes = batchBytes;
        this.lingerNs = lingerNs;
    }

    /** Returns the index of the next record among {@code count} partitions, preferring those that are available. */
    synchronized int next(int count, int recordBytes, IntPredicate isAvailable) {
        long nowNs = System.nanoTime();
        // The first record of which the batch has no room begins the next one: behind it that would be a batch by itself.
        int bytes = recordBytes + RECORD_OVERHEAD_BYTES;
        boolean isOver = leftBytes < bytes || (lingerNs > 0 && nowNs - untilNs >= 0);
        if (isOver || drawnFrom != count) {
            int draws = 0;
            do {
                index = ThreadLocalRandom.current().nextInt(count);
                draws++;
            } while (draws < MAX_DRAWS && !isAvailable.test(index));
            drawnFrom = count;
            leftBytes = batchBytes - BATCH_OVERHEAD_BYTES;
            untilNs = nowNs + lingerNs;
        }
        leftBytes -= bytes;
        return index;
    }
}
