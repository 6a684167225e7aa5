import java.io.FileNotFoundException;
import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.channels.FileChannel;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Arrays;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFs;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FsServerDefaults;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.local.LocalConfigKeys;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's local files, all but four things. Without its native library Hadoop starts a process to set a file's mode
 * (chmod) and another to see whether a file is a link (readlink), some 500 in a run of topicledger: Java itself knows.
 * And it looks whether a name is free before it renames a file to it, so that of two processes that commit the same
 * version of a Delta table at once both can succeed, and one commit is lost: a link is made where there is none only.
 * And it leaves it to the system when a file gets to the disk: a power cut can take a commit, or leave it without the
 * rows that it names. Here a file is on the disk when it is closed (its checksums aside: Hadoop does without them), and
 * its new name is when it has it. The property `topicledger.fsync` = false leaves that out.
 */
public class LocalFiles extends LocalFileSystem {
    public LocalFiles() {
        super(new Raw());
    }

    /** The same for Hadoop's other interface, FileContext, by which Delta writes its log. */
    public static class Context extends ChecksumFs {
        public Context(URI uri, Configuration conf) throws IOException, URISyntaxException {
            super(new RawContext(uri, conf));
        }
    }

    private static class Raw extends RawLocalFileSystem {
        @Override
        protected OutputStream createOutputStreamWithMode(Path path, boolean append, FsPermission permission)
                throws IOException {
            var out = super.createOutputStreamWithMode(path, append, permission);
            return syncs(path) ? new Synced(out, pathToFile(path).toPath()) : out;
        }

        private boolean syncs(Path path) {
            return getConf().getBoolean("topicledger.fsync", true) && !path.getName().endsWith(".crc");
        }

        @Override
        public void setPermission(Path path, FsPermission permission) throws IOException {
            if (permission.getStickyBit()) {
                super.setPermission(path, permission);
                return;
            }
            var mode = PosixFilePermissions.fromString(permission.toString());
            Files.setPosixFilePermissions(pathToFile(path).toPath(), mode);
        }

        @Override
        @Deprecated
        protected void rename(Path from, Path to, Options.Rename... options) throws IOException {
            boolean replaces = Arrays.asList(options).contains(Options.Rename.OVERWRITE);
            var source = pathToFile(from).toPath();
            if (replaces || !Files.isRegularFile(source, LinkOption.NOFOLLOW_LINKS)) {
                super.rename(from, to, options);
                return;
            }
            try {
                Files.createLink(pathToFile(to).toPath(), source);
            } catch (java.nio.file.FileAlreadyExistsException error) {
                throw new FileAlreadyExistsException("rename destination " + to + " already exists.");
            } catch (NoSuchFileException error) {
                throw (IOException) new FileNotFoundException(error.getMessage() + " does not exist.").initCause(error);
            } catch (UnsupportedOperationException | FileSystemException error) {
                // Hadoop's own rename can overwrite a file: it is for file systems that have nothing better.
                if (makesLinks(pathToFile(to).toPath().getParent())) {
                    throw error;
                }
                super.rename(from, to, options);
                return;
            }
            Files.delete(source);
            if (syncs(to)) {
                syncFolder(pathToFile(to).toPath().getParent());
            }
        }

        /** Tried with a file of its own: the reasons that a file system gives differ. */
        private static boolean makesLinks(java.nio.file.Path folder) throws IOException {
            var one = Files.createTempFile(folder, ".topicledger-", ".tmp");
            var other = one.resolveSibling(one.getFileName() + "-link");
            try {
                Files.createLink(other, one);
                return true;
            } catch (UnsupportedOperationException | FileSystemException error) {
                return false;
            } finally {
                Files.deleteIfExists(other);
                Files.deleteIfExists(one);
            }
        }

        @Override
        public FileStatus getFileLinkStatus(Path path) throws IOException {
            boolean link = Files.isSymbolicLink(pathToFile(path).toPath());
            return link ? super.getFileLinkStatus(path) : getFileStatus(path);
        }
    }

    /** A file that is on the disk when it is closed. */
    private static class Synced extends FilterOutputStream {
        private final java.nio.file.Path path;
        private boolean closed;

        Synced(OutputStream out, java.nio.file.Path path) {
            super(out);
            this.path = path;
        }

        @Override
        public void write(byte[] bytes, int offset, int length) throws IOException {
            out.write(bytes, offset, length);
        }

        @Override
        public void close() throws IOException {
            if (closed) {
                return;
            }
            closed = true;
            super.close();
            try (var file = FileChannel.open(path, StandardOpenOption.WRITE)) {
                file.force(true);
            }
        }
    }

    /** Some file systems know no such thing of a folder; those that do have its new names on the disk then. */
    private static void syncFolder(java.nio.file.Path folder) {
        try (var file = FileChannel.open(folder, StandardOpenOption.READ)) {
            file.force(true);
        } catch (IOException error) {
            // The file itself is on the disk.
        }
    }

    /** As Hadoop's RawLocalFs, which can't be extended. */
    private static class RawContext extends DelegateToFileSystem {
        RawContext(URI uri, Configuration conf) throws IOException, URISyntaxException {
            super(uri, new Raw(), conf, "file", false);
        }

        @Override
        public int getUriDefaultPort() {
            return -1;
        }

        @Override
        public FsServerDefaults getServerDefaults(Path path) throws IOException {
            return LocalConfigKeys.getServerDefaults();
        }

        @Override
        @Deprecated
        public FsServerDefaults getServerDefaults() throws IOException {
            return LocalConfigKeys.getServerDefaults();
        }

        @Override
        public boolean isValidName(String name) {
            return true;
        }
    }
}
