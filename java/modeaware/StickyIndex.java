package modeaware;

import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.IntPredicate;

/**
 * Where records without a key go in one topic: to one partition for as many bytes as a batch takes, as Kafka's own
 * partitioner sends them (KIP-794). A producer does not report new batches since kafka-clients 4.0. Thread-safe.
 */
final class StickyIndex {
    private static final int MAX_DRAWS = 5;
    private static final int BATCH_OVERHEAD_BYTES = 61;
    private static final int RECORD_OVERHEAD_BYTES = 11; // without headers, up to 8 KB

    private final long batchBytes;
    private volatile Draw last = new Draw(0, -1, 0);

    StickyIndex(long batchBytes) {
        this.batchBytes = batchBytes - BATCH_OVERHEAD_BYTES;
    }

    /** Returns the index of the next record among {@code count} partitions; negative: {@link #draw} decides it. */
    int next(int count, int recordBytes) {
        Draw draw = last;
        // The first record of which the batch has no room begins the next one: behind it that would be a batch by itself.
        return draw.count == count && draw.leftBytes.addAndGet(-recordBytes - RECORD_OVERHEAD_BYTES) >= 0 ? draw.index : -1;
    }

    /** Returns a new index for this record and those after it, preferring partitions that are available. */
    int draw(int count, int recordBytes, IntPredicate isAvailable) {
        int index;
        int draws = 0;
        do {
            index = ThreadLocalRandom.current().nextInt(count);
            draws++;
        } while (draws < MAX_DRAWS && !isAvailable.test(index));
        last = new Draw(index, count, batchBytes - recordBytes - RECORD_OVERHEAD_BYTES); // of several threads the last one
        return index;
    }

    private static final class Draw {
        final int index;
        final int count;
        final AtomicLong leftBytes;

        Draw(int index, int count, long leftBytes) {
            this.index = index;
            this.count = count;
            this.leftBytes = new AtomicLong(leftBytes);
        }
    }
}
