import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import java.util.Scanner;
import java.util.TreeMap;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.login.Configuration;

/**
 * Reads each line of standard input (base64 of a sasl.jaas.config) with Kafka's own class and
 * prints its login modules: one line each, the parts in base64, or "refused", or "nameless" where
 * it takes an option without a name.
 */
public class JaasConfigs {
    public static void main(String[] arguments) throws Exception {
        Class<?> reader = Class.forName("org.apache.kafka.common.security.JaasConfig");
        Constructor<?> make = reader.getDeclaredConstructor(String.class, String.class);
        make.setAccessible(true);
        Scanner lines = new Scanner(System.in, StandardCharsets.US_ASCII);
        while (lines.hasNextLine()) {
            byte[] given = Base64.getDecoder().decode(lines.nextLine());
            String config = new String(given, StandardCharsets.UTF_8);
            try {
                System.out.println(describe((Configuration) make.newInstance("klog", config)));
            } catch (InvocationTargetException refused) {
                System.out.println("refused");
            }
        }
    }

    private static String describe(Configuration found) {
        StringBuilder line = new StringBuilder();
        for (AppConfigurationEntry entry : found.getAppConfigurationEntry("klog")) {
            line.append(encode(entry.getLoginModuleName()));
            if (entry.getOptions().containsKey(null)) {
                return "nameless";
            }
            Map<String, Object> options = new TreeMap<>(entry.getOptions());
            for (Map.Entry<String, Object> option : options.entrySet()) {
                line.append(' ').append(encode(option.getKey()));
                line.append(' ').append(encode(String.valueOf(option.getValue())));
            }
            line.append(';');
        }
        return line.toString();
    }

    private static String encode(String text) {
        String packed = Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
        return packed.isEmpty() ? "-" : packed;
    }
}
