package modeaware;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.zip.CRC32;
import org.apache.kafka.clients.producer.Partitioner;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.utils.Utils;

/**
 * Chooses among the writable partitions of a topic ({@code partitioner.class}). Thread-safe.
 *
 * <p>{@code modeaware.partitioner} says where keys go, as the Python package's partitioners of that name:
 * {@code murmur2_random} (the default, and Kafka's own choice), {@code consistent_random} (librdkafka's) or
 * {@code minimal_movement}. Records without a key stick to a partition for {@code batch.size} bytes, or for
 * {@code linger.ms} unless that is 0: a producer does not report new batches since kafka-clients 4.0.
 *
 * <p>A record that names its partition never gets here. What is thrown here fails the send: its future, its callback.
 */
public final class ModePartitioner implements Partitioner {
    private static final int RECORD_OVERHEAD = 10; // bytes in a batch, about

    private final Map<String, Sticky> sticky = new ConcurrentHashMap<>();
    private Share share;
    private Hash hash;
    private boolean isIntercepted;
    private long batchBytes;
    private long lingerNs;

    @Override
    public void configure(Map<String, ?> configs) {
        share = new Share(configs);
        hash = Hash.valueOf(share.oneOf(Share.PARTITIONER, "murmur2_random", "consistent_random", "minimal_movement"));
        isIntercepted = share.has(ProducerConfig.INTERCEPTOR_CLASSES_CONFIG, ModeInterceptor.class);
        batchBytes = share.number(ProducerConfig.BATCH_SIZE_CONFIG, 16_384);
        Object linger = ProducerConfig.configDef().defaultValues().get(ProducerConfig.LINGER_MS_CONFIG);
        lingerNs = share.number(ProducerConfig.LINGER_MS_CONFIG, ((Number) linger).longValue()) * 1_000_000;
    }

    @Override
    public int partition(String topic, Object key, byte[] keyBytes, Object value, byte[] valueBytes, Cluster cluster) {
        Views views = share.views(!isIntercepted); // the interceptor has waited
        if (views == null) {
            throw share.noView();
        }
        int[] writable = writable(views, topic, cluster);
        int count = writable == null ? cluster.partitionCountForTopic(topic) : writable.length;
        if (count == 0) {
            throw new InvalidPartitionsException("no partition of " + topic + " takes records now: grow the topic");
        }
        int index = hash.index(keyBytes, count);
        if (index < 0) {
            int size = (keyBytes == null ? 0 : keyBytes.length) + (valueBytes == null ? 0 : valueBytes.length);
            Sticky stuck = sticky.computeIfAbsent(topic, absent -> new Sticky());
            return stuck.partition(topic, writable, count, size + RECORD_OVERHEAD, cluster);
        }
        return writable == null ? index : writable[index];
    }

    /** Returns the partitions to choose from; null: all. */
    private int[] writable(Views views, String topic, Cluster cluster) {
        String written = views.written(topic);
        TopicView view;
        if (written.equals(topic)) {
            view = views.view(topic, cluster.topicId(topic));
        } else {
            // The switch came after the interceptor saw the record, which takes the place it would have had before.
            view = views.beforeSwitch(topic);
            if (view == null || !isIntercepted) {
                throw new InvalidTopicException(topic + " was replaced by " + written + " and takes no records: write to "
                    + "that topic, or set " + ProducerConfig.INTERCEPTOR_CLASSES_CONFIG + "="
                    + ModeInterceptor.class.getName());
            }
        }
        return view == null ? null : view.writable;
    }

    @Override
    public void close() {
        if (share != null) {
            share.close();
        }
    }

    /** The partition that a topic's records without a key stick to. */
    private final class Sticky {
        private int index;
        private int drawnFrom = -1;
        private long leftBytes;
        private long untilNs;

        synchronized int partition(String topic, int[] writable, int count, int size, Cluster cluster) {
            boolean isOver = leftBytes <= 0 || (lingerNs > 0 && System.nanoTime() - untilNs >= 0);
            if (isOver || drawnFrom != count) {
                for (int tries = 0; tries < 5; tries++) {
                    index = ThreadLocalRandom.current().nextInt(count);
                    int drawn = writable == null ? index : writable[index];
                    if (cluster.leaderFor(new TopicPartition(topic, drawn)) != null) {
                        break;
                    }
                }
                drawnFrom = count;
                leftBytes = batchBytes;
                untilNs = System.nanoTime() + lingerNs;
            }
            leftBytes -= size;
            return writable == null ? index : writable[index];
        }
    }

    /** Where keys go: the index among so many partitions; -1: the record has no key that is hashed. */
    enum Hash {
        murmur2_random {
            @Override
            int index(byte[] key, int count) {
                return key == null ? -1 : Utils.toPositive(Utils.murmur2(key)) % count;
            }
        },
        consistent_random {
            @Override
            int index(byte[] key, int count) {
                if (key == null || key.length == 0) {
                    return -1;
                }
                CRC32 crc = new CRC32();
                crc.update(key);
                return (int) (crc.getValue() % count);
            }
        },
        /** Jump consistent hashing (Lamping and Veach 2014) over murmur2. */
        minimal_movement {
            @Override
            int index(byte[] key, int count) {
                long state = key == null ? 0 : Utils.toPositive(Utils.murmur2(key)) % 0x7FFFFFFFL * 0x9E3779B97F4A7C15L;
                long index = -1;
                for (long following = 0; key != null && following < count; ) {
                    index = following;
                    state = state * 2862933555777941757L + 1;
                    following = (long) ((index + 1) * (2147483648.0 / ((state >>> 33) + 1)));
                }
                return (int) index;
            }
        };

        abstract int index(byte[] key, int count);
    }
}
