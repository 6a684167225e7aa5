import io.delta.storage.S3SingleDriverLogStore;
import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Arrays;
import java.util.Iterator;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Commits of Delta tables on S3 by any number of drivers: of two that commit the same version S3 itself refuses the
 * second (PutObject with If-None-Match, which Hadoop's S3A sends on request only). Delta's own store asks whether an
 * object is there and then writes it, so it knows no driver but its own.
 */
public class ConditionalS3LogStore extends S3SingleDriverLogStore {
    private static final String CONDITIONAL = "fs.option.create.conditional.overwrite";
    private static final String ENABLED = "fs.s3a.create.conditional.enabled";
    private static final String OTHERWISE = ". Set spark.delta.logStore.s3a.impl to "
        + "io.delta.storage.S3SingleDriverLogStore, and let one driver at a time write";
    /** Buckets that have been seen to refuse. */
    private static final Set<String> REFUSING = ConcurrentHashMap.newKeySet();

    public ConditionalS3LogStore(Configuration conf) {
        super(conf);
    }

    @Override
    public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration conf) throws IOException {
        if (overwrite) {
            super.write(path, actions, true, conf);
            return;
        }
        FileSystem files = path.getFileSystem(conf);
        requireRefusals(files, path);
        byte[] commit = bytes(actions);
        try {
            put(files, path, commit);
        } catch (IOException error) {
            byte[] found = found(files, path, error);
            // The answer to a request that S3 carried out may be lost; the same request sent again is then refused.
            // A commit of Delta's names its transaction, so an equal one is this one.
            if (!Arrays.equals(found, commit)) {
                FileAlreadyExistsException refused = new FileAlreadyExistsException(path.toString());
                refused.initCause(error);
                throw refused;
            }
        }
    }

    /** A store that takes no notice of the condition would lose commits in silence. */
    private static void requireRefusals(FileSystem files, Path path) throws IOException {
        String bucket = files.getUri().toString();
        if (REFUSING.contains(bucket)) {
            return;
        }
        if (!files.hasPathCapability(path, ENABLED)) {
            throw new UnsupportedOperationException(
                "conditional writes to " + bucket + " need S3A of Hadoop 3.4.2 or newer, and " + ENABLED + " = true"
                    + OTHERWISE);
        }
        Path probe = new Path(path.getParent(), "_conditional-" + UUID.randomUUID());
        put(files, probe, new byte[] {1});
        try {
            put(files, probe, new byte[] {2});
            throw new UnsupportedOperationException(
                bucket + " takes no notice of If-None-Match: two drivers could overwrite each other's commits"
                    + OTHERWISE);
        } catch (IOException refused) {
            if (found(files, probe, refused)[0] != 1) {
                throw refused;
            }
            REFUSING.add(bucket);
        } finally {
            files.delete(probe, false);
        }
    }

    private static void put(FileSystem files, Path path, byte[] content) throws IOException {
        FSDataOutputStreamBuilder<?, ?> builder = files.createFile(path);
        builder.recursive();
        builder.overwrite(false);
        builder.must(CONDITIONAL, true);
        FSDataOutputStream stream = builder.build();
        try {
            stream.write(content);
        } catch (IOException error) {
            // Closed, it would be there with a part of its content.
            stream.abort();
            throw error;
        }
        stream.close();
    }

    /** What is at the path; where nothing can be read there, the error of the write is thrown. */
    private static byte[] found(FileSystem files, Path path, IOException error) throws IOException {
        try (var stream = files.open(path)) {
            return stream.readAllBytes();
        } catch (IOException unread) {
            if (!(unread instanceof FileNotFoundException)) {
                error.addSuppressed(unread);
            }
            throw error;
        }
    }

    private static byte[] bytes(Iterator<String> actions) {
        ByteArrayOutputStream written = new ByteArrayOutputStream();
        while (actions.hasNext()) {
            written.writeBytes((actions.next() + "\n").getBytes(StandardCharsets.UTF_8));
        }
        return written.toByteArray();
    }
}
