package modeaware;

import java.io.File;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A producer with the plug-ins that writes numbered records until a file appears. Arguments: its kind ({@code keyed},
 * {@code keyless} or {@code transactional}), the topic, the file, then settings as {@code name=value}.
 *
 * <p>Prints of each record, when it is acknowledged (transactional: committed), its number, topic and partition, or
 * {@code failed} and the error.
 */
final class Writing {
    private static final int KEYS = 40;
    private static final int IN_TRANSACTION = 10;

    private Writing() { }

    public static void main(String[] arguments) throws InterruptedException {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        File stop = new File(arguments[2]);
        boolean isTransactional = arguments[0].equals("transactional");
        Map<String, Object> settings = new HashMap<>(Map.of(
            "partitioner.class", ModePartitioner.class.getName(), "interceptor.classes", ModeInterceptor.class.getName(),
            "linger.ms", "1"));
        for (int at = 3; at < arguments.length; at++) {
            String[] setting = arguments[at].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        if (isTransactional) {
            settings.put("transactional.id", "writing-" + arguments[1]);
        }
        StringSerializer text = new StringSerializer();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, text, text)) {
            if (isTransactional) {
                producer.initTransactions();
            }
            for (int number = 0; !stop.exists() || number % IN_TRANSACTION != 0; number++) {
                if (isTransactional && number % IN_TRANSACTION == 0) {
                    producer.beginTransaction();
                }
                String key = arguments[0].equals("keyless") ? null : arguments[0] + "-" + number % KEYS;
                String value = arguments[0] + ":" + number;
                producer.send(new ProducerRecord<>(arguments[1], key, value), (stored, error) -> out.println(
                    error == null ? value + " " + stored.topic() + " " + stored.partition() : "failed " + error));
                if (isTransactional && number % IN_TRANSACTION == IN_TRANSACTION - 1) {
                    producer.commitTransaction();
                }
                Thread.sleep(5);
            }
        }
        out.println("closed");
    }
}
