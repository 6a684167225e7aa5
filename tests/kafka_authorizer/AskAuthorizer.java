import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;

/**
 * Asks Kafka's own authorizer. Lines of tab-separated values in: NEW super.users allow.everyone; ACL and its seven
 * values; ASK principal host operation resource-type name, which is answered by a line, ALLOWED or DENIED.
 */
public class AskAuthorizer {
    record Context(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() { return "TEST"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.SASL_PLAINTEXT; }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return "test"; }
        public int correlationId() { return 0; }
    }

    public static void main(String[] arguments) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        StandardAuthorizer authorizer = null;
        for (String line; (line = in.readLine()) != null; ) {
            String[] v = line.split("\t", -1);
            switch (v[0]) {
                case "NEW" -> {
                    authorizer = new StandardAuthorizer();
                    authorizer.configure(Map.of("super.users", v[1], "allow.everyone.if.no.acl.found", v[2]));
                    authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
                    authorizer.completeInitialLoad();
                }
                case "ACL" -> authorizer.addAcl(Uuid.randomUuid(), new StandardAcl(
                    ResourceType.valueOf(v[4]), v[6], PatternType.valueOf(v[5]), v[1], v[7],
                    AclOperation.valueOf(v[3]), AclPermissionType.valueOf(v[2])));
                case "ASK" -> {
                    String[] who = v[1].split(":", 2);
                    var context = new Context(new KafkaPrincipal(who[0], who[1]), InetAddress.getByName(v[2]));
                    var pattern = new ResourcePattern(ResourceType.valueOf(v[4]), v[5], PatternType.LITERAL);
                    var action = new Action(AclOperation.valueOf(v[3]), pattern, 1, false, false);
                    out.println(authorizer.authorize(context, List.of(action)).get(0));
                    out.flush();
                }
                default -> throw new IllegalArgumentException(line);
            }
        }
    }
}
