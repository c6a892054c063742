import java.io.BufferedReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

/**
 * Writes messages with Kafka's own generated classes. A line of the given file is a class, a version and the
 * message as Kafka's JSON; a line of the output is the message in hex, behind its version in two bytes.
 */
public class JavaStateRecords {
    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        ObjectMapper mapper = new ObjectMapper();
        try (BufferedReader in = Files.newBufferedReader(Path.of(args[0]))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                String[] words = line.split(" ", 3);
                short version = Short.parseShort(words[1]);
                Message message = (Message) Class.forName(words[0] + "JsonConverter")
                    .getMethod("read", JsonNode.class, short.class)
                    .invoke(null, mapper.readTree(words[2]), version);
                out.println(HexFormat.of().formatHex(MessageUtil.toVersionPrefixedBytes(version, message)));
            }
        }
        out.flush();
    }
}
