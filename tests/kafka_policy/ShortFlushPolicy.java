import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.server.policy.AlterConfigPolicy;

/** Refuses flush.ms above 1000 and to reset flush.messages; its message says every config that it was shown. */
public class ShortFlushPolicy implements AlterConfigPolicy {
    @Override
    public void configure(Map<String, ?> configs) {}

    @Override
    public void validate(RequestMetadata request) {
        Map<String, String> shown = new TreeMap<>(request.configs());
        boolean reset = shown.containsKey("flush.messages") && shown.get("flush.messages") == null;
        if (reset || Long.parseLong(shown.getOrDefault("flush.ms", "0")) > 1000) {
            throw new PolicyViolationException(
                "Topic " + request.resource().name() + " can't have these configs here: " + shown);
        }
    }

    @Override
    public void close() {}
}
