// Has Kafka's controller make the requests for its brokers. Lines of input:
//   broker ID EPOCH HOST PORT RACK|-            leaving ID
//   topic NAME ID(base64)                       deleted NAME
//   assign NAME NUMBER REPLICAS
//   leader NAME NUMBER LEADER EPOCH ISR RECOVERING CONTROLLER_EPOCH PARTITION_EPOCH
//   lead NAME NUMBER BROKERS IS_NEW             stop NAME NUMBER BROKERS DELETES
//   tell BROKERS NAME NUMBER                    (NAME "-": of no partition)
//   send CONTROLLER_EPOCH
// "send" prints a line for each request, "BROKER API_KEY VERSION HEX", then "end", and begins anew
// with no brokers and no topics. Lists are comma-separated; "-" is an empty one.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import kafka.api.LeaderAndIsr;
import kafka.cluster.Broker;
import kafka.cluster.EndPoint;
import kafka.controller.AbstractControllerBrokerRequestBatch;
import kafka.controller.ControllerContext;
import kafka.controller.LeaderIsrAndControllerEpoch;
import kafka.controller.ReplicaAssignment;
import kafka.controller.StateChangeLogger;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.requests.AbstractControlRequest;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.LeaderAndIsrResponse;
import org.apache.kafka.common.requests.StopReplicaResponse;
import org.apache.kafka.common.requests.UpdateMetadataResponse;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.server.common.MetadataVersion;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.BoxedUnit;

public class ControllerBatches {
    private static final StringBuilder OUTPUT = new StringBuilder();

    private static class Batch extends AbstractControllerBrokerRequestBatch {
        Batch(KafkaConfig config, ControllerContext context) {
            super(config, () -> context, () -> MetadataVersion.IBP_3_5_IV0,
                new StateChangeLogger(0, true, Option.empty()), false);
        }

        @Override
        public void sendRequest(
            int broker,
            AbstractControlRequest.Builder<? extends AbstractControlRequest> builder,
            scala.Function1<AbstractResponse, BoxedUnit> callback
        ) {
            AbstractRequest request = builder.build();
            ByteBuffer bytes = request.serialize();
            byte[] data = new byte[bytes.remaining()];
            bytes.get(data);
            OUTPUT.append(broker + " " + request.apiKey().id + " " + request.version() + " "
                + HexFormat.of().formatHex(data) + "\n");
        }

        @Override
        public void handleLeaderAndIsrResponse(LeaderAndIsrResponse response, int broker) { }

        @Override
        public void handleUpdateMetadataResponse(UpdateMetadataResponse response, int broker) { }

        @Override
        public void handleStopReplicaResponse(
            StopReplicaResponse response,
            int broker,
            scala.collection.immutable.Map<TopicPartition, org.apache.kafka.common.protocol.Errors> errors
        ) { }
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> settings = new HashMap<>();
        settings.put("broker.id", "0");
        settings.put("zookeeper.connect", "127.0.0.1:1");
        KafkaConfig config = new KafkaConfig(settings);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        ControllerContext context = new ControllerContext();
        Batch batch = new Batch(config, context);
        batch.newBatch();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "broker" -> context.addLiveBrokers(CollectionConverters.asScala(broker(words)));
                case "leaving" -> context.shuttingDownBrokerIds().add(number(words[1]));
                case "topic" -> {
                    context.allTopics().add(words[1]);
                    context.addTopicId(words[1], Uuid.fromString(words[2]));
                }
                case "deleted" -> context.queueTopicDeletion(
                    CollectionConverters.asScala(java.util.Set.of(words[1])));
                case "assign" -> context.updatePartitionFullReplicaAssignment(
                    partition(words), ReplicaAssignment.apply(ids(words[3])));
                case "leader" -> context.putPartitionLeadershipInfo(partition(words), leader(words));
                case "lead" -> batch.addLeaderAndIsrRequestForBrokers(
                    ids(words[3]), partition(words), context.partitionLeadershipInfo(partition(words)).get(),
                    context.partitionFullReplicaAssignment(partition(words)), words[4].equals("1"));
                case "stop" -> batch.addStopReplicaRequestForBrokers(
                    ids(words[3]), partition(words), words[4].equals("1"));
                case "tell" -> batch.addUpdateMetadataRequestForBrokers(
                    ids(words[1]),
                    CollectionConverters.asScala(
                        words[2].equals("-")
                            ? java.util.Set.<TopicPartition>of()
                            : java.util.Set.of(new TopicPartition(words[2], number(words[3])))));
                case "send" -> {
                    batch.sendRequestsToBrokers(number(words[1]));
                    OUTPUT.append("end\n");
                    context = new ControllerContext();
                    batch = new Batch(config, context);
                    batch.newBatch();
                }
                default -> throw new IllegalArgumentException(line);
            }
        }
        System.out.print(OUTPUT);
        // Logging and metrics have threads of their own.
        System.out.flush();
        System.exit(0);
    }

    private static Map<Broker, Object> broker(String[] words) {
        EndPoint endPoint = new EndPoint(
            words[3], number(words[4]), new ListenerName("PLAINTEXT"), SecurityProtocol.PLAINTEXT);
        Option<String> rack = words[5].equals("-") ? Option.empty() : Option.apply(words[5]);
        Broker broker = Broker.apply(
            number(words[1]), CollectionConverters.asScala(List.of(endPoint)).toList(), rack);
        Map<Broker, Object> found = new HashMap<>();
        found.put(broker, Long.parseLong(words[2]));
        return found;
    }

    private static LeaderIsrAndControllerEpoch leader(String[] words) {
        LeaderRecoveryState recovery =
            words[6].equals("1") ? LeaderRecoveryState.RECOVERING : LeaderRecoveryState.RECOVERED;
        LeaderAndIsr state = LeaderAndIsr.apply(
            number(words[3]), number(words[4]), ids(words[5]).toList(), recovery, number(words[8]));
        return new LeaderIsrAndControllerEpoch(state, number(words[7]));
    }

    private static TopicPartition partition(String[] words) {
        return new TopicPartition(words[1], number(words[2]));
    }

    private static scala.collection.immutable.Seq<Object> ids(String words) {
        List<Object> found = new ArrayList<>();
        if (!words.equals("-")) {
            for (String each : words.split(",")) {
                found.add(number(each));
            }
        }
        return CollectionConverters.asScala(found).toList();
    }

    private static int number(String text) {
        return Integer.parseInt(text);
    }
}
