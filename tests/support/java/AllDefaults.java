// Kafka's Java clients with no setting but those that they cannot do without.
//
// java -cp JARS AllDefaults.java SERVERS
//
// Producer, two consumers of a group, a producer with a transactional id and the admin client: each
// line is a step and what it found.

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class AllDefaults {
    static final String TOPIC = "defaults";
    static final String GROUP = "readers";
    static final int PARTITIONS = 4;
    static final int RECORDS = 100;
    static final int IN_A_TRANSACTION = 10;
    static final Duration POLL = Duration.ofMillis(100);
    static final long DEADLINE_NS = System.nanoTime() + 60_000_000_000L;

    static String servers;

    public static void main(String[] words) throws Exception {
        servers = words[0];
        try (Admin admin = Admin.create(settings())) {
            topic(admin);
            group(admin);
            transactions();
            offsets(admin);
            cluster(admin);
            changes(admin);
            deletions(admin);
        }
    }

    // --- topic ----------------------------------------------------------------------------------
    static void topic(Admin admin) throws Exception {
        NewTopic plain = new NewTopic("plain", Optional.empty(), Optional.empty());
        NewTopic wide = new NewTopic(TOPIC, Optional.of(PARTITIONS), Optional.empty());
        admin.createTopics(List.of(plain, wide)).all().get();
        say("topics", new TreeSet<>(admin.listTopics().names().get()));
        say("partitions", admin.describeTopics(List.of(TOPIC)).allTopicNames().get()
            .get(TOPIC).partitions().size());
    }

    // --- a group --------------------------------------------------------------------------------
    static void group(Admin admin) throws Exception {
        List<String> found = new ArrayList<>();
        try (KafkaConsumer<String, String> one = consumer("group.id", GROUP);
            KafkaConsumer<String, String> other = consumer("group.id", GROUP)) {
            one.subscribe(List.of(TOPIC));
            while (one.assignment().size() < PARTITIONS) {
                poll(one, found);
            }
            say("alone", one.assignment().size());
            other.subscribe(List.of(TOPIC));
            while (one.assignment().size() != 2 || other.assignment().size() != 2) {
                poll(one, found);
                poll(other, found);
            }
            say("together", one.assignment().size() + " " + other.assignment().size());
            // Where nothing is committed a consumer begins at the end: it has to know the end.
            one.assignment().forEach(one::position);
            other.assignment().forEach(other::position);
            send();
            while (found.size() < RECORDS) {
                poll(one, found);
                poll(other, found);
            }
            ConsumerGroupDescription group =
                admin.describeConsumerGroups(List.of(GROUP)).all().get().get(GROUP);
            say("assignor", group.partitionAssignor() + " " + group.members().size());
        }
        say("read", new TreeSet<>(found).size() + " of " + found.size());
    }

    static void send() throws Exception {
        Map<Integer, Integer> written = new TreeMap<>();
        try (KafkaProducer<String, String> producer = producer()) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int number = 0; number < RECORDS; number++) {
                sent.add(producer.send(new ProducerRecord<>(TOPIC, "key " + number, "" + number)));
            }
            for (Future<RecordMetadata> each : sent) {
                written.merge(each.get().partition(), 1, Integer::sum);
            }
        }
        say("written", written.values().stream().mapToInt(Integer::intValue).sum());
    }

    // --- transactions ---------------------------------------------------------------------------
    static void transactions() {
        TopicPartition partition = new TopicPartition("plain", 0);
        try (KafkaProducer<String, String> producer = producer("transactional.id", "t")) {
            producer.initTransactions();
            for (boolean isCommitted : new boolean[] {true, false}) {
                producer.beginTransaction();
                for (int number = 0; number < IN_A_TRANSACTION; number++) {
                    producer.send(new ProducerRecord<>("plain", "" + isCommitted));
                }
                producer.sendOffsetsToTransaction(
                    Map.of(partition, new OffsetAndMetadata(isCommitted ? 1 : 2)),
                    new ConsumerGroupMetadata("positions"));
                // What is not sent yet an abort forgets.
                producer.flush();
                if (isCommitted) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
        }
        say("all", readToEnd());
        say("committed", readToEnd("isolation.level", "read_committed"));
        try (KafkaConsumer<String, String> consumer = consumer("group.id", "positions")) {
            say("position", consumer.committed(Set.of(partition)).get(partition).offset());
        }
    }

    // The records of each value.
    static Map<String, Integer> readToEnd(String... further) {
        Map<String, Integer> found = new TreeMap<>();
        TopicPartition partition = new TopicPartition("plain", 0);
        try (KafkaConsumer<String, String> consumer = consumer(further)) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            List<String> values = new ArrayList<>();
            while (consumer.position(partition) < end) {
                poll(consumer, values);
            }
            values.forEach(each -> found.merge(each, 1, Integer::sum));
        }
        return found;
    }

    // --- admin ----------------------------------------------------------------------------------
    static void offsets(Admin admin) throws Exception {
        Map<TopicPartition, OffsetSpec> latest = new HashMap<>();
        for (int number = 0; number < PARTITIONS; number++) {
            latest.put(new TopicPartition(TOPIC, number), OffsetSpec.latest());
        }
        say("ends", admin.listOffsets(latest).all().get().values().stream()
            .mapToLong(each -> each.offset()).sum());
        say("positions", admin.listConsumerGroupOffsets(GROUP).partitionsToOffsetAndMetadata().get()
            .values().stream().mapToLong(each -> each.offset()).sum());
        TopicPartition plain = new TopicPartition("plain", 0);
        say("producers", admin.describeProducers(List.of(plain)).partitionResult(plain).get()
            .activeProducers().size());
        say("transactions", admin.listTransactions().all().get().stream()
            .map(each -> each.transactionalId() + " " + each.state()).toList());
        say("transaction", admin.describeTransactions(List.of("t")).all().get().get("t").state());
    }

    static void cluster(Admin admin) throws Exception {
        say("nodes", admin.describeCluster().nodes().get().size());
        say("directories", admin.describeLogDirs(List.of(0)).allDescriptions().get().get(0).size());
        say("features", new TreeMap<>(
            admin.describeFeatures().featureMetadata().get().finalizedFeatures()).keySet());
    }

    static void changes(Admin admin) throws Exception {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, TOPIC);
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "0");
        admin.incrementalAlterConfigs(Map.of(topic, List.of(new AlterConfigOp(
            new ConfigEntry("retention.ms", "3600000"), AlterConfigOp.OpType.SET)))).all().get();
        var configs = admin.describeConfigs(List.of(topic, broker)).all().get();
        say("retention", configs.get(topic).get("retention.ms").value());
        say("of the broker", configs.get(broker).get("message.max.bytes").value());
        admin.createPartitions(Map.of(TOPIC, NewPartitions.increaseTo(5))).all().get();
        say("increased", admin.describeTopics(List.of(TOPIC)).allTopicNames().get()
            .get(TOPIC).partitions().size());
    }

    static void deletions(Admin admin) throws Exception {
        TopicPartition plain = new TopicPartition("plain", 0);
        say("low watermark", admin.deleteRecords(Map.of(plain, RecordsToDelete.beforeOffset(5)))
            .lowWatermarks().get(plain).get().lowWatermark());
        admin.deleteConsumerGroups(List.of(GROUP)).all().get();
        admin.deleteTopics(List.of(TOPIC)).all().get();
        say("left", new TreeSet<>(admin.listTopics().names().get()));
    }

    // --- clients --------------------------------------------------------------------------------
    static void poll(KafkaConsumer<String, String> consumer, List<String> values) {
        if (System.nanoTime() > DEADLINE_NS) {
            throw new IllegalStateException("it takes too long");
        }
        for (ConsumerRecord<String, String> each : consumer.poll(POLL)) {
            values.add(each.value());
        }
    }

    static Map<String, Object> settings(String... further) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", servers));
        for (int at = 0; at < further.length; at += 2) {
            settings.put(further[at], further[at + 1]);
        }
        return settings;
    }

    static KafkaProducer<String, String> producer(String... further) {
        return new KafkaProducer<>(
            settings(further), new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(String... further) {
        return new KafkaConsumer<>(
            settings(further), new StringDeserializer(), new StringDeserializer());
    }

    static void say(String step, Object found) {
        System.out.println(step + ": " + found);
    }
}
