// An ActiveMQ broker on loopback, with the version on the class path, until it is ended.
//
// java -cp JARS ActiveMq.java PORT FOLDER
//
// Persistent messages go to KahaDB, ActiveMQ's default store, in FOLDER. As in the paper of 2011,
// the store leaves it to the system when they reach the disk.

import java.io.File;
import java.util.List;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.broker.region.policy.PolicyEntry;
import org.apache.activemq.broker.region.policy.PolicyMap;
import org.apache.activemq.store.kahadb.KahaDBPersistenceAdapter;

public class ActiveMq {
    public static void main(String[] arguments) throws Exception {
        KahaDBPersistenceAdapter store = new KahaDBPersistenceAdapter();
        store.setDirectory(new File(arguments[1]));
        store.setEnableJournalDiskSyncs(false);
        // Without this a producer whose messages nobody consumes stands still when they fill the
        // broker's memory, although they are in the store.
        PolicyEntry queues = new PolicyEntry();
        queues.setQueue(">");
        queues.setProducerFlowControl(false);
        PolicyMap policies = new PolicyMap();
        policies.setPolicyEntries(List.of(queues));
        BrokerService broker = new BrokerService();
        broker.setDestinationPolicy(policies);
        broker.setUseJmx(false);
        broker.setPersistenceAdapter(store);
        // Half of the heap for messages: with the default, 64 MB, 5.4.3 took 8,000 messages a
        // second instead of 12,000 to 15,000.
        broker.getSystemUsage().getMemoryUsage().setLimit(Runtime.getRuntime().maxMemory() / 2);
        broker.addConnector("tcp://127.0.0.1:" + arguments[0]);
        broker.start();
        broker.waitUntilStopped();
    }
}
