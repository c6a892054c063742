// Asks the classes of Kafka's controller; one line of output for each line of input:
//   state NAME                                     the states that may come before, sorted
//   offline|unclean|preferred|shutdown ASSIGNMENT ISR LEADER EPOCH RECOVERING LIVE SHUTTING_DOWN
//                                                  the elected "LEADER EPOCH ISR RECOVERING", or none
//   place PARTITIONS FACTOR START SHIFT_FROM ID:RACK,...   replicas by partition, "1,2;2,3"
// Lists are comma-separated; "-" is an empty one.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeSet;
import kafka.api.LeaderAndIsr;
import kafka.cluster.Broker;
import kafka.cluster.EndPoint;
import kafka.controller.ControllerContext;
import kafka.controller.Election;
import kafka.controller.ElectionResult;
import kafka.controller.ReplicaAssignment;
import org.apache.kafka.admin.AdminUtils;
import org.apache.kafka.admin.BrokerMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.LeaderRecoveryState;
import scala.Option;
import scala.Tuple2;
import scala.Tuple3;
import scala.jdk.javaapi.CollectionConverters;

public class ControllerAnswers {
    private static final TopicPartition PARTITION = new TopicPartition("t", 0);

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder output = new StringBuilder();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            output.append(
                switch (words[0]) {
                    case "state" -> previous(words[1]);
                    case "place" -> place(words);
                    default -> elect(words);
                }).append('\n');
        }
        System.out.print(output);
    }

    private static String previous(String name) throws Exception {
        Object state = Class.forName("kafka.controller." + name + "$").getField("MODULE$").get(null);
        Object found = state.getClass().getMethod("validPreviousStates").invoke(state);
        TreeSet<String> names = new TreeSet<>();
        CollectionConverters.asJava((scala.collection.Set<?>) found).forEach(each -> names.add(each.toString()));
        return String.join(",", names);
    }

    private static String place(String[] words) {
        List<BrokerMetadata> brokers = new ArrayList<>();
        for (String each : words[5].split(",")) {
            String[] parts = each.split(":", 2);
            Optional<String> rack = parts.length > 1 ? Optional.of(parts[1]) : Optional.empty();
            brokers.add(new BrokerMetadata(Integer.parseInt(parts[0]), rack));
        }
        Map<Integer, List<Integer>> placed = AdminUtils.assignReplicasToBrokers(
            brokers, number(words[1]), number(words[2]), number(words[3]), number(words[4]));
        List<String> rows = new ArrayList<>();
        new java.util.TreeMap<>(placed).values().forEach(row -> rows.add(text(row)));
        return String.join(";", rows);
    }

    private static String elect(String[] words) {
        List<Object> isr = ids(words[2]);
        LeaderRecoveryState recovery =
            number(words[5]) == 1 ? LeaderRecoveryState.RECOVERING : LeaderRecoveryState.RECOVERED;
        LeaderAndIsr state = LeaderAndIsr.apply(
            number(words[3]), number(words[4]), CollectionConverters.asScala(isr).toList(), recovery, 0);
        ControllerContext context = context(ids(words[1]), ids(words[6]), ids(words[7]));
        Tuple2<TopicPartition, LeaderAndIsr> pair = new Tuple2<>(PARTITION, state);
        boolean unclean = words[0].equals("unclean");
        scala.collection.Seq<ElectionResult> results = switch (words[0]) {
            case "preferred" -> Election.leaderForPreferredReplica(context, seq(pair));
            case "shutdown" -> Election.leaderForControlledShutdown(context, seq(pair));
            default -> Election.leaderForOffline(
                context, true, seq(new Tuple3<>(PARTITION, Option.apply(state), (Object) unclean)));
        };
        Option<LeaderAndIsr> elected = results.head().leaderAndIsr();
        if (elected.isEmpty()) {
            return "none";
        }
        LeaderAndIsr found = elected.get();
        String inSync = text(CollectionConverters.asJava(found.isr()));
        return found.leader() + " " + found.leaderEpoch() + " " + inSync + " "
            + found.leaderRecoveryState().value();
    }

    private static ControllerContext context(List<Object> assignment, List<Object> live, List<Object> leaving) {
        ControllerContext context = new ControllerContext();
        context.updatePartitionFullReplicaAssignment(
            PARTITION, ReplicaAssignment.apply(CollectionConverters.asScala(assignment)));
        Map<Broker, Object> brokers = new HashMap<>();
        for (Object id : live) {
            EndPoint endPoint = new EndPoint(
                "127.0.0.1", 9092, new ListenerName("PLAINTEXT"), SecurityProtocol.PLAINTEXT);
            brokers.put(Broker.apply((Integer) id, seq(endPoint), Option.empty()), 1L);
        }
        context.setLiveBrokers(CollectionConverters.asScala(brokers));
        leaving.forEach(id -> context.shuttingDownBrokerIds().add(id));
        return context;
    }

    private static <T> scala.collection.immutable.Seq<T> seq(T item) {
        return CollectionConverters.asScala(List.of(item)).toList();
    }

    private static List<Object> ids(String words) {
        List<Object> found = new ArrayList<>();
        if (!words.equals("-")) {
            for (String each : words.split(",")) {
                found.add(number(each));
            }
        }
        return found;
    }

    private static String text(List<?> items) {
        List<String> words = new ArrayList<>();
        items.forEach(item -> words.add(item.toString()));
        return words.isEmpty() ? "-" : String.join(",", words);
    }

    private static int number(String text) {
        return Integer.parseInt(text);
    }
}
