package modeaware;

import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerInterceptor;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;

/**
 * Sends records that name a replaced topic to the new topic ({@code interceptor.classes}). Thread-safe.
 *
 * <p>Kafka swallows an interceptor's exception and sends the record unchanged. So an interceptor can only wait, or
 * throw an Error, which leaves {@code send()} and ends most threads. A partitioner can fail one send.
 *
 * <p>So the interceptor waits for the first view. If none comes in time, it passes the record on to
 * {@link ModePartitioner}, which fails the send. With {@code block}, future and callback get a TimeoutException, as
 * from Kafka without metadata. The interceptor throws an Error if no ModePartitioner sees the record (the record
 * names its partition, or the producer has another partitioner), and on an unexpected error: the record must not go to
 * a topic that may be replaced. In Connect, both end the task (with errors.tolerance=none), with the reason in the
 * task's status; a restart of the task sends the record again.
 *
 * <p>Names are resolved by the mode log alone: an interceptor does not see the ids of the cluster's topics.
 */
public final class ModeInterceptor<K, V> extends PlugIn implements ProducerInterceptor<K, V> {
    @Override
    public ProducerRecord<K, V> onSend(ProducerRecord<K, V> record) {
        try {
            Views views = views();
            tail.ofSend.set(views);
            if (views == null) {
                if (record.partition() == null
                        && settings.has(ProducerConfig.PARTITIONER_CLASS_CONFIG, ModePartitioner.class)) {
                    return record;
                }
                throw noView();
            }
            String written = views.writtenTopic(record.topic());
            return written.equals(record.topic()) ? record : new ProducerRecord<>(
                written, record.partition(), record.timestamp(), record.key(), record.value(), record.headers());
        } catch (RuntimeException error) {
            throw new Error("the record was not sent: " + error.getMessage(), error);
        }
    }

    @Override
    public void onAcknowledgement(RecordMetadata metadata, Exception exception) { }
}
