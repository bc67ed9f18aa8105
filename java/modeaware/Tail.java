package modeaware;

import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Follows the mode log in a thread of its own, for all producers of a class loader that connect in the same way.
 *
 * <p>The log is read from its beginning, then followed. After anything that could hide a change of the log itself (it is
 * shorter, gone, was out of reach) it is read from the beginning again; the last views stay in force meanwhile.
 */
final class Tail {
    private static final Logger LOG = LoggerFactory.getLogger(Tail.class);
    private static final Map<Map<String, Object>, Tail> TAILS = new HashMap<>();
    private static final Duration POLL = Duration.ofSeconds(5);
    private static final Duration REQUEST = Duration.ofSeconds(10);
    private static final long CHECK_MS = 30_000; // how often the end of a silent log is requested
    private static final long FIRST_PAUSE_MS = 1_000;
    private static final long LAST_PAUSE_MS = 30_000;

    private final Map<String, Object> connection;
    private final String topic;
    private final TopicPartition partition;
    private final CountDownLatch first = new CountDownLatch(1);
    private final CountDownLatch stopped = new CountDownLatch(1);
    private volatile Views views;
    private volatile String trouble = "the mode log was not read to its end yet";
    private boolean failing;
    private long pauseMs = FIRST_PAUSE_MS;
    private int users; // guarded by TAILS, as is the consumer
    private KafkaConsumer<byte[], byte[]> consumer;

    private Tail(Map<String, Object> connection, String topic) {
        this.connection = connection;
        this.topic = topic;
        partition = new TopicPartition(topic, 0);
    }

    /** Returns the tail for a connection and a log, which {@link #release} gives back. Never blocks. */
    static Tail acquire(Map<String, Object> connection, String topic) {
        Map<String, Object> key = new HashMap<>(connection);
        key.put(Share.LOG_TOPIC, topic);
        synchronized (TAILS) {
            Tail tail = TAILS.computeIfAbsent(key, absent -> new Tail(connection, topic));
            if (tail.users++ == 0) {
                Thread thread = new Thread(tail::run, "modeaware-modes");
                thread.setDaemon(true);
                thread.start();
            }
            return tail;
        }
    }

    /** Gives back what one {@link #acquire} returned; the last user's call ends the thread soon. */
    void release() {
        synchronized (TAILS) {
            if (--users == 0) {
                TAILS.values().remove(this);
                stopped.countDown();
                if (consumer != null) {
                    consumer.wakeup();
                }
            }
        }
    }

    /** Returns the views in force; null before the first. */
    Views views() {
        return views;
    }

    /** Returns why there is no view. */
    String trouble() {
        return trouble;
    }

    /** Waits for the first view, or until the thread is interrupted. */
    void await(long timeoutNs) {
        try {
            first.await(timeoutNs, TimeUnit.NANOSECONDS);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    private void run() {
        while (isWanted()) {
            try (KafkaConsumer<byte[], byte[]> made = new KafkaConsumer<>(
                    Share.consumerSettings(connection), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                synchronized (TAILS) {
                    consumer = made;
                }
                while (isWanted()) {
                    tryToFollow(made);
                }
            } catch (KafkaException error) {
                failed(error.toString());
            } finally {
                synchronized (TAILS) {
                    consumer = null;
                }
            }
        }
    }

    private void tryToFollow(KafkaConsumer<byte[], byte[]> made) {
        try {
            if (isThere(made)) {
                follow(made);
            }
        } catch (OffsetOutOfRangeException error) { // its subclass is LogTruncationException
            LOG.warn("mode log {}: it was truncated or created again; reading it from its beginning", topic);
        } catch (WakeupException error) {
            LOG.debug("mode log {}: not followed any more", topic);
        } catch (KafkaException error) {
            failed(error.toString());
        }
    }

    /** Waits for the log, or for the end; without one every partition is writable. */
    private boolean isThere(KafkaConsumer<byte[], byte[]> made) {
        while (isWanted() && made.partitionsFor(topic, REQUEST).isEmpty()) {
            if (views != null && !views.topics().isEmpty()) {
                failed("it is gone; restore it: all partition modes are stored there");
            } else {
                publish(Views.NONE);
                pause(FIRST_PAUSE_MS);
            }
        }
        return isWanted();
    }

    private void follow(KafkaConsumer<byte[], byte[]> made) {
        List<TopicPartition> log = List.of(partition);
        Replay replay = new Replay();
        made.assign(log);
        made.seekToBeginning(log);
        long end = made.endOffsets(log, REQUEST).get(partition);
        long checkedNs = System.nanoTime();
        boolean caughtUp = false;
        while (isWanted()) {
            if (!caughtUp && made.position(partition, REQUEST) >= end) {
                caughtUp = true;
                publish((views == null ? Views.NONE : views).with(replay, replay.byName.keySet()));
            }
            Set<String> changed = new HashSet<>();
            ConsumerRecords<byte[], byte[]> records = made.poll(POLL);
            for (ConsumerRecord<byte[], byte[]> each : records) {
                changed.addAll(replay.apply(each.key(), each.value()));
            }
            if (caughtUp && !records.isEmpty()) {
                publish(views.with(replay, changed));
            }
            if (System.nanoTime() - checkedNs > TimeUnit.MILLISECONDS.toNanos(CHECK_MS)) {
                checkedNs = System.nanoTime();
                if (made.endOffsets(log, REQUEST).get(partition) < made.position(partition, REQUEST)) {
                    throw new OffsetOutOfRangeException(Map.of(partition, made.position(partition, REQUEST)));
                }
            }
        }
    }

    private void publish(Views now) {
        views = now;
        first.countDown();
        pauseMs = FIRST_PAUSE_MS;
        if (failing) {
            failing = false;
            LOG.warn("mode log {}: it can be read again", topic);
        }
    }

    private void failed(String why) {
        if (!failing) {
            failing = true;
            int held = views == null ? 0 : views.topics().size();
            LOG.warn("mode log {}: {}; the last views stay in force ({} topics)", topic, why, held);
        }
        trouble = why;
        pause(pauseMs);
        pauseMs = Math.min(2 * pauseMs, LAST_PAUSE_MS);
    }

    private boolean isWanted() {
        return stopped.getCount() > 0;
    }

    private void pause(long ms) {
        try {
            stopped.await(ms, TimeUnit.MILLISECONDS);
        } catch (InterruptedException error) {
            stopped.countDown(); // a container ends its threads: the last views stay in force
        }
    }
}
