package io.github.pqbridge.foundationdb;

import io.github.pqbridge.testing.Program;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/** A FoundationDB cluster of one process, with its data in a temporary folder. */
final class FoundationServer implements AutoCloseable {
    private final Path folder;
    private final Program server;

    /** Says what this machine lacks, or returns an empty text. */
    static String missing() {
        if ("0".equals(System.getenv("PQ_TEST_FDB"))) {
            return "PQ_TEST_FDB=0 says that the bridge is built without FoundationDB";
        }
        if (Stream.of("/usr/lib", "/usr/local/lib", "/usr/lib64")
                .noneMatch(folder -> Files.exists(Path.of(folder, "libfdb_c.so")))) {
            return "libfdb_c is not installed";
        }
        for (String name : new String[] {"fdbserver", "fdbcli"}) {
            if (!Files.isExecutable(program(name))) {
                return name + " is not installed";
            }
        }
        return "";
    }

    FoundationServer() throws IOException {
        folder = Files.createTempDirectory("pqbridge-fdb-");
        Files.createDirectory(folder.resolve("log"));
        String address = "127.0.0.1:" + freePort();
        Files.writeString(clusterFile(), "pqtest:pqtest@" + address);
        server =
                Program.start(
                        Map.of(),
                        List.of(
                                program("fdbserver").toString(),
                                "--public-address=" + address,
                                "--cluster-file=" + clusterFile(),
                                "--datadir=" + folder.resolve("data"),
                                "--logdir=" + folder.resolve("log"),
                                "--parentpid=" + ProcessHandle.current().pid(),
                                "--memory=4GiB",
                                "--cache-memory=256MiB",
                                "--storage-memory=1GiB",
                                // It slows down below 5 % of the disk.
                                "--knob_min_available_space_ratio=0.001"));
        try (Program configure =
                Program.start(
                        Map.of(),
                        List.of(
                                program("fdbcli").toString(),
                                "-C",
                                clusterFile().toString(),
                                "--timeout",
                                "100",
                                "--exec",
                                "configure new single memory"))) {
            configure.await("Database created");
        }
    }

    Path clusterFile() {
        return folder.resolve("fdb.cluster");
    }

    @Override
    public void close() throws IOException {
        server.close();
        try (Stream<Path> files = Files.walk(folder)) {
            files.sorted((a, b) -> b.compareTo(a)).forEach(file -> file.toFile().delete());
        }
    }

    // Packages put the server where only root's PATH finds it.
    private static Path program(String name) {
        return Stream.of("/usr/sbin", "/usr/bin", "/usr/local/bin", "/usr/local/libexec")
                .map(folder -> Path.of(folder, name))
                .filter(Files::isExecutable)
                .findFirst()
                .orElse(Path.of(name));
    }

    private static int freePort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return socket.getLocalPort();
        }
    }
}
