// Kafka's own record classes behind a file of commands; see golden/java_records.py. One line of output for each
// batch, marker, empty, down, up and read command.
import java.io.BufferedReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.function.Supplier;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.DefaultRecordBatch;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.SimpleRecord;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.ByteBufferOutputStream;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;

public class JavaRecords {
    static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        try (BufferedReader in = Files.newBufferedReader(Path.of(args[0]))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                String[] words = line.split(" ");
                switch (words[0]) {
                    case "batch": out.println(batch(words, in)); break;
                    case "marker": out.println(marker(words)); break;
                    case "empty": out.println(empty(words)); break;
                    case "down": out.println(down(words)); break;
                    case "up": out.println(up(words)); break;
                    case "read": out.println(read(words)); break;
                    default: throw new IllegalArgumentException(line);
                }
            }
        }
        out.flush();
    }

    static byte[] bytes(String word) {
        return word.equals("null") ? null : HEX.parseHex(word.substring(1));
    }

    static String hex(ByteBuffer buffer) {
        byte[] copy = new byte[buffer.remaining()];
        buffer.duplicate().get(copy);
        return HEX.formatHex(copy);
    }

    static TimestampType timestampType(String name) {
        return name.equals("NO_TIMESTAMP") ? TimestampType.NO_TIMESTAMP_TYPE : TimestampType.valueOf(name);
    }

    static String batch(String[] w, BufferedReader in) throws Exception {
        long horizon = Long.parseLong(w[11]);
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(
            new ByteBufferOutputStream(1 << 16), Byte.parseByte(w[1]),
            Compression.of(CompressionType.forName(w[2])).build(), timestampType(w[3]), Long.parseLong(w[4]),
            Long.parseLong(w[5]), Long.parseLong(w[6]), Short.parseShort(w[7]), Integer.parseInt(w[8]),
            Boolean.parseBoolean(w[9]), false, Integer.parseInt(w[10]), Integer.MAX_VALUE, horizon);
        for (String line = in.readLine(); !line.equals("end"); line = in.readLine()) {
            String[] r = line.split(" ");
            List<Header> headers = new ArrayList<>();
            if (!r[5].equals(".")) {
                for (String pair : r[5].split(",")) {
                    String[] parts = pair.split(":");
                    String name = new String(HEX.parseHex(parts[0]), StandardCharsets.UTF_8);
                    headers.add(new RecordHeader(name, bytes(parts[1])));
                }
            }
            builder.appendWithOffset(Long.parseLong(r[1]), new SimpleRecord(
                Long.parseLong(r[2]), bytes(r[3]), bytes(r[4]), headers.toArray(new Header[0])));
        }
        return hex(builder.build().buffer());
    }

    static String marker(String[] w) {
        ControlRecordType type = ControlRecordType.valueOf(w[1].toUpperCase());
        return hex(MemoryRecords.withEndTransactionMarker(
            Long.parseLong(w[2]), Long.parseLong(w[3]), Integer.parseInt(w[4]), Long.parseLong(w[5]),
            Short.parseShort(w[6]), new EndTransactionMarker(type, Integer.parseInt(w[7]))).buffer());
    }

    static String empty(String[] w) {
        ByteBuffer buffer = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        DefaultRecordBatch.writeEmptyHeader(
            buffer, (byte) 2, Long.parseLong(w[1]), Short.parseShort(w[2]), Integer.parseInt(w[3]),
            Long.parseLong(w[4]), Long.parseLong(w[5]), Integer.parseInt(w[6]), timestampType(w[7]),
            Long.parseLong(w[8]), Boolean.parseBoolean(w[9]), Boolean.parseBoolean(w[10]));
        buffer.rewind();
        return hex(buffer);
    }

    // down MAGIC FIRST_OFFSET HEX -> hex of the converted set, or the exception's class
    static String down(String[] w) {
        try {
            MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(HEX.parseHex(w[3])));
            return "x" + hex(records.downConvert(Byte.parseByte(w[1]), Long.parseLong(w[2]), Time.SYSTEM)
                .records().buffer());
        } catch (Exception e) {
            return e.getClass().getSimpleName();
        }
    }

    // up BASE_OFFSET LEADER_EPOCH APPEND_MS HEX -> hex of what a log with compression.type=producer would
    // append, or the exception's class; APPEND_MS is -1 for create time
    static String up(String[] w) {
        try {
            MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(HEX.parseHex(w[4])));
            CompressionType codec = CompressionType.NONE;
            for (MutableRecordBatch batch : records.batches()) {
                batch.ensureValid();
                if (batch.compressionType() != CompressionType.NONE) codec = batch.compressionType();
            }
            long appendMs = Long.parseLong(w[3]);
            LogValidator validator = new LogValidator(
                records, new TopicPartition("t", 0), new FixedTime(appendMs), codec,
                Compression.of(codec).build(), false, (byte) 2,
                appendMs < 0 ? TimestampType.CREATE_TIME : TimestampType.LOG_APPEND_TIME,
                Long.MAX_VALUE, Long.MAX_VALUE, Integer.parseInt(w[2]), AppendOrigin.CLIENT,
                MetadataVersion.latestProduction());
            return "x" + hex(validator.validateMessagesAndAssignOffsets(
                PrimitiveRef.ofLong(Long.parseLong(w[1])), new NoMetrics(), BufferSupplier.NO_CACHING)
                .validatedRecords.buffer());
        } catch (Exception e) {
            return e.getClass().getSimpleName();
        }
    }

    static class FixedTime implements Time {
        final long nowMs;

        FixedTime(long nowMs) {
            this.nowMs = nowMs;
        }

        @Override
        public long milliseconds() {
            return nowMs;
        }

        @Override
        public long nanoseconds() {
            return nowMs * 1_000_000;
        }

        @Override
        public void sleep(long ms) {
            throw new UnsupportedOperationException();
        }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
            throw new UnsupportedOperationException();
        }
    }

    static class NoMetrics implements LogValidator.MetricsRecorder {
        public void recordInvalidMagic() {}
        public void recordInvalidOffset() {}
        public void recordInvalidSequence() {}
        public void recordInvalidChecksums() {}
        public void recordNoKeyCompactedTopic() {}
    }

    // read CHECK HEX -> offset,timestamp,type,key,value,headers;... or the exception's class
    static String read(String[] w) {
        StringBuilder line = new StringBuilder("records");
        try {
            MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(
                w.length > 2 ? HEX.parseHex(w[2]) : new byte[0]));
            for (MutableRecordBatch batch : records.batches()) {
                if (Boolean.parseBoolean(w[1])) batch.ensureValid();
                for (Record record : batch) line.append(' ').append(text(batch, record));
            }
        } catch (Exception | Error e) {
            return e.getClass().getSimpleName();
        }
        return line.toString();
    }

    static String text(RecordBatch batch, Record record) {
        StringBuilder text = new StringBuilder();
        text.append(record.offset()).append(',').append(record.timestamp()).append(',');
        text.append(batch.timestampType().id).append(',');
        text.append(record.hasKey() ? "x" + hex(record.key()) : "null").append(',');
        text.append(record.hasValue() ? "x" + hex(record.value()) : "null");
        for (Header header : record.headers()) {
            text.append(',').append(HEX.formatHex(header.key().getBytes(StandardCharsets.UTF_8))).append(':');
            text.append(header.value() == null ? "null" : "x" + HEX.formatHex(header.value()));
        }
        return text.toString();
    }
}
