package modeaware;

import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.Uuid;

/**
 * What the plug-ins decide about single records, without a Kafka: tests/contract/test_jvm.py has what is right.
 *
 * <p>Arguments: a topic's id, then records in base64 as {@code name=record}; the test has what they are. Prints a line for each
 * case: its name, a tab, and the decision or the error.
 */
final class Decisions {
    private static final String SECRET = "hunter2";
    private static final String PARTITIONER = ModePartitioner.class.getName();
    private static final String INTERCEPTOR = ModeInterceptor.class.getName();
    private static final String LONG_MS = "30000";
    private static final Node NODE = new Node(0, "127.0.0.1", 1);

    private final String live;
    private final Map<String, byte[]> records = new HashMap<>();
    private int clusters;

    private Decisions(String[] arguments) {
        live = arguments[0];
        Stream.of(arguments).skip(1).map(each -> each.split("=", 2)).forEach(
            each -> records.put(each[0], Base64.getDecoder().decode(each[1])));
    }

    public static void main(String[] arguments) {
        Decisions decisions = new Decisions(arguments);
        new Replay().apply(("k".repeat(78) + "\n\u00e4" + "k".repeat(1_000)).getBytes(StandardCharsets.UTF_8), null);
        decisions.withViews();
        decisions.staleMetadata();
        decisions.withoutViews();
        decisions.tails();
        say("batches whose first record is placed twice", decisions::placedTwice);
        say("batches that begin after a record with a partition", decisions::afterNamed);
        keyless();
        System.exit(0);
    }

    private void withViews() {
        Case shrunk = new Case(PARTITIONER, "", "block");
        shrunk.publish("before");
        say("shrunk", () -> shrunk.partition("orders", live));
        say("metadata without ids", () -> shrunk.partition("orders", Uuid.ZERO_UUID.toString()));
        say("created again", () -> shrunk.partition("orders", Uuid.randomUuid().toString()));
        shrunk.publish("after");
        say("replaced, partitioner alone", () -> shrunk.partition("orders", live));
        say("replaced, then created again", () -> shrunk.partition("orders", Uuid.randomUuid().toString()));

        Case both = new Case(PARTITIONER, INTERCEPTOR, "block");
        both.publish("after");
        say("replaced", () -> both.send("orders", null));
        say("renamed behind the interceptor", () -> both.partition("orders", live));

        Case race = new Case(PARTITIONER, INTERCEPTOR, "block");
        race.publish("before");
        say("before the switch", () -> race.send("orders", null));
        race.publish("after");
        Case other = new Case(PARTITIONER, "", "block");
        other.partitioner.tail = race.tail;
        say("another producer of this thread after the switch", () -> other.partition("orders", live));
        say("switched between interceptor and partitioner", () -> race.partition("orders", live));
        say("after the switch", () -> race.send("orders", null));
    }

    /** The metadata has the id and the partitions of a topic that was deleted; another topic has its name. */
    private void staleMetadata() {
        for (String end : List.of("to 5", "to 12")) {
            int had = end.equals("to 5") ? 12 : 4;
            Case kept = new Case(PARTITIONER, "", "block");
            kept.publish("to interim", end);
            say("name kept, " + end, () -> kept.partition("orders", live, had));
            kept.remove(live);
            say("alias ended, " + end, () -> kept.partition("orders", live, had));
            kept.publish("next");
            say("new topic shrunk, " + end, () -> kept.partition("orders", live, had));
        }
        Case followed = new Case(PARTITIONER, "", "block");
        followed.publish("before");
        followed.publish("next");
        say("metadata of a past id", () -> followed.partition("orders", live));
        followed.replay = new Replay();
        followed.publish("next", "before");
        say("metadata of a past id, log read again", () -> followed.partition("orders", live));
        Case another = new Case(PARTITIONER, "", "block");
        another.publish("before");
        another.replay = new Replay();
        another.publish("next", "before");
        say("next id in another reading", () -> another.partition("orders", live));
        Case opened = new Case(PARTITIONER, "", "block");
        opened.publish("before");
        opened.publish("next open");
        say("metadata of a past id, all open", () -> opened.partition("orders", live));
        Supplier<int[]> writable = () -> opened.tail.views.writable("orders", Uuid.fromString(live));
        say("partitions by a past id are computed once", () -> Boolean.toString(writable.get() == writable.get()));
        Case removed = new Case(PARTITIONER, "", "block");
        removed.publish("before", "next");
        say("two ids in the first reading", () -> removed.partition("orders", live));
        removed.remove(live);
        say("metadata of a removed id", () -> removed.partition("orders", live));
        removed.publish("before");
        say("recorded once more", () -> removed.partition("orders", live));
    }

