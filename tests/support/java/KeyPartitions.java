import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;

import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.utils.Utils;

/**
 * What Kafka's Java client makes of keys. Big-endian, from standard input to standard output.
 *
 * <p>In: the number of keys and the highest count (ints), the length of each key (ints), the keys' bytes.
 *
 * <p>Out: of each key Utils.murmur2, then its partition by the producer's own rule, key i by i % highest + 1 partitions
 * (ints); then for each count from 1 to the highest the sum of partition * (2 * i + 1) over all keys (longs).
 */
class KeyPartitions {
    public static void main(String[] arguments) throws IOException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 20));
        int[] lengths = new int[in.readInt()];
        int highest = in.readInt();
        for (int i = 0; i < lengths.length; i++)
            lengths[i] = in.readInt();
        int[] hashes = new int[lengths.length];
        int[] partitions = new int[lengths.length];
        for (int i = 0; i < lengths.length; i++) {
            byte[] key = new byte[lengths[i]];
            in.readFully(key);
            hashes[i] = Utils.murmur2(key);
            partitions[i] = BuiltInPartitioner.partitionForKey(key, i % highest + 1);
        }
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 20));
        for (int hash : hashes)
            out.writeInt(hash);
        for (int partition : partitions)
            out.writeInt(partition);
        for (int count = 1; count <= highest; count++) {
            long sum = 0;
            for (int i = 0; i < hashes.length; i++)
                sum += (Utils.toPositive(hashes[i]) % count) * (2L * i + 1);
            out.writeLong(sum);
        }
        out.flush();
    }
}
