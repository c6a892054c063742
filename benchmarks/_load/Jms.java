// Sends and receives through JMS, with the client of the ActiveMQ on the class path.
//
// java -cp JARS Jms.java
//
// Each line of the standard input is a run: send URL QUEUE MESSAGES BYTES, or receive URL QUEUE
// MESSAGES. The answer is a line of JSON: the seconds, and the client's CPU seconds. ActiveMQ 6 has
// JMS in another package: the benchmark replaces its name in this file.

import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.Locale;
import javax.jms.BytesMessage;
import javax.jms.DeliveryMode;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;

public class Jms {
    static final long RECEIVE_TIMEOUT_MS = 60_000;

    static final OperatingSystemMXBean SYSTEM =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    public static void main(String[] none) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String answer;
            try {
                answer = "{\"measured\": " + run(line.split(" ")) + "}";
            } catch (Exception error) {
                String text = error.toString().replaceAll("[\"\\\\\\p{Cntrl}]", " ");
                answer = "{\"error\": \"" + text + "\"}";
            }
            System.out.println(answer);
            System.out.flush();
        }
    }

    static String run(String[] words) throws Exception {
        int messages = Integer.parseInt(words[3]);
        ActiveMQConnection connection =
            (ActiveMQConnection) new ActiveMQConnectionFactory(words[1]).createConnection();
        try {
            connection.start();
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            long startNs = System.nanoTime();
            long cpuNs = SYSTEM.getProcessCpuTime();
            if (words[0].equals("send")) {
                send(connection, session, words[2], messages, Integer.parseInt(words[4]));
            } else {
                receive(session, words[2], messages);
            }
            return String.format(
                Locale.ROOT,
                "{\"seconds\": %.6f, \"cpu_s\": %.6f}",
                (System.nanoTime() - startNs) / 1e9,
                (SYSTEM.getProcessCpuTime() - cpuNs) / 1e9);
        } finally {
            connection.close();
        }
    }

    // The broker acknowledges the last message only: it works on a producer's messages in order.
    static void send(
        ActiveMQConnection connection, Session session, String queue, int messages, int bytes)
            throws Exception {
        MessageProducer producer = session.createProducer(session.createQueue(queue));
        producer.setDeliveryMode(DeliveryMode.PERSISTENT);
        byte[] value = new byte[bytes];
        connection.setUseAsyncSend(true);
        for (int sent = 0; sent < messages; sent++) {
            connection.setUseAsyncSend(sent < messages - 1);
            BytesMessage message = session.createBytesMessage();
            message.writeBytes(value);
            producer.send(message);
        }
    }

    static void receive(Session session, String queue, int messages) throws Exception {
        MessageConsumer consumer = session.createConsumer(session.createQueue(queue));
        for (int received = 0; received < messages; received++) {
            Message message = consumer.receive(RECEIVE_TIMEOUT_MS);
            if (message == null) {
                throw new IllegalStateException(received + " of " + messages + " messages came");
            }
        }
    }
}
