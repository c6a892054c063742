// Asks Kafka's classes of a follower and of leader epochs; one line of output for each of input:
//   end EPOCHS END ASKED                 where an epoch ended: "EPOCH OFFSET"
//   cut EPOCHS END LEADERS_EPOCH LEADERS_END
//                                        where a follower's log has to end, of which the leader says
//                                        that: "OFFSET"
//   range START END LEADERS_START LEADERS_END
//                                        what follows from OFFSET_OUT_OF_RANGE: "cut OFFSET" or
//                                        "anew OFFSET", where anything is done, and "from OFFSET"
//   note EPOCHS EPOCH:OFFSET             the epochs after another one has begun
//   keep EPOCHS START END                the epochs after the log was shortened to these
// EPOCHS is "EPOCH:START,...", or "-" for none.
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;
import java.util.stream.Collectors;
import kafka.cluster.BrokerEndPoint;
import kafka.server.AbstractFetcherThread;
import kafka.server.BrokerTopicStats;
import kafka.server.FailedPartitions;
import kafka.server.LeaderEndPoint;
import kafka.server.OffsetTruncationState;
import kafka.server.PartitionFetchState;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.message.OffsetForLeaderEpochResponseData.EpochEndOffset;
import org.apache.kafka.server.common.OffsetAndEpoch;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.EpochEntry;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import scala.Option;

public class FollowerAnswers {
    private static final TopicPartition PARTITION = new TopicPartition("t", 0);
    private static LeaderEpochFileCache epochs;
    private static long start;
    private static long end;
    private static long leadersStart;
    private static long leadersEnd;
    private static final StringBuilder done = new StringBuilder();

    // Nothing is written.
    private static class NoFile extends LeaderEpochCheckpointFile {
        NoFile(File file) throws Exception {
            super(file, new LogDirFailureChannel(1));
        }

        @Override
        public void write(Collection<EpochEntry> entries) { }

        @Override
        public void writeIfDirExists(Collection<EpochEntry> entries) { }

        @Override
        public List<EpochEntry> read() {
            return new ArrayList<>();
        }
    }

    private static class Follower extends AbstractFetcherThread {
        Follower(LeaderEndPoint leader) {
            super("follower", "follower", leader, new FailedPartitions(), null, 1000, false,
                new BrokerTopicStats(false));
        }

        @Override
        public Option<LogAppendInfo> processPartitionData(
            TopicPartition partition, long offset, int epoch, FetchResponseData.PartitionData data
        ) {
            throw new UnsupportedOperationException();
        }

        @Override
        public void truncate(TopicPartition partition, OffsetTruncationState state) {
            done.append("cut " + state.offset() + " ");
        }

        @Override
        public void truncateFullyAndStartAt(TopicPartition partition, long offset) {
            done.append("anew " + offset + " ");
        }

        @Override
        public Option<Object> latestEpoch(TopicPartition partition) {
            OptionalInt latest = epochs.latestEpoch();
            return latest.isPresent() ? Option.apply(latest.getAsInt()) : Option.empty();
        }

        @Override
        public long logStartOffset(TopicPartition partition) {
            return start;
        }

        @Override
        public long logEndOffset(TopicPartition partition) {
            return end;
        }

        @Override
        public Option<OffsetAndEpoch> endOffsetForEpoch(TopicPartition partition, int epoch) {
            Map.Entry<Integer, Long> found = epochs.endOffsetFor(epoch, end);
            return found.getValue() < 0
                ? Option.empty()
                : Option.apply(new OffsetAndEpoch(found.getValue(), found.getKey()));
        }

        @Override
        public boolean isOffsetForLeaderEpochSupported() {
            return true;
        }
    }

    public static void main(String[] arguments) throws Exception {
        NoFile noFile = new NoFile(new File(Files.createTempDirectory("epochs").toFile(), "epochs"));
        Scheduler scheduler = proxy(Scheduler.class);
        LeaderEndPoint leader = (LeaderEndPoint) Proxy.newProxyInstance(
            FollowerAnswers.class.getClassLoader(), new Class<?>[] {LeaderEndPoint.class},
            (self, method, values) -> switch (method.getName()) {
                case "brokerEndPoint" -> new BrokerEndPoint(1, "host", 9092);
                case "isTruncationOnFetchSupported" -> true;
                case "fetchEarliestOffset" -> new OffsetAndEpoch(leadersStart, 0);
                case "fetchLatestOffset" -> new OffsetAndEpoch(leadersEnd, 0);
                default -> null;
            });
        Follower follower = new Follower(leader);
        Method cut = method("getOffsetTruncationState");
        Method outOfRange = method("fetchOffsetAndTruncate");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder output = new StringBuilder();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            epochs = new LeaderEpochFileCache(PARTITION, noFile, scheduler);
            start = 0;
            if (!words[0].equals("range") && !words[1].equals("-")) {
                for (String each : words[1].split(",")) {
                    assign(each);
                }
            }
            switch (words[0]) {
                case "end" -> {
                    Map.Entry<Integer, Long> found =
                        epochs.endOffsetFor(Integer.parseInt(words[3]), Long.parseLong(words[2]));
                    output.append(found.getKey() + " " + found.getValue());
                }
                case "cut" -> {
                    end = Long.parseLong(words[2]);
                    EpochEndOffset leaders = new EpochEndOffset()
                        .setLeaderEpoch(Integer.parseInt(words[3]))
                        .setEndOffset(Long.parseLong(words[4]));
                    OffsetTruncationState state =
                        (OffsetTruncationState) cut.invoke(follower, PARTITION, leaders);
                    output.append(state.offset());
                }
                case "range" -> {
                    start = Long.parseLong(words[1]);
                    end = Long.parseLong(words[2]);
                    leadersStart = Long.parseLong(words[3]);
                    leadersEnd = Long.parseLong(words[4]);
                    done.setLength(0);
                    PartitionFetchState state = (PartitionFetchState) outOfRange.invoke(
                        follower, PARTITION, Option.<Uuid>empty(), 0);
                    output.append(done + "from " + state.fetchOffset());
                }
                case "note" -> {
                    assign(words[2]);
                    output.append(listed());
                }
                default -> {
                    epochs.truncateFromStartAsyncFlush(Long.parseLong(words[2]));
                    epochs.truncateFromEndAsyncFlush(Long.parseLong(words[3]));
                    output.append(listed());
                }
            }
            output.append('\n');
        }
        System.out.print(output);
        System.exit(0);
    }

    private static void assign(String entry) {
        String[] parts = entry.split(":");
        epochs.assign(Integer.parseInt(parts[0]), Long.parseLong(parts[1]));
    }

    private static String listed() {
        String found = epochs.epochEntries().stream()
            .map(each -> each.epoch + ":" + each.startOffset).collect(Collectors.joining(","));
        return found.isEmpty() ? "-" : found;
    }

    private static Method method(String name) {
        for (Method each : AbstractFetcherThread.class.getDeclaredMethods()) {
            if (each.getName().equals(name)) {
                each.setAccessible(true);
                return each;
            }
        }
        throw new IllegalStateException(name);
    }

    private static <T> T proxy(Class<T> type) {
        return type.cast(Proxy.newProxyInstance(
            FollowerAnswers.class.getClassLoader(), new Class<?>[] {type}, (self, method, values) -> null));
    }
}
