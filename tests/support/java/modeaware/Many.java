package modeaware;

import java.io.File;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Many producers in one JVM, each of which sends a record; first without the plug-ins, then with them. Arguments: how
 * many, the topic, then settings as {@code name=value}. Prints each time the JVM's threads and sockets beyond those of its
 * start, and in the end the threads that are left.
 */
final class Many {
    private static final long LONGEST_END_MS = 15_000;

    private Many() { }

    public static void main(String[] arguments) throws InterruptedException, ExecutionException, IOException {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        Map<String, Object> settings = new HashMap<>();
        for (int at = 2; at < arguments.length; at++) {
            String[] setting = arguments[at].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        int threads = Thread.activeCount();
        long sockets = sockets();
        for (String kind : new String[] {"plain", "plug-ins"}) {
            if (kind.equals("plug-ins")) {
                settings.put("partitioner.class", ModePartitioner.class.getName());
                settings.put("interceptor.classes", ModeInterceptor.class.getName());
            }
            List<KafkaProducer<String, String>> producers = new ArrayList<>();
            for (int number = 0; number < Integer.parseInt(arguments[0]); number++) {
                StringSerializer text = new StringSerializer();
                producers.add(new KafkaProducer<>(settings, text, text));
                producers.get(number).send(new ProducerRecord<>(arguments[1], "key", "value")).get();
            }
            out.println(kind + " " + (Thread.activeCount() - threads) + " " + (sockets() - sockets));
            producers.forEach(KafkaProducer::close);
            long untilMs = System.currentTimeMillis() + LONGEST_END_MS;
            while (Thread.activeCount() > threads && System.currentTimeMillis() < untilMs) {
                Thread.sleep(50);
            }
        }
        out.println("left " + (Thread.activeCount() - threads));
        out.println("closed");
    }

    private static long sockets() throws IOException {
        long count = 0;
        for (File each : new File("/proc/self/fd").listFiles()) {
            try {
                count += Files.readSymbolicLink(each.toPath()).toString().startsWith("socket:") ? 1 : 0;
            } catch (IOException closed) {
                continue; // meanwhile, as the one that lists them
            }
        }
        return count;
    }
}
