import java.io.InputStream;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;

/** Remote storage that keeps nothing: topics may have remote.storage.enable, and nothing is written to them. */
public class EmptyStorage implements RemoteStorageManager {
    public Optional<CustomMetadata> copyLogSegmentData(RemoteLogSegmentMetadata segment, LogSegmentData data) {
        return Optional.empty();
    }

    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start) {
        return InputStream.nullInputStream();
    }

    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start, int end) {
        return InputStream.nullInputStream();
    }

    public InputStream fetchIndex(RemoteLogSegmentMetadata segment, IndexType type) {
        return InputStream.nullInputStream();
    }

    public void deleteLogSegmentData(RemoteLogSegmentMetadata segment) {
    }

    public void configure(Map<String, ?> configs) {
    }

    public void close() {
    }
}
