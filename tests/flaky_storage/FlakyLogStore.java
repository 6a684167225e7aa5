import io.delta.storage.LocalLogStore;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/**
 * A local storage that fails one commit in `flaky.every`, in turn before it is written, after it was (the answer is
 * lost), and after it was with the answer that it is there already (a store that tries by itself again finds its own).
 * What it did goes into the file `flaky.told`, a line each.
 */
public class FlakyLogStore extends LocalLogStore {
    private static final String[] KINDS = {"before", "after", "exists"};
    private static int commits = 0;
    private static int failed = 0;

    public FlakyLogStore(Configuration conf) {
        super(conf);
    }

    @Override
    public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration conf) throws IOException {
        String kind = path.getName().matches("\\d{20}\\.json") ? next(path, conf) : "";
        if (kind.equals("before")) {
            throw new IOException("503 Slow Down: " + path);
        }
        super.write(path, actions, overwrite, conf);
        if (kind.equals("after")) {
            throw new IOException("Connection reset: " + path);
        }
        if (kind.equals("exists")) {
            throw new FileAlreadyExistsException(path.toString());
        }
    }

    private static synchronized String next(Path path, Configuration conf) throws IOException {
        commits++;
        if (commits % conf.getInt("flaky.every", 10) != 0) {
            return "";
        }
        String kind = KINDS[failed++ % KINDS.length];
        String line = kind + " " + path + "\n";
        Files.write(
            Paths.get(conf.get("flaky.told")),
            line.getBytes(StandardCharsets.UTF_8),
            StandardOpenOption.CREATE,
            StandardOpenOption.APPEND);
        return kind;
    }
}
