// Reads one message a line ("request|response key version hex") with Kafka's own classes and
// prints it again as Kafka writes it, or the error it gave.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

public class ProtocolEcho {
    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder output = new StringBuilder();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ", -1);
            ApiMessageType type = ApiMessageType.fromApiKey(Short.parseShort(words[1]));
            short version = Short.parseShort(words[2]);
            String answer;
            try {
                ApiMessage message = words[0].equals("request") ? type.newRequest() : type.newResponse();
                ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(words[3]));
                message.read(new ByteBufferAccessor(bytes), version);
                if (bytes.hasRemaining()) {
                    throw new IllegalStateException(bytes.remaining() + " bytes left");
                }
                ObjectSerializationCache cache = new ObjectSerializationCache();
                ByteBuffer written = ByteBuffer.allocate(message.size(cache, version));
                message.write(new ByteBufferAccessor(written), cache, version);
                answer = HexFormat.of().formatHex(written.array());
            } catch (Exception error) {
                answer = "error " + error.toString().replace('\n', ' ');
            }
            output.append(answer).append('\n');
        }
        System.out.print(output);
    }
}
