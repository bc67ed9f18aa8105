package modeaware;

import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.producer.Partitioner;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidTopicException;

/**
 * Chooses among the writable partitions of a topic ({@code partitioner.class}). Thread-safe.
 *
 * <p>{@code modeaware.partitioner} names the {@link Hash}. Kafka does not call this class for a record that names its
 * partition. An exception from this class fails the send: Kafka passes it to the future and the callback.
 */
public final class ModePartitioner extends PlugIn implements Partitioner {
    private final Map<String, StickyIndex> stickyIndexes = new ConcurrentHashMap<>();
    private final ThreadLocal<Placed> placed = ThreadLocal.withInitial(Placed::new);
    private Hash hash;
    private boolean hasInterceptor;
    private int batchBytes;

    /** The inputs of a thread's last decision, and the place of the thread's last record without a key. */
    private static final class Placed {
        Views views; // these and the next two decide what is writable
        Cluster cluster;
        String named;
        int[] writable; // null: all of the count
        int count;
        String topic;
        int partition;
        boolean isFresh; // no batch has begun since
        boolean isRepeated; // the same record is placed once more
    }

    @Override
    public void configure(Map<String, ?> configs) {
        super.configure(configs);
        hash = Hash.valueOf(settings.getString(Settings.PARTITIONER));
        hasInterceptor = settings.has(ProducerConfig.INTERCEPTOR_CLASSES_CONFIG, ModeInterceptor.class);
        batchBytes = settings.getInt(ProducerConfig.BATCH_SIZE_CONFIG);
    }

    /**
     * Notes that {@code topic}'s record begins a batch. kafka-clients before 4.0 call this, and then place the record once
     * more; without this method the record's bytes would count twice. These versions also call this for a record that
     * names its partition, which is not placed here. Later versions have no such method to override.
     */
    public void onNewBatch(String topic, Cluster cluster, int partition) {
        Placed last = placed.get();
        last.isRepeated = last.isFresh && topic.equals(last.topic) && partition == last.partition;
        last.isFresh = false;
    }

    @Override
    public int partition(String topic, Object key, byte[] keyBytes, Object value, byte[] valueBytes, Cluster cluster) {
        Placed last = placed.get();
        boolean isRepeated = last.isRepeated && topic.equals(last.topic);
        last.isRepeated = false;
        // The interceptor's views: a switch since then would leave the record between the old and the new topic.
        Views views = hasInterceptor ? tail.ofSend.get() : views();
        if (views == null) {
            throw noView();
        }
        if (views != last.views || cluster != last.cluster || !topic.equals(last.named)) {
            decide(last, views, topic, cluster);
        }
        int[] writable = last.writable;
        int count = last.count;
        if (hash.hashes(keyBytes)) {
            return partition(writable, hash.index(keyBytes, count));
        }
        int before = last.partition;
        if (isRepeated && (writable == null ? before < count : Arrays.binarySearch(writable, before) >= 0)) {
            return before;
        }
        StickyIndex sticky = stickyIndexes.get(topic);
        int bytes = size(keyBytes) + size(valueBytes);
        if (sticky == null || !sticky.takes(count, bytes)) {
            sticky = new StickyIndex(batchBytes, count, bytes,
                index -> cluster.leaderFor(new TopicPartition(topic, partition(writable, index))) != null);
            stickyIndexes.put(topic, sticky); // the last of several threads wins
        }
        last.topic = topic;
        last.isFresh = true;
        last.partition = partition(writable, sticky.index);
        return last.partition;
    }

    private static void decide(Placed last, Views views, String topic, Cluster cluster) {
        String written = views.writtenTopic(topic);
        if (!written.equals(topic)) {
            throw new InvalidTopicException(topic + " was replaced by " + written + "; write to that topic, or set "
                + ProducerConfig.INTERCEPTOR_CLASSES_CONFIG + "=" + ModeInterceptor.class.getName()
                + " after the other interceptors");
        }
        // A writable partition may be beyond the metadata's partitions. Kafka then requests metadata, and keeps the
        // record until the metadata comes, at most delivery.timeout.ms.
        int[] writable = views.writable(topic, cluster.topicId(topic));
        int count = writable == null ? cluster.partitionCountForTopic(topic) : writable.length;
        if (count == 0) {
            throw new InvalidPartitionsException(topic + ": no partition is writable; grow the topic");
        }
        last.writable = writable;
        last.count = count;
        last.views = views;
        last.cluster = cluster;
        last.named = topic;
    }

    private static int partition(int[] writable, int index) {
        return writable == null ? index : writable[index];
    }

    private static int size(byte[] bytes) {
        return bytes == null ? 0 : bytes.length;
    }
}
