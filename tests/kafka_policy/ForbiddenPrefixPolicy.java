import java.util.Map;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.server.policy.CreateTopicPolicy;

/** Refuses every topic whose name starts with "forbidden.". */
public class ForbiddenPrefixPolicy implements CreateTopicPolicy {
    @Override
    public void configure(Map<String, ?> configs) {}

    @Override
    public void validate(RequestMetadata request) {
        if (request.topic().startsWith("forbidden.")) {
            throw new PolicyViolationException(
                "Topic " + request.topic() + " is not allowed by the broker's policy");
        }
    }

    @Override
    public void close() {}
}
