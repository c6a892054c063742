import java.io.BufferedReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;

import kafka.api.LeaderAndIsr;
import kafka.cluster.Broker;
import kafka.cluster.EndPoint;
import kafka.controller.LeaderIsrAndControllerEpoch;
import kafka.controller.ReplicaAssignment;
import kafka.zk.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.feature.Features;
import org.apache.kafka.common.feature.SupportedVersionRange;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.common.ProducerIdsBlock;
import org.apache.zookeeper.data.Stat;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Kafka's own classes for znodes. Without an argument it prints the znodes that a small cluster hardly ever shows: a
 * path and the bytes in hex on each line. With a file, whose lines are a kind of znode and its bytes in hex, it prints
 * for each line what Kafka reads there, or ! and its exception.
 */
public class JavaZnodes {
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    private static final TopicPartition ORDERS_0 = new TopicPartition("orders", 0);
    private static final TopicPartition FLIGHTS_3 = new TopicPartition("flights", 3);

    public static void main(String[] args) throws Exception {
        if (args.length == 0) {
            writeBrokers();
            writeTopics();
            writeAdmin();
            writeCluster();
        } else {
            read(Path.of(args[0]));
        }
        OUT.flush();
    }

    private static void writeBrokers() {
        EndPoint ssl = new EndPoint("kafka.example", 9093, new ListenerName("SSL"), SecurityProtocol.SSL);
        EndPoint plain = new EndPoint("::1", 9092, new ListenerName("PLAINTEXT"), SecurityProtocol.PLAINTEXT);
        EndPoint anywhere = new EndPoint(null, 9092, new ListenerName("PLAINTEXT"), SecurityProtocol.PLAINTEXT);
        Features<SupportedVersionRange> none = Features.emptySupportedFeatures();
        Features<SupportedVersionRange> some = Features.supportedFeatures(
            Map.of("a.version", new SupportedVersionRange((short) 1, (short) 3)));
        List<EndPoint> both = List.of(plain, ssl);
        writeBroker(2, both, "rack-a", some, MetadataVersion.IBP_0_8_2, 1234);
        writeBroker(4, both, "rack-a", some, MetadataVersion.IBP_0_10_2_IV0, 1234);
        writeBroker(5, both, "rack-a", some, MetadataVersion.IBP_2_7_IV0, 1234);
        writeBroker(6, List.of(ssl), null, none, MetadataVersion.IBP_3_9_IV0, -1);
        String odd = "é\u0001\u001f\u007f\u2028\"/\\\t\ud83d\ude00";
        writeBroker(7, List.of(anywhere), odd, none, MetadataVersion.IBP_3_9_IV0, -1);
    }

    private static void writeBroker(int id, List<EndPoint> endpoints, String rack,
            Features<SupportedVersionRange> features, MetadataVersion version, int jmxPort) {
        Broker broker = new Broker(id, seq(endpoints), Option.apply(rack), features);
        write(BrokerIdZNode.path(id), BrokerInfo.apply(broker, version, jmxPort).toJsonBytes());
    }

    private static void writeTopics() {
        Map<TopicPartition, ReplicaAssignment> some = new LinkedHashMap<>();
        some.put(ORDERS_0, ReplicaAssignment.apply(ids(1, 2, 3), ids(3), ids(1)));
        some.put(new TopicPartition("orders", 1), ReplicaAssignment.apply(ids(1, 2), ids(), ids()));
        write(TopicZNode.path("orders"), TopicZNode.encode(Option.apply(new Uuid(1, 2)), scalaMap(some)));
        write(TopicZNode.path("no-id"), TopicZNode.encode(Option.empty(), scalaMap(some)));
        Map<TopicPartition, ReplicaAssignment> many = new LinkedHashMap<>();
        for (int i = 0; i < 14; i++) {
            many.put(new TopicPartition("many", i), ReplicaAssignment.apply(ids(1), ids(), ids()));
        }
        write(TopicZNode.path("many"), TopicZNode.encode(Option.apply(new Uuid(-1, -2)), scalaMap(many)));
        scala.collection.immutable.List<Object> one = CollectionConverters.asScala(List.<Object>of(1)).toList();
        LeaderAndIsr recovering = LeaderAndIsr.apply(1, one).newRecoveringLeaderAndIsr(1, one);
        write(TopicPartitionStateZNode.path(ORDERS_0),
            TopicPartitionStateZNode.encode(new LeaderIsrAndControllerEpoch(recovering, 5)));
    }

