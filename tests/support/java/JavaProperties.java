// Reads properties texts, one a line in hexadecimal UTF-16, and prints what java.util.Properties
// makes of each: name,text,... in hexadecimal, or "refused".
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.StringReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Properties;

public class JavaProperties {
    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            byte[] bytes = HexFormat.of().parseHex(line);
            System.out.println(entries(new String(bytes, StandardCharsets.UTF_16BE)));
        }
    }

    private static String entries(String text) throws Exception {
        StringBuilder found = new StringBuilder();
        Properties properties = new Properties() {
            @Override
            public synchronized Object put(Object name, Object value) {
                found.append(hex(name)).append(',').append(hex(value)).append(',');
                return super.put(name, value);
            }
        };
        try {
            properties.load(new StringReader(text));
        } catch (IllegalArgumentException refused) {
            return "refused";
        }
        return found.toString();
    }

    private static String hex(Object text) {
        return HexFormat.of().formatHex(text.toString().getBytes(StandardCharsets.UTF_16BE));
    }
}
