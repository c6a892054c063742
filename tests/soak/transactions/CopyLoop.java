// Consume, transform, produce with Kafka's Java clients: a process that a soak kills.
//
// java -cp JARS CopyLoop.java SERVERS GROUP SOURCE TARGET TRANSACTIONAL_ID [INSTANCE]
//
// The process prints the same lines as librdkafka_copy.py, and ends with its standard input:
// "committed RECORDS", "aborted WHY" (it continues from the committed positions), "fenced WHY" (its
// producer must not go on: the process ends with code 3).

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidPidMappingException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.InvalidTxnStateException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class CopyLoop {
    static final int FENCED = 3;
    static final int MOST_RECORDS = 300;
    static final long COMMIT_INTERVAL_MS = 200;

    static KafkaProducer<byte[], byte[]> producer;
    static KafkaConsumer<byte[], byte[]> consumer;
    static String source;
    static String target;
    // The group metadata of the present assignment; null: commit nothing.
    static ConsumerGroupMetadata member;
    static int assignments;

    public static void main(String[] words) {
        Thread watcher = new Thread(CopyLoop::endWithInput);
        watcher.setDaemon(true);
        watcher.start();
        source = words[2];
        target = words[3];
        producer = new KafkaProducer<>(
            producing(words[0], words[4]), new ByteArraySerializer(), new ByteArraySerializer());
        consumer = new KafkaConsumer<>(
            consuming(words[0], words[1], words.length > 5 ? words[5] : null),
            new ByteArrayDeserializer(), new ByteArrayDeserializer());
        again(() -> producer.initTransactions());
        consumer.subscribe(List.of(source), new Assignments());
        say("ready");
        while (true) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(500));
            if (!records.isEmpty() && member != null) {
                transaction(records);
            }
        }
    }

    static Properties client(String servers) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", servers);
        properties.put("reconnect.backoff.max.ms", "500");
        // A broker may be suspended while others take over its partitions.
        properties.put("request.timeout.ms", "6000");
        properties.put("metadata.max.age.ms", "1000");
        return properties;
    }

    static Properties producing(String servers, String transactionalId) {
        Properties properties = client(servers);
        properties.put("transactional.id", transactionalId);
        properties.put("transaction.timeout.ms", "8000");
        properties.put("max.block.ms", "10000");
        return properties;
    }

    static Properties consuming(String servers, String group, String instance) {
        Properties properties = client(servers);
        properties.put("group.id", group);
        if (instance != null) {
            properties.put("group.instance.id", instance);
        }
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        properties.put("isolation.level", "read_committed");
        properties.put("session.timeout.ms", "3000");
        properties.put("heartbeat.interval.ms", "500");
        properties.put("max.poll.records", "100");
        return properties;
    }

    static class Assignments implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            assignments++;
            member = consumer.groupMetadata();
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            assignments++;
            member = null;
        }
    }

    // Copies records until it is time to commit, beginning with the first ones.
    static void transaction(ConsumerRecords<byte[], byte[]> first) {
        int began = assignments;
        int copied = 0;
        long endMs = System.nanoTime() / 1_000_000 + COMMIT_INTERVAL_MS;
        ConsumerRecords<byte[], byte[]> records = first;
        Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
        try {
            producer.beginTransaction();
            while (true) {
                copy(records, positions);
                copied += records.count();
                long leftMs = endMs - System.nanoTime() / 1_000_000;
                if (leftMs <= 0 || copied >= MOST_RECORDS) {
                    break;
                }
                records = consumer.poll(Duration.ofMillis(leftMs));
                if (assignments != began) {
                    goBack(new KafkaException("the partitions are assigned anew"));
                    return;
                }
            }
            again(() -> producer.sendOffsetsToTransaction(positions, member));
            again(() -> producer.commitTransaction());
        } catch (KafkaException error) {
            goBack(error);
            return;
        }
        say("committed " + copied);
    }

    static void copy(
        ConsumerRecords<byte[], byte[]> records, Map<TopicPartition, OffsetAndMetadata> positions) {
        for (ConsumerRecord<byte[], byte[]> each : records) {
            String number = new String(each.value(), StandardCharsets.US_ASCII);
            String value = each.partition() + " " + each.offset() + " " + number;
            producer.send(new ProducerRecord<>(
                target, each.key(), value.getBytes(StandardCharsets.US_ASCII)));
            positions.put(
                new TopicPartition(each.topic(), each.partition()),
                new OffsetAndMetadata(each.offset() + 1));
        }
    }

    // Aborts, and continues from the committed positions.
    static void goBack(KafkaException why) {
        endIfFatal(why);
        try {
            again(() -> producer.abortTransaction());
        } catch (KafkaException error) {
            endIfFatal(error);
            throw error;
        }
        say("aborted " + why);
        Set<TopicPartition> assigned = consumer.assignment();
        Map<TopicPartition, OffsetAndMetadata> found = new HashMap<>();
        again(() -> found.putAll(consumer.committed(assigned)));
        for (TopicPartition each : assigned) {
            OffsetAndMetadata committed = found.get(each);
            consumer.seek(each, committed == null ? 0 : committed.offset());
        }
    }

    // Repeats a call whose response was late: the client continues the same request.
    static void again(Runnable call) {
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException error) {
                // The broker is down.
            } catch (RetriableException error) {
                // The broker has just started, or the coordinator has moved.
            }
        }
    }

    static void endIfFatal(KafkaException error) {
        for (Throwable each = error; each != null; each = each.getCause()) {
            if (each instanceof ProducerFencedException
                || each instanceof InvalidProducerEpochException
                || each instanceof OutOfOrderSequenceException
                // The transaction was open for too long, and the broker has aborted it.
                || each instanceof InvalidTxnStateException
                || each instanceof InvalidPidMappingException) {
                say("fenced " + error);
                Runtime.getRuntime().halt(FENCED);
            }
        }
    }

    static void say(String line) {
        System.out.println(line.replace('\n', ' '));
        System.out.flush();
    }

    static void endWithInput() {
        try {
            System.in.readAllBytes();
        } catch (java.io.IOException error) {
            // An error counts as the end of the input.
        }
        Runtime.getRuntime().halt(0);
    }
}
