package modeaware;

import java.util.function.ToIntBiFunction;
import java.util.zip.CRC32;
import org.apache.kafka.common.utils.Utils;

/** Where keys go, by the name of the Python package's partitioner. */
enum Hash {
    /** Kafka's own. */
    murmur2_random(0, (key, count) -> murmur2(key) % count),
    /** librdkafka's own. */
    consistent_random(1, Hash::crc32),
    /** Jump consistent hashing (Lamping and Veach 2014) over murmur2. */
    minimal_movement(0, Hash::jump);

    private final int minBytes;
    private final ToIntBiFunction<byte[], Integer> index;

    Hash(int minBytes, ToIntBiFunction<byte[], Integer> index) {
        this.minBytes = minBytes;
        this.index = index;
    }

    /** Returns whether this key decides the partition; otherwise any writable partition takes the record. */
    boolean hashes(byte[] key) {
        return key != null && key.length >= minBytes;
    }

    /** Returns the index of a key among {@code count} partitions. */
    int index(byte[] key, int count) {
        return index.applyAsInt(key, count);
    }

    private static int murmur2(byte[] key) {
        return Utils.toPositive(Utils.murmur2(key));
    }

    private static int crc32(byte[] key, int count) {
        CRC32 crc = new CRC32();
        crc.update(key);
        return (int) (crc.getValue() % count);
    }

    private static int jump(byte[] key, int count) {
        long state = murmur2(key) % 0x7FFFFFFFL * 0x9E3779B97F4A7C15L;
        long index = -1;
        for (long next = 0; next < count; next = (long) ((index + 1) * (2147483648.0 / ((state >>> 33) + 1)))) {
            index = next;
            state = state * 2862933555777941757L + 1;
        }
        return (int) index;
    }
}
