// Reads one message a line ("request|response key version correlation-id client-id json") and prints
// the frame, without its size, that Kafka's own classes make of it.
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

public class ProtocolFrames {
    public static void main(String[] arguments) throws Exception {
        BufferedReader input =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ", 6);
            ApiMessageType type = ApiMessageType.fromApiKey(Short.parseShort(words[1]));
            short version = Short.parseShort(words[2]);
            int correlationId = Integer.parseInt(words[3]);
            boolean isRequest = words[0].equals("request");
            String name = (isRequest ? type.newRequest() : type.newResponse()).getClass().getName();
            ApiMessage message = (ApiMessage) Class.forName(name + "JsonConverter")
                .getMethod("read", JsonNode.class, short.class)
                .invoke(null, new ObjectMapper().readTree(words[5]), version);
            String header = isRequest
                ? hex(
                    new RequestHeaderData()
                        .setRequestApiKey(type.apiKey())
                        .setRequestApiVersion(version)
                        .setCorrelationId(correlationId)
                        .setClientId(words[4]),
                    type.requestHeaderVersion(version))
                : hex(
                    new ResponseHeaderData().setCorrelationId(correlationId),
                    type.responseHeaderVersion(version));
            System.out.println(header + hex(message, version));
        }
    }

    private static String hex(ApiMessage message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer written = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(written), cache, version);
        return HexFormat.of().formatHex(written.array());
    }
}
