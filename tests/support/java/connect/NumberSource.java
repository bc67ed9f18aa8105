package connect;

import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;

/** A source connector of numbered records with 40 keys. Prints the value of each record that brokers acknowledged. */
public final class NumberSource extends SourceConnector {
    private static final int KEYS = 40;
    private Map<String, String> settings;

    @Override
    public void start(Map<String, String> given) {
        settings = given;
    }

    @Override
    public Class<? extends Task> taskClass() {
        return Numbers.class;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int maxTasks) {
        return List.of(settings);
    }

    @Override
    public ConfigDef config() {
        return new ConfigDef().define("topic", ConfigDef.Type.STRING, ConfigDef.Importance.HIGH, "where records go");
    }

    @Override
    public void stop() { }

    @Override
    public String version() {
        return "1";
    }

    /** Writes a record every 5 ms, from the first one that was not acknowledged to an earlier task. */
    public static final class Numbers extends SourceTask {
        private static final Map<String, String> SOURCE = Map.of("source", "numbers");
        private String topic;
        private long number;

        @Override
        public void start(Map<String, String> given) {
            topic = given.get("topic");
            Map<String, Object> sent = context.offsetStorageReader().offset(SOURCE);
            number = sent == null ? 0 : (Long) sent.get("number") + 1;
        }

        @Override
        public List<SourceRecord> poll() throws InterruptedException {
            Thread.sleep(5);
            Map<String, Long> offset = Map.of("number", number);
            SourceRecord record = new SourceRecord(SOURCE, offset, topic,
                Schema.STRING_SCHEMA, "connect-" + number % KEYS, Schema.STRING_SCHEMA, "connect:" + number);
            number++;
            return List.of(record);
        }

        @Override
        public void commitRecord(SourceRecord record, RecordMetadata stored) {
            System.out.println(record.value());
        }

        @Override
        public void stop() { }

        @Override
        public String version() {
            return "1";
        }
    }
}
