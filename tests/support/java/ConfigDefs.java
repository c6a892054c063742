// Prints the definitions of Kafka's settings, tab-separated. Argument: broker or topic.
// name, type, default, allowed values, internal, and for topics the broker's setting.
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

public class ConfigDefs {
    public static void main(String[] arguments) throws Exception {
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "off");
        print("broker", brokerDefinitions());
        print("topic", LogConfig.configDefCopy());
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

    private static void print(String kind, ConfigDef definitions) {
        Map<String, ConfigDef.ConfigKey> keys = new TreeMap<>(definitions.configKeys());
        for (ConfigDef.ConfigKey key : keys.values()) {
            String text = "(required)";
            if (key.defaultValue != ConfigDef.NO_DEFAULT_VALUE) {
                text = ConfigDef.convertToString(key.defaultValue, key.type);
            }
            String allowed = key.validator == null ? "" : key.validator.toString();
            String broker = ServerTopicConfigSynonyms.TOPIC_CONFIG_SYNONYMS.get(key.name);
            System.out.println(String.join("\t", kind, key.name, key.type.name(),
                text == null ? "(null)" : text, allowed, "" + key.internalConfig,
                kind.equals("broker") || broker == null ? "" : broker));
        }
    }
}
