// Prints which of a broker's settings Kafka 4 lets be changed while it runs, tab-separated:
// name, and per-broker or cluster-wide. Then those behind listener.name.NAME. that are cluster-wide.
import java.lang.reflect.Field;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.server.config.DynamicBrokerConfig;

public class DynamicConfigs {
    public static void main(String[] arguments) throws Exception {
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "off");
        new TreeMap<>(DynamicBrokerConfig.dynamicConfigUpdateModes())
            .forEach((name, mode) -> System.out.println(name + "\t" + mode));
        for (String name : DynamicBrokerConfig.DYNAMIC_SECURITY_CONFIGS) {
            System.out.println(name + "\tbehind a listener");
        }
        Field field = DynamicBrokerConfig.class.getDeclaredField("CLUSTER_LEVEL_LISTENER_CONFIGS");
        field.setAccessible(true);
        for (Object name : new TreeSet<Object>((Set<?>) field.get(null))) {
            System.out.println(name + "\tof all listeners");
        }
    }
}
