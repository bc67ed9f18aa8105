package modeaware;

import java.util.zip.CRC32;
import org.apache.kafka.common.utils.Utils;

/** The rule by which keys get a partition. Each has the name of the Python package's partitioner. */
enum Hash {
    /** Kafka's own. */
    murmur2_random,
    /** librdkafka's own. */
    consistent_random,
    /** Jump consistent hashing (Lamping and Veach 2014) over murmur2. */
    minimal_movement;

    /** Returns whether this key decides the partition; otherwise any writable partition takes the record. */
    boolean hashes(byte[] key) {
        return key != null && (key.length > 0 || this != consistent_random);
    }

    /** Returns the index of a key among {@code count} partitions. */
    int index(byte[] key, int count) {
        if (this == consistent_random) {
            CRC32 crc = new CRC32();
            crc.update(key);
            return (int) (crc.getValue() % count);
        }
        int murmur2 = Utils.toPositive(Utils.murmur2(key));
        return this == murmur2_random ? murmur2 % count : jump(murmur2, count);
    }

    private static int jump(int hash, int count) {
        long state = hash % 0x7FFFFFFFL * 0x9E3779B97F4A7C15L;
        long index = -1;
        for (long next = 0; next < count; next = (long) ((index + 1) * (2147483648.0 / ((state >>> 33) + 1)))) {
            index = next;
            state = state * 2862933555777941757L + 1;
        }
        return (int) index;
    }
}
