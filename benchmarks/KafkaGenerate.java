import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.metadata.placement.UsableBroker;

/** What kafka-reassign-partitions --generate proposes, by its own code: stdin has brokers (`b ID RACK`) and partitions
 *  (`p TOPIC PARTITION COUNT`), stdout `TOPIC PARTITION ID,ID`. It only asks how many replicas a topic has, not where. */
public class KafkaGenerate {
    public static void main(String[] arguments) throws Exception {
        List<UsableBroker> brokers = new ArrayList<>();
        Map<TopicPartition, List<Integer>> current = new LinkedHashMap<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split(" ");
            if (parts[0].equals("b")) {
                brokers.add(new UsableBroker(Integer.parseInt(parts[1]), Optional.of(parts[2]), false));
            } else {
                List<Integer> replicas = new ArrayList<>();
                for (int each = 0; each < Integer.parseInt(parts[3]); each++) replicas.add(each);
                current.put(new TopicPartition(parts[1], Integer.parseInt(parts[2])), replicas);
            }
        }
        Method calculate = Class.forName("org.apache.kafka.tools.reassign.ReassignPartitionsCommand")
            .getDeclaredMethod("calculateAssignment", Map.class, List.class);
        calculate.setAccessible(true);
        @SuppressWarnings("unchecked")
        Map<TopicPartition, List<Integer>> proposed =
            (Map<TopicPartition, List<Integer>>) calculate.invoke(null, current, brokers);
        StringBuilder out = new StringBuilder();
        proposed.forEach((partition, replicas) -> {
            out.append(partition.topic()).append(' ').append(partition.partition()).append(' ');
            out.append(replicas.toString().replaceAll("[\\[\\] ]", "")).append('\n');
        });
        System.out.print(out);
    }
}