    private void withoutViews() {
        for (String onUnknown : List.of("block", "error", "writable")) {
            Case alone = new Case(PARTITIONER, "", onUnknown);
            say(onUnknown, () -> alone.partition("orders", Uuid.randomUuid().toString()));
        }
        Case both = new Case(PARTITIONER, INTERCEPTOR, "block");
        say("no view, left to the partitioner", () -> both.send("orders", null));
        say("no view, refused by the partitioner", () -> both.partition("orders", Uuid.randomUuid().toString()));
        say("no view, named partition", () -> both.send("orders", 3));
        say("no view, another partitioner", () -> new Case("", INTERCEPTOR, "block").send("orders", null));
        Case waiting = new Case(PARTITIONER, "", "block", LONG_MS);
        Thread.currentThread().interrupt();
        say("no view, interrupted", () -> waiting.partition("orders", Uuid.randomUuid().toString()));
        Thread.interrupted();
        new Thread(() -> waiting.publish("before")).start();
        say("view after an interrupted wait", () -> waiting.partition("orders", live));
        say("unknown setting", () -> new Settings(Map.of("modeaware.on.unknwon", "block")).toString());
    }

    private void tails() {
        Map<String, Object> configs = configs(PARTITIONER, INTERCEPTOR, "block");
        List<PlugIn> users = Stream.generate(ModePartitioner::new).limit(24).collect(Collectors.toList());
        users.forEach(each -> each.configure(configs));
        say("tails of 24 producers", () -> Long.toString(users.stream().map(each -> each.tail).distinct().count()));
        Tail tail = users.get(0).tail;
        users.forEach(PlugIn::close);
        users.forEach(PlugIn::close);
        say("tail after the last close", () -> tail.isWanted() + " " + (Tail.acquire(new Settings(configs)) == tail));
        Map<String, Object> consumer = new Settings(configs).consumer();
        Set<String> others = Set.of("interceptor.classes", "partitioner.class", "client.id", "key.serializer", "acks");
        say("tail after an unexpected error", Decisions::troubled);
        say("others in the consumer", () -> Boolean.toString(others.stream().anyMatch(consumer::containsKey)));
        say("security in the consumer", () -> Boolean.toString(consumer.containsKey("sasl.jaas.config")));
    }

    private static String troubled() {
        InheritableThreadLocal<String> local = new InheritableThreadLocal<>();
        local.set("of the caller");
        AtomicReference<String> inherited = new AtomicReference<>();
        Tail tail = new Tail(Map.of(), "modes", settings -> {
            inherited.set(local.get());
            throw new IllegalStateException("bad");
        });
        Thread.currentThread().setContextClassLoader(new ClassLoader() { }); // of an application that may be unloaded
        Thread thread = tail.start();
        ClassLoader own = Tail.class.getClassLoader();
        Thread.currentThread().setContextClassLoader(own);
        say("class loader of the tail", () -> Boolean.toString(thread.getContextClassLoader() == own));
        while (thread.isAlive() && !tail.trouble.contains("bad")) {
            Thread.onSpinWait();
        }
        say("thread-local of the tail", () -> inherited.get());
        return thread.isAlive() + " " + tail.trouble;
    }

    /** How many of 50 batches have room for two records, although the first one of each is placed twice. */
    private String placedTwice() {
        Case each = new Case(PARTITIONER, "", "writable");
        Cluster cluster = each.cluster("orders", Uuid.randomUuid().toString(), 12);
        int whole = 0;
        for (int batch = 0; batch < 50; batch++) {
            int first = each.keyless(cluster);
            each.partitioner.onNewBatch("orders", cluster, first);
            whole += each.keyless(cluster) == first & each.keyless(cluster) == first ? 1 : 0;
        }
        return Integer.toString(whole);
    }

