package modeaware;

import java.util.Map;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.errors.TimeoutException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** A plug-in of one producer: it has the views, and decides about records before the first view. Thread-safe. */
abstract class PlugIn {
    private static final Logger LOG = LoggerFactory.getLogger(PlugIn.class);

    Settings settings;
    Tail tail;
    private boolean isClosed;
    private volatile boolean hasWaited;

    public void configure(Map<String, ?> configs) {
        settings = new Settings(configs);
        tail = Tail.acquire(settings);
    }

    /** Returns the views in force, which decide a record; null: none in time, and the record must be refused. */
    final Views views() {
        Views views = tail.views;
        return views == null ? firstViews() : views;
    }

    /** Returns the exception for a record without a view: not retriable with {@code error}, else retriable. */
    final ApiException noView() {
        String why = "no view of the partition modes within " + settings.getLong(Settings.VIEW_TIMEOUT_MS) + " ms ("
            + Settings.VIEW_TIMEOUT_MS + "): " + tail.trouble;
        return onUnknown("error") ? new ApiException(why) : new TimeoutException(why);
    }

    private Views firstViews() {
        Views views = tail.awaitViews(hasWaited ? 0 : settings.getLong(Settings.VIEW_TIMEOUT_MS));
        if (views == null && onUnknown("writable")) {
            if (!hasWaited) {
                LOG.warn("{}; every partition is used as ReadWrite until then", noView().getMessage());
            }
            views = Views.NONE;
        }
        hasWaited |= !Thread.currentThread().isInterrupted(); // records do not wait one after the other
        return views;
    }

    private boolean onUnknown(String choice) {
        return settings.getString(Settings.ON_UNKNOWN).equals(choice);
    }

    /** Gives the tail back. Kafka calls this at each close of a producer, and after a configuration that failed. */
    public synchronized void close() {
        if (tail != null && !isClosed) {
            isClosed = true;
            tail.release();
        }
    }
}
