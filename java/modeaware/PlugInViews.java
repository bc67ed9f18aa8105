package modeaware;

import java.util.Map;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.errors.TimeoutException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The views for one plug-in of one producer, and what happens to records while there is none. Thread-safe. */
final class PlugInViews {
    private static final Logger LOG = LoggerFactory.getLogger(PlugInViews.class);

    final Settings settings;
    private final Tail tail;
    private final long timeoutMs;
    private final String onUnknown;
    private long deadlineNs; // of all waits for the first view; 0: none has begun
    private boolean isClosed;
    private volatile boolean isUnknownLogged;

    PlugInViews(Map<String, ?> configs) {
        settings = new Settings(configs);
        timeoutMs = settings.getLong(Settings.VIEW_TIMEOUT_MS);
        onUnknown = settings.getString(Settings.ON_UNKNOWN);
        tail = Tail.acquire(settings);
    }

    Tail tail() {
        return tail;
    }

    /** Returns the views that decide the next record of this thread; null: none in time, and it must be refused. */
    Views forNextSend() {
        if (tail.views() == null) {
            tail.awaitFirst(leftNs());
        }
        Views views = tail.views();
        if (views == null && onUnknown.equals("writable")) {
            if (!isUnknownLogged) {
                isUnknownLogged = true;
                LOG.warn("{}; every partition is used as ReadWrite until then", noView().getMessage());
            }
            views = Views.NONE;
        }
        tail.ofSend.set(views);
        return views;
    }

    /** Returns what {@link #forNextSend} returned to this thread last. */
    Views ofThisSend() {
        return tail.ofSend.get();
    }

    /** Returns why a record without a view is refused; producers may retry it with {@code block}, not with {@code error}. */
    ApiException noView() {
        String why = "no view of the partition modes within " + timeoutMs + " ms (" + Settings.VIEW_TIMEOUT_MS + "): "
            + tail.trouble();
        return onUnknown.equals("error") ? new ApiException(why) : new TimeoutException(why);
    }

    private synchronized long leftNs() {
        if (deadlineNs == 0) {
            deadlineNs = System.nanoTime() + timeoutMs * 1_000_000;
        }
        return deadlineNs - System.nanoTime();
    }

    /** Gives the tail back. Idempotent. */
    synchronized void close() {
        if (!isClosed) {
            isClosed = true;
            tail.release();
        }
    }
}
