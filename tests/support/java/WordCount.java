// A word count with Kafka Streams: a process that a test kills.
//
// java -cp JARS WordCount.java SERVERS APPLICATION STATE_DIRECTORY
//
// Lines of the topic "lines" are split into words, the words are grouped (by way of a repartition
// topic) and counted (in a store with a changelog), and every change of a count goes to the topic
// "counts". It says "state NAME" as Streams changes its state, and "restored RECORDS" when a store
// has been read from its changelog. It ends with its standard input.

import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.TopicConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.StateRestoreListener;

public class WordCount {
    public static void main(String[] words) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream("lines")
            .flatMapValues(line -> List.of(line.split(" ")))
            .groupBy((key, word) -> word)
            .count(Materialized.as("words"))
            .toStream()
            .mapValues(String::valueOf)
            .to("counts", Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings(words));
        streams.setStateListener((now, before) -> say("state " + now));
        streams.setGlobalStateRestoreListener(new Restored());
        streams.setUncaughtExceptionHandler(error -> {
            say("failed " + error + " because of " + error.getCause());
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.start();
        System.in.readAllBytes();
        Runtime.getRuntime().halt(0);
    }

    static Properties settings(String[] words) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, words[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, words[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, words[2]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 200);
        settings.put(StreamsConfig.REPARTITION_PURGE_INTERVAL_MS_CONFIG, 500);
        // Every change of a count is passed on: none is held back until the next commit.
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        // A process that was killed is missed soon.
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG), 3_000);
        settings.put(
            StreamsConfig.consumerPrefix(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG), 500);
        // Of the topics that Streams makes: several segments, which are cleaned at once.
        settings.put(StreamsConfig.topicPrefix(TopicConfig.SEGMENT_BYTES_CONFIG), 1 << 16);
        settings.put(
            StreamsConfig.topicPrefix(TopicConfig.MIN_CLEANABLE_DIRTY_RATIO_CONFIG), 0.01);
        return settings;
    }

    static class Restored implements StateRestoreListener {
        @Override
        public void onRestoreStart(TopicPartition part, String store, long start, long end) {
            say("restoring " + part + " from " + start + " to " + end);
        }

        @Override
        public void onBatchRestored(TopicPartition part, String store, long end, long count) {
        }

        @Override
        public void onRestoreEnd(TopicPartition part, String store, long count) {
            say("restored " + count + " of " + part);
        }
    }

    static void say(String line) {
        System.out.println(line.replace('\n', ' '));
        System.out.flush();
    }
}
