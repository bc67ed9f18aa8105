package modeaware;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Base64;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.MockConsumer;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * What a tail does with a mode log that appears, fails, is deleted, or was created again; the log is not on a Kafka.
 *
 * <p>Arguments: records of one topic in base64, by rising version, each with another number of writable partitions. Prints
 * a line for each case: its name, a tab, and the number of writable partitions in force.
 */
final class Following {
    private static final TopicPartition LOG = new TopicPartition("modes", 0);
    private static final long CHECK_MS = 20;
    private static final long LONGEST_MS = 20_000;

    private final byte[][] records;
    private final AtomicReference<RuntimeException> failure = new AtomicReference<>(); // of the next poll
    private volatile List<Integer> log = List.of(); // the numbers of the records on it
    private volatile boolean isAbsent = true;
    private volatile boolean isLate; // the end of the log was requested while a record was not in force yet
    private Tail tail;

    private Following(String[] arguments) {
        records = new byte[arguments.length][];
        for (int at = 0; at < arguments.length; at++) {
            records[at] = Base64.getDecoder().decode(arguments[at]);
        }
    }

    public static void main(String[] arguments) {
        new Following(arguments).follow();
        System.exit(0);
    }

    private void follow() {
        tail = new Tail(Map.of(), LOG.topic(), settings -> new Reader());
        tail.checkNs = TimeUnit.MILLISECONDS.toNanos(CHECK_MS);
        tail.start();
        say("absent", tail, () -> tail.views != null, () -> log = List.of());
        say("created", tail, holds(tail, 0), () -> {
            log = List.of(0);
            isAbsent = false;
        });
        say("appended to", tail, holds(tail, 1), () -> log = List.of(0, 1));
        say("failing", tail, () -> tail.trouble.contains("no broker"), () -> fail(new KafkaException("no broker")));
        say("readable again", tail, holds(tail, 2), () -> log = List.of(0, 1, 2));
        say("gone", tail, () -> tail.trouble.contains("the topic is gone"), () -> {
            isAbsent = true;
            fail(new KafkaException("no leader"));
        });
        say("there again", tail, holds(tail, 3), () -> {
            log = List.of(0, 1, 3);
            isAbsent = false;
        });
        say("out of range", tail, holds(tail, 4), () -> {
            log = List.of(0, 1, 4);
            fail(new OffsetOutOfRangeException(Map.of(LOG, 3L)));
        });
        say("shorter", tail, holds(tail, 5), () -> log = List.of(5));
        System.out.println("late\t" + isLate);
    }

    private void fail(RuntimeException error) {
        failure.set(error);
    }

    private BooleanSupplier holds(Tail tail, int record) {
        return () -> inForce(tail) == writable(record);
    }

    private int writable(int record) {
        return new TopicView(records[record]).writable.length;
    }

    private static int inForce(Tail tail) {
        TopicView view = tail.views == null ? null : tail.views.byName.get("orders");
        return view == null ? 0 : view.writable.length;
    }

    /** Does {@code change}, and waits for its effect. */
    private static void say(String name, Tail tail, BooleanSupplier isDone, Runnable change) {
        change.run();
        long untilNs = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(LONGEST_MS);
        while (!isDone.getAsBoolean() && System.nanoTime() < untilNs) {
            aMoment();
        }
        System.out.println(name + "\t" + (isDone.getAsBoolean() ? inForce(tail) : "not within " + LONGEST_MS + " ms"));
    }

    private static void aMoment() {
        LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(1));
    }

    /** Reads {@link #log}. */
    private final class Reader extends MockConsumer<byte[], byte[]> {
        private int given;
        private int last; // the record that was given last

        @SuppressWarnings("deprecation") // kafka-clients 3.9 has no other constructor
        Reader() {
            super(org.apache.kafka.clients.consumer.OffsetResetStrategy.NONE);
            updateBeginningOffsets(Map.of(LOG, 0L));
        }

        @Override
        public List<PartitionInfo> partitionsFor(String topic, Duration timeout) {
            return isAbsent ? List.of() : List.of(new PartitionInfo(topic, 0, null, null, null));
        }

        @Override
        public synchronized Map<TopicPartition, Long> endOffsets(Collection<TopicPartition> logs, Duration timeout) {
            isLate |= given > 0 && inForce(tail) != writable(last);
            return Map.of(LOG, (long) log.size());
        }

        @Override
        public synchronized ConsumerRecords<byte[], byte[]> poll(Duration timeout) {
            RuntimeException error = failure.getAndSet(null);
            if (error != null) {
                throw error;
            }
            List<Integer> now = log;
            boolean isNew = given < now.size();
            for (; given < now.size(); given++) {
                last = now.get(given);
                byte[] record = records[last];
                byte[] key = new TopicView(record).topicId.getBytes(StandardCharsets.UTF_8);
                addRecord(new ConsumerRecord<>(LOG.topic(), LOG.partition(), given, key, record));
            }
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(isNew ? CHECK_MS + 1 : 1)); // then a check is due
            return super.poll(timeout);
        }
    }
}
