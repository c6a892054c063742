// Reads texts as values of Kafka's settings. A line of input: kind (broker, topic or type), the name
// of a setting or type, and the text in hexadecimal UTF-8. A line of output: the value as Kafka
// writes it, in hexadecimal, "refused", or "absent" for a setting that the release does not have.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.storage.internals.log.LogConfig;

public class ConfigValues {
    public static void main(String[] arguments) throws Exception {
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "off");
        Map<String, ConfigDef> definitions = Map.of(
            "broker", brokerDefinitions(), "topic", LogConfig.configDefCopy());
        BufferedReader input = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder output = new StringBuilder();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] parts = line.split("\t", -1);
            String text = new String(HexFormat.of().parseHex(parts[2]), StandardCharsets.UTF_8);
            output.append(answer(definitions.get(parts[0]), parts[1], text)).append('\n');
        }
        System.out.print(output);
    }

    private static String answer(ConfigDef definitions, String name, String text) {
        ConfigDef.ConfigKey key =
            definitions == null ? null : definitions.configKeys().get(name);
        if (definitions != null && key == null) {
            return "absent";
        }
        ConfigDef.Type type = key == null ? ConfigDef.Type.valueOf(name) : key.type;
        try {
            Object value = ConfigDef.parseType(name, text, type);
            if (key != null && key.validator != null) {
                key.validator.ensureValid(name, value);
            }
            String shown = value instanceof Password
                ? ((Password) value).value() : ConfigDef.convertToString(value, type);
            return HexFormat.of().formatHex(shown.getBytes(StandardCharsets.UTF_8));
        } catch (RuntimeException refused) {
            // ConfigException, and what a validator lets through.
            return "refused";
        }
    }

    // A Scala object in 3.9, a Java class above it in 4.x.
    private static ConfigDef brokerDefinitions() throws Exception {
        try {
            return (ConfigDef) Class.forName("kafka.server.KafkaConfig")
                .getMethod("configDef").invoke(null);
        } catch (NoSuchMethodException gone) {
            return (ConfigDef) Class.forName("org.apache.kafka.server.config.AbstractKafkaConfig")
                .getField("CONFIG_DEF").get(null);
        }
    }
}