    private static void writeAdmin() {
        Map<TopicPartition, scala.collection.Seq<Object>> replicas = new LinkedHashMap<>();
        replicas.put(ORDERS_0, ids(1, 2));
        replicas.put(FLIGHTS_3, ids(2));
        Set<TopicPartition> both = new LinkedHashSet<>(replicas.keySet());
        write(ReassignPartitionsZNode.path(), ReassignPartitionsZNode.encode(scalaMap(replicas)));
        write(PreferredReplicaElectionZNode.path(),
            PreferredReplicaElectionZNode.encode(CollectionConverters.asScala(both).toSet()));
        write(IsrChangeNotificationSequenceZNode.path("0000000007"),
            IsrChangeNotificationSequenceZNode.encode(CollectionConverters.asScala(both).toSet()));
        write(LogDirEventNotificationSequenceZNode.path("0000000007"),
            LogDirEventNotificationSequenceZNode.encode(3));
    }

    private static void writeCluster() {
        Properties config = new Properties();
        config.put("b", "1");
        config.put("a", "\u0001\t\b\f\n\r/\\\"é");
        write(ConfigEntityZNode.path("topics", "orders"), ConfigEntityZNode.encode(config));
        write("/config/changes/config_change_0000000007",
            ConfigEntityChangeNotificationSequenceZNode.encode("users/<default>/clients/a%2A"));
        write(ControllerZNode.path(), ControllerZNode.encode(3, 1700000000123L, -1));
        write(ControllerEpochZNode.path(), ControllerEpochZNode.encode(12));
        write(ClusterIdZNode.path(), ClusterIdZNode.toJson("AAECAwQFBgcICQoLDA0ODw"));
        write(ProducerIdBlockZNode.path(),
            ProducerIdBlockZNode.generateProducerIdBlockJson(new ProducerIdsBlock(3, 1000, 1000)));
        write(ConsumerOffset.path("g", "orders", 3), ConsumerOffset.encode(1234567890123L));
    }

    private static void read(Path file) throws Exception {
        try (BufferedReader in = Files.newBufferedReader(file)) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                String[] words = line.split(" ", -1);
                String found;
                try {
                    found = String.valueOf(decoded(words[0], HexFormat.of().parseHex(words[1])));
                } catch (Exception error) {
                    found = "!" + error.getClass().getSimpleName();
                }
                OUT.println(found.replace('\n', ' '));
            }
        }
    }

    private static Object decoded(String kind, byte[] data) throws Exception {
        switch (kind) {
            case "broker": return BrokerIdZNode.decode(7, data).broker();
            case "topic": return TopicZNode.decode("t", data);
            case "state": return TopicPartitionStateZNode.decode(data, new Stat());
            case "controller": return ControllerZNode$.MODULE$.decodeController(data, 0);
            case "controller_epoch": return ControllerEpochZNode.decode(data);
            case "config": return ConfigEntityZNode.decode(data);
            case "reassign_partitions": return ReassignPartitionsZNode.decode(data);
            case "preferred_replica_election": return PreferredReplicaElectionZNode.decode(data);
            case "log_dir_event": return LogDirEventNotificationSequenceZNode.decode(data);
            case "feature": return FeatureZNode.decode(data);
            case "producer_id_block": return ProducerIdBlockZNode.parseProducerIdBlockData(data);
            case "cluster_id": return ClusterIdZNode.fromJson(data);
            case "offset": return ConsumerOffset.decode(data);
            default: throw new IllegalArgumentException(kind);
        }
    }

    private static <T> Seq<T> seq(List<T> values) {
        return CollectionConverters.asScala(values).toSeq();
    }

    private static Seq<Object> ids(Object... values) {
        return seq(List.of(values));
    }

    private static <K, V> scala.collection.immutable.Map<K, V> scalaMap(Map<K, V> values) {
        return scala.collection.immutable.Map.from(CollectionConverters.asScala(values));
    }

    private static void write(String path, byte[] data) {
        OUT.println(path + " " + HexFormat.of().formatHex(data));
    }
}
