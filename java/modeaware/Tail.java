package modeaware;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Follows the mode log in a thread of its own, for all producers of a class loader that connect in the same way.
 *
 * <p>The log is read from its beginning, then followed. A log that is shorter, gone or was unreachable may be another
 * log now, so it is read from its beginning again. The last views stay in force meanwhile.
 */
final class Tail {
    private static final Logger LOG = LoggerFactory.getLogger(Tail.class);
    private static final Map<List<Object>, Tail> TAILS = new HashMap<>();
    private static final Duration POLL = Duration.ofSeconds(5);
    private static final Duration REQUEST = Duration.ofSeconds(10);
    private static final AtomicInteger MADE = new AtomicInteger();
    private static final long FIRST_PAUSE_MS = 1_000;
    private static final long LAST_PAUSE_MS = 30_000;

    /** The views that decided the topic of the record that this thread is sending: they decide its partition, too. */
    final ThreadLocal<Views> ofSend = new ThreadLocal<>();
    long checkNs = TimeUnit.SECONDS.toNanos(30); // how often the end of the log is requested
    private final Map<String, Object> settings;
    private final Function<Map<String, Object>, Consumer<byte[], byte[]>> connect;
    private final TopicPartition log;
    private final CountDownLatch first = new CountDownLatch(1);
    private final CountDownLatch stopped = new CountDownLatch(1);
    volatile Views views; // in force; null before the first
    volatile String trouble = "the mode log has not been read to its end yet"; // why there are no views
    private long pauseMs = FIRST_PAUSE_MS; // longer after a failure
    private int users; // guarded by TAILS

    Tail(Map<String, Object> settings, String topic, Function<Map<String, Object>, Consumer<byte[], byte[]>> connect) {
        this.connect = connect;
        this.settings = new HashMap<>(settings);
        this.settings.put("client.id", "modeaware-modes-" + MADE.incrementAndGet());
        log = new TopicPartition(topic, 0);
    }

    /** Returns the tail for a connection and a log; the caller has to {@link #release} the tail. Never blocks. */
    static Tail acquire(Settings configs) {
        Map<String, Object> settings = configs.consumer();
        String topic = configs.getString(Settings.LOG_TOPIC);
        synchronized (TAILS) {
            Tail tail = TAILS.computeIfAbsent(List.of(settings, topic), absent -> new Tail(settings, topic, Tail::connect));
            if (tail.users == 0) {
                tail.start();
            }
            tail.users++; // only now: if no thread starts, the next producer tries again
            return tail;
        }
    }

    /** Gives the tail back, once per {@link #acquire}. After the last release the thread ends within some seconds. */
    void release() {
        synchronized (TAILS) {
            if (--users == 0) {
                TAILS.values().remove(this);
                stopped.countDown();
            }
        }
    }

    /** Waits for the first views, and returns the views; null: none within the timeout, or before an interrupt. */
    Views awaitViews(long timeoutMs) {
        try {
            first.await(timeoutMs, TimeUnit.MILLISECONDS);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
        return views;
    }

    private static Consumer<byte[], byte[]> connect(Map<String, Object> settings) {
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    Thread start() {
        Thread thread = new Thread(null, this::run, "modeaware-modes", 0, false);
        thread.setDaemon(true);
        // The thread keeps no thread-local or class loader of the caller. Before Java 24 it keeps the caller's access
        // control context.
        thread.setContextClassLoader(Tail.class.getClassLoader());
        thread.start();
        return thread;
    }

    private void run() {
        while (isWanted()) {
            try (Consumer<byte[], byte[]> consumer = connect.apply(settings)) {
                awaitLog(consumer);
                follow(consumer);
            } catch (OffsetOutOfRangeException error) { // LogTruncationException is one, too
                LOG.warn("mode log {}: truncated or created again; reading it from its beginning", log.topic());
            } catch (RuntimeException | Error error) { // whatever it is: without this thread, no view would change again
                failed(error.toString());
            }
        }
    }

    private void awaitLog(Consumer<byte[], byte[]> consumer) {
        while (isWanted() && consumer.partitionsFor(log.topic(), REQUEST).isEmpty()) {
            if (views == null || views.byName.isEmpty()) {
                publish(new Replay()); // no log yet: every partition is ReadWrite
                pause(FIRST_PAUSE_MS);
            } else {
                failed("the topic is gone; restore it: it stores all partition modes");
            }
        }
    }

    private void follow(Consumer<byte[], byte[]> consumer) {
        List<TopicPartition> logs = List.of(log);
        consumer.assign(logs);
        consumer.seekToBeginning(logs);
        long end = consumer.endOffsets(logs, REQUEST).get(log);
        long checkedNs = System.nanoTime();
        Replay replay = new Replay();
        boolean isUnpublished = true;
        while (isWanted()) {
            if (isUnpublished && consumer.position(log, REQUEST) >= end) {
                isUnpublished = false;
                publish(replay);
            }
            // Only once all read records are in force: the broker answers after the next fetch, which may take 5 s.
            if (System.nanoTime() - checkedNs > checkNs) {
                checkedNs = System.nanoTime();
                checkEnd(consumer);
            }
            ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
            records.forEach(each -> replay.apply(each.key(), each.value()));
            isUnpublished |= !records.isEmpty();
        }
    }

    /** Throws if the log is shorter than what was read: fetches from a log that was created again return nothing. */
    private void checkEnd(Consumer<byte[], byte[]> consumer) {
        long position = consumer.position(log, REQUEST);
        if (consumer.endOffsets(List.of(log), REQUEST).get(log) < position) {
            throw new OffsetOutOfRangeException(Map.of(log, position));
        }
    }

    /** Puts what was read into force. */
    void publish(Replay replay) {
        views = (views == null ? Views.NONE : views).after(replay);
        first.countDown();
        if (pauseMs > FIRST_PAUSE_MS) {
            pauseMs = FIRST_PAUSE_MS;
            LOG.warn("mode log {}: readable again", log.topic());
        }
    }

    private void failed(String why) {
        if (pauseMs == FIRST_PAUSE_MS) {
            int held = views == null ? 0 : views.byName.size();
            LOG.warn("mode log {}: {}; the last views stay in force ({} topics)", log.topic(), why, held);
        }
        trouble = why;
        pause(pauseMs);
        pauseMs = Math.min(2 * pauseMs, LAST_PAUSE_MS);
    }

    boolean isWanted() {
        return stopped.getCount() > 0;
    }

    private void pause(long ms) {
        try {
            stopped.await(ms, TimeUnit.MILLISECONDS);
        } catch (InterruptedException error) {
            LOG.debug("mode log {}: interrupted; only a release ends this thread", log.topic());
        }
    }
}
