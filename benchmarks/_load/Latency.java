// Measures the time from a record's due time until a consumer has it, with Kafka's Java clients.
//
// java -cp JARS Latency.java
//
// Each line of the standard input is a run: SERVERS TOPIC RECORDS_A_SECOND UNCOUNTED RECORDS. The
// topic must be empty and have one partition. The answer is a line of JSON: the quantiles of the
// records behind the first UNCOUNTED, and the clients' CPU time. A record that is sent late, because
// the producer blocks or was not woken in time, counts from its due time. Each record must come
// once, in its order.

import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Properties;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Latency {
    static final int VALUE_BYTES = 200;
    static final long LEAD_NS = 100_000_000;
    static final long LEFT_NS = 30_000_000_000L;
    static final Duration POLL = Duration.ofMillis(100);
    // The last step of the quantiles 1 - 10 ** -(step / 10) that a run reports.
    static final int STEPS = 40;

    static final OperatingSystemMXBean SYSTEM =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    final String topic;
    final long perSecond;
    final int uncounted;
    final int records;
    // State of the sender, read by another thread.
    volatile Exception failure;
    volatile long startNs;
    volatile long latestNs;

    Latency(String[] words) {
        topic = words[1];
        perSecond = Long.parseLong(words[2]);
        uncounted = Integer.parseInt(words[3]);
        records = Integer.parseInt(words[4]);
    }

    public static void main(String[] none) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            String answer;
            try {
                answer = "{\"measured\": " + new Latency(words).run(words[0]) + "}";
            } catch (Exception error) {
                String text = error.toString().replaceAll("[\"\\\\\\p{Cntrl}]", " ");
                answer = "{\"error\": \"" + text + "\"}";
            }
            System.out.println(answer);
            System.out.flush();
        }
    }

    static Properties settings(String servers) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        return settings;
    }

    String run(String servers) throws Exception {
        Properties producing = settings(servers);
        // A batch waits only for the responses to earlier ones: the default wait of 5 ms would be
        // most of the measured time.
        producing.put("linger.ms", "0");
        TopicPartition partition = new TopicPartition(topic, 0);
        long[] found = new long[records];
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                settings(servers), new ByteArrayDeserializer(), new ByteArrayDeserializer());
            KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                producing, new ByteArraySerializer(), new ByteArraySerializer())) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            consumer.position(partition);
            producer.partitionsFor(topic);
            System.gc();
            long cpuNs = SYSTEM.getProcessCpuTime();
            startNs = System.nanoTime() + LEAD_NS;
            Thread sender = new Thread(() -> send(producer), "sender");
            sender.start();
            read(consumer, found);
            long endNs = System.nanoTime();
            cpuNs = SYSTEM.getProcessCpuTime() - cpuNs;
            sender.join();
            if (failure != null) {
                throw failure;
            }
            return figures(found, cpuNs, endNs - startNs);
        }
    }

    long dueNs(int number) {
        return startNs + (long) number * 1_000_000_000L / perSecond;
    }

    // --- the sender -----------------------------------------------------------------------------
    void send(KafkaProducer<byte[], byte[]> producer) {
        byte[] value = new byte[VALUE_BYTES];
        ByteBuffer number = ByteBuffer.wrap(value);
        try {
            for (int sent = 0; sent < uncounted + records && failure == null; sent++) {
                long dueNs = dueNs(sent);
                long leftNs = dueNs - System.nanoTime();
                while (leftNs > 0) {
                    LockSupport.parkNanos(leftNs);
                    leftNs = dueNs - System.nanoTime();
                }
                if (sent >= uncounted) {
                    latestNs = Math.max(latestNs, -leftNs);
                }
                // The producer copies the value before it returns.
                number.putInt(0, sent);
                producer.send(new ProducerRecord<>(topic, 0, null, value), (where, error) -> {
                    if (error != null) {
                        failure = error;
                    }
                });
            }
        } catch (RuntimeException error) {
            failure = error;
        }
    }

    // --- the reader -----------------------------------------------------------------------------
    void read(KafkaConsumer<byte[], byte[]> consumer, long[] found) throws Exception {
        int expected = 0;
        long deadlineNs = dueNs(uncounted + records) + LEFT_NS;
        while (expected < uncounted + records) {
            ConsumerRecords<byte[], byte[]> polled = consumer.poll(POLL);
            long nowNs = System.nanoTime();
            for (ConsumerRecord<byte[], byte[]> each : polled) {
                int number = ByteBuffer.wrap(each.value()).getInt();
                if (number != expected || each.value().length != VALUE_BYTES) {
                    failure = new IllegalStateException(
                        "record " + number + " came where " + expected + " was expected");
                }
                if (number >= uncounted) {
                    found[expected - uncounted] = nowNs - dueNs(number);
                }
                expected++;
            }
            if (nowNs > deadlineNs && failure == null) {
                failure = new IllegalStateException(
                    expected + " of " + (uncounted + records) + " records came in time");
            }
            if (failure != null) {
                throw failure;
            }
        }
    }

    // --- the answer -----------------------------------------------------------------------------
    String figures(long[] found, long cpuNs, long tookNs) {
        Arrays.sort(found);
        StringBuilder quantiles = new StringBuilder();
        for (int step = 0; step <= STEPS; step++) {
            double quantile = 1 - Math.pow(10, -step / 10.0);
            quantiles.append(step == 0 ? "" : ", ").append(millis(at(found, quantile)));
        }
        return String.format(
            Locale.ROOT,
            "{\"p50_ms\": %s, \"p99_ms\": %s, \"p999_ms\": %s, \"worst_ms\": %s,"
                + " \"quantiles_ms\": [%s], \"late_ms\": %s, \"client_cores\": %.3f}",
            millis(at(found, 0.5)), millis(at(found, 0.99)), millis(at(found, 0.999)),
            millis(found[found.length - 1]), quantiles, millis(latestNs),
            (double) cpuNs / tookNs);
    }

    static long at(long[] sorted, double quantile) {
        int place = (int) Math.ceil(quantile * sorted.length) - 1;
        return sorted[Math.max(0, Math.min(place, sorted.length - 1))];
    }

    static String millis(long nanos) {
        return String.format(Locale.ROOT, "%.4f", nanos / 1e6);
    }
}
