package modeaware;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.Cluster;

/** What the plug-ins make of keys and of mode logs, without a Kafka: tests/contract/test_jvm.py compares it with Python. */
final class Answers {
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.US_ASCII);

    private Answers() { }

    public static void main(String[] arguments) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        if (arguments[0].equals("keys")) {
            keys(in, bytes(arguments[1]), Arrays.stream(arguments).skip(2).mapToInt(Integer::parseInt).toArray());
        } else {
            views(in);
        }
        OUT.flush();
    }

    /**
     * A key a line ({@code -}: none, {@code ~}: an empty one): where each hash puts it among each count, then where the
     * partitioner with each hash puts it in the topic of {@code record}.
     */
    private static void keys(BufferedReader in, byte[] record, int[] counts) throws IOException {
        TopicView view = new TopicView(record);
        Replay replay = new Replay();
        replay.apply(view.topicId.getBytes(StandardCharsets.UTF_8), record);
        List<ModePartitioner> partitioners = new ArrayList<>();
        for (Hash hash : Hash.values()) {
            ModePartitioner partitioner = new ModePartitioner();
            partitioner.configure(Map.of("bootstrap.servers", "127.0.0.1:1", "modeaware.partitioner", hash.name()));
            partitioner.tail.publish(replay);
            partitioners.add(partitioner);
        }
        Cluster cluster = new Cluster("c", List.of(), List.of(), Set.of(), Set.of(), Set.of(), null,
            Map.of(view.topic, view.uuid));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            List<String> found = new ArrayList<>();
            byte[] key = bytes(line);
            for (Hash hash : Hash.values()) {
                for (int count : counts) {
                    found.add(Integer.toString(hash.hashes(key) ? hash.index(key, count) : -1));
                }
            }
            for (Hash hash : Hash.values()) {
                int partition = hash.hashes(key)
                    ? partitioners.get(hash.ordinal()).partition(view.topic, key, key, null, null, cluster) : -1;
                found.add(Integer.toString(partition));
            }
            OUT.println(String.join(" ", found));
        }
    }

    /**
     * A step a line: {@code begin}: the log is read from its beginning; {@code end}: its end is reached; {@code new}:
     * another cluster; else a record, its key and its value. Prints the views in force after each.
     */
    private static void views(BufferedReader in) throws IOException {
        Views views = Views.NONE;
        Replay replay = new Replay();
        boolean follows = false;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            if (line.equals("new")) {
                views = Views.NONE;
                follows = false;
            } else if (line.equals("begin")) {
                replay = new Replay();
                follows = false;
            } else if (line.equals("end")) {
                follows = true;
            } else {
                String[] record = line.split(" ");
                replay.apply(bytes(record[0]), bytes(record[1]));
            }
            views = follows ? views.after(replay) : views;
            OUT.println(text(views));
        }
    }

    private static String text(Views views) {
        List<String> found = new ArrayList<>();
        for (String topic : new TreeSet<>(views.byName.keySet())) {
            TopicView view = views.byName.get(topic);
            String writable = view.writable == null ? "all" : Arrays.toString(view.writable);
            found.add(String.join("|", quoted(topic), quoted(view.topicId), view.controllerEpoch + "." + view.epoch,
                writable.replace(" ", ""), quoted(view.newTopic), quoted(view.newTopicId),
                quoted(views.writtenTopic(topic))));
        }
        return String.join(" ", found);
    }

    private static String quoted(String text) {
        StringBuilder found = new StringBuilder();
        for (char c : (text == null ? "-" : text).toCharArray()) {
            found.append(c > ' ' && c < 127 && c != '|' && c != '\\' ? String.valueOf(c) : String.format("\\u%04x", (int) c));
        }
        return found.toString();
    }

    private static byte[] bytes(String text) {
        return text.equals("-") ? null : Base64.getDecoder().decode(text.replace("~", ""));
    }
}
