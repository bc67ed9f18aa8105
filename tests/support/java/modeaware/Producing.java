package modeaware;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A producer with the plug-ins beside two plain ones: they write the same records in turns. The second plain one shows
 * what the comparison itself is worth. Arguments: how many rounds, how many records in each, of how many bytes,
 * {@code keyed} or {@code keyless}, the plain producers' topic, the other's topic, then settings as {@code name=value}.
 *
 * <p>Prints a line per round: for the plain producer, the second plain one and the one with the plug-ins, the time until
 * all records were acknowledged, and the CPU time of the process, in nanoseconds. The first rounds warm up and print
 * nothing.
 */
final class Producing {
    private static final int WARM_UP_ROUNDS = 3;
    private static final int KEYS = 10_000;
    private static final OperatingSystemMXBean SYSTEM =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private Producing() { }

    public static void main(String[] arguments) {
        int rounds = Integer.parseInt(arguments[0]);
        int records = Integer.parseInt(arguments[1]);
        byte[] value = new byte[Integer.parseInt(arguments[2])];
        byte[][] keys = new byte[KEYS][];
        for (int at = 0; at < KEYS && arguments[3].equals("keyed"); at++) {
            keys[at] = ("key-" + at).getBytes(StandardCharsets.UTF_8);
        }
        Map<String, Object> settings = new HashMap<>();
        for (int at = 6; at < arguments.length; at++) {
            String[] setting = arguments[at].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        Map<String, Object> withPlugIns = new HashMap<>(settings);
        withPlugIns.put("partitioner.class", ModePartitioner.class.getName());
        withPlugIns.put("interceptor.classes", ModeInterceptor.class.getName());
        settings.keySet().removeIf(name -> name.startsWith("modeaware."));
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> plain = new KafkaProducer<>(settings, bytes, bytes);
                KafkaProducer<byte[], byte[]> again = new KafkaProducer<>(settings, bytes, bytes);
                KafkaProducer<byte[], byte[]> own = new KafkaProducer<>(withPlugIns, bytes, bytes)) {
            List<KafkaProducer<byte[], byte[]>> producers = List.of(plain, again, own);
            for (int round = 0; round < WARM_UP_ROUNDS + rounds; round++) {
                String[] times = new String[producers.size()];
                for (int turn = 0; turn < times.length; turn++) {
                    int at = (round + turn) % times.length;
                    KafkaProducer<byte[], byte[]> producer = producers.get(at);
                    times[at] = write(producer, arguments[producer == own ? 5 : 4], keys, value, records);
                }
                if (round >= WARM_UP_ROUNDS) {
                    System.out.println(String.join(" ", times));
                }
            }
        }
    }

    private static String write(
            KafkaProducer<byte[], byte[]> producer, String topic, byte[][] keys, byte[] value, int records) {
        System.gc();
        long startNs = System.nanoTime();
        long startCpuNs = SYSTEM.getProcessCpuTime();
        for (int number = 0; number < records; number++) {
            producer.send(new ProducerRecord<>(topic, keys[number % KEYS], value), (stored, error) -> {
                if (error != null) {
                    error.printStackTrace();
                    Runtime.getRuntime().halt(1);
                }
            });
        }
        producer.flush();
        return (System.nanoTime() - startNs) + " " + (SYSTEM.getProcessCpuTime() - startCpuNs);
    }
}
