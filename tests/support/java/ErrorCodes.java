// Prints Kafka's table of errors: code, name, retriable, asks for new metadata.
import org.apache.kafka.common.errors.InvalidMetadataException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

public class ErrorCodes {
    public static void main(String[] arguments) {
        for (Errors error : Errors.values()) {
            boolean retriable = error.exception() instanceof RetriableException;
            boolean stale = error.exception() instanceof InvalidMetadataException;
            System.out.println(error.code() + " " + error.name() + " " + retriable + " " + stale);
        }
    }
}
