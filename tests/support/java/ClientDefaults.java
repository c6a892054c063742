// Prints the defaults of Kafka's producer and consumer: name, a tab, the default.
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;

public class ClientDefaults {
    public static void main(String[] arguments) {
        for (ConfigDef definitions : new ConfigDef[] {
            ConsumerConfig.configDef(), ProducerConfig.configDef()
        }) {
            for (ConfigDef.ConfigKey key : definitions.configKeys().values()) {
                if (key.defaultValue != ConfigDef.NO_DEFAULT_VALUE) {
                    String text = ConfigDef.convertToString(key.defaultValue, key.type);
                    System.out.println(key.name + "\t" + (text == null ? "" : text));
                }
            }
        }
    }
}