    /** Whether large records without a key go to more than one partition, though each follows a record that names one. */
    private String afterNamed() {
        Case each = new Case(PARTITIONER, "", "writable");
        Cluster cluster = each.cluster("orders", Uuid.randomUuid().toString(), 12);
        Set<Integer> used = new HashSet<>();
        for (int batch = 0; batch < 400; batch++) {
            if (batch == 200) {
                used.clear(); // by now each partition was drawn
            }
            each.partitioner.onNewBatch("orders", cluster, 0);
            used.add(each.keyless(cluster));
        }
        return Boolean.toString(used.size() > 1);
    }

    /** How many records without a key go to one partition in a row. */
    private static void keyless() {
        for (int bytes : new int[] {100, 1_000, 8_000, 20_000}) {
            StickyIndex sticky = new StickyIndex(16_384, 12, bytes, index -> true);
            int count = 1;
            while (sticky.takes(12, bytes)) {
                count++;
            }
            String records = Integer.toString(count);
            say("keyless records of " + bytes + " bytes", () -> records);
        }
    }

    private Map<String, Object> configs(String partitioner, String interceptor, String onUnknown) {
        return Map.ofEntries(
            Map.entry("bootstrap.servers", "127.0.0.1:1"), Map.entry("client.id", "case-" + ++clusters),
            Map.entry("modeaware.mode.log.topic", "modes-" + clusters), Map.entry("modeaware.view.timeout.ms", "50"),
            Map.entry("modeaware.on.unknown", onUnknown), Map.entry("partitioner.class", partitioner),
            Map.entry("interceptor.classes", interceptor), Map.entry("key.serializer", "a.Serializer"),
            Map.entry("acks", "all"), Map.entry("security.protocol", "SASL_PLAINTEXT"),
            Map.entry("sasl.mechanism", "PLAIN"), Map.entry("sasl.jaas.config",
                "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"u\" password=\"" + SECRET
                + "\";"));
    }

    private static void say(String name, Supplier<String> decision) {
        String said;
        try {
            said = decision.get();
        } catch (RuntimeException | Error error) {
            said = error.getClass().getSimpleName();
        }
        System.out.println(name + "\t" + said);
    }

    /** The plug-ins of one producer. */
    private final class Case {
        private final ModePartitioner partitioner = new ModePartitioner();
        private final ModeInterceptor<String, String> interceptor = new ModeInterceptor<>();
        private final Tail tail;
        private Replay replay = new Replay();

        Case(String partitionerClass, String interceptorClass, String onUnknown) {
            this(partitionerClass, interceptorClass, onUnknown, "50");
        }

        Case(String partitionerClass, String interceptorClass, String onUnknown, String timeoutMs) {
            Map<String, Object> configs = new HashMap<>(configs(partitionerClass, interceptorClass, onUnknown));
            configs.put("modeaware.view.timeout.ms", timeoutMs);
            partitioner.configure(configs);
            interceptor.configure(configs);
            tail = Tail.acquire(new Settings(configs));
        }

        void publish(String... names) {
            Stream.of(names).map(records::get).forEach(each -> apply(new TopicView(each).topicId, each));
            tail.publish(replay);
        }

        void remove(String id) {
            apply(id, null);
            tail.publish(replay);
        }

        private void apply(String id, byte[] record) {
            replay.apply(id.getBytes(StandardCharsets.UTF_8), record);
        }

        String send(String topic, Integer partition) {
            return interceptor.onSend(new ProducerRecord<>(topic, partition, "k", "v")).topic();
        }

        Cluster cluster(String topic, String topicId, int count) {
            List<PartitionInfo> all = IntStream.range(0, count).mapToObj(each ->
                new PartitionInfo(topic, each, NODE, new Node[] {NODE}, new Node[] {NODE})).collect(
                Collectors.toList());
            return new Cluster("c", List.of(NODE), all, Set.of(), Set.of(), Set.of(), NODE,
                Map.of(topic, Uuid.fromString(topicId)));
        }

        int keyless(Cluster cluster) {
            return partitioner.partition("orders", null, null, null, new byte[8_000], cluster);
        }

        String partition(String topic, String topicId) {
            return partition(topic, topicId, 12);
        }

        String partition(String topic, String topicId, int count) {
            byte[] key = "key-3".getBytes(StandardCharsets.UTF_8);
            return topic + " " + partitioner.partition(topic, "key-3", key, null, null, cluster(topic, topicId, count));
        }
    }
}
