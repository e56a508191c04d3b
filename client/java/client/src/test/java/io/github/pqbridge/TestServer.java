package io.github.pqbridge;

import io.nats.client.Connection;
import io.nats.client.Nats;
import io.nats.client.Options;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/** A bridge with its NATS server, or a NATS server alone, on a port that the system chooses. */
final class TestServer implements AutoCloseable {
    /** After that time a test that waits has hung. */
    static final Duration PATIENCE = Duration.ofMinutes(1);

    private static final Pattern READY =
            Pattern.compile("Ready\\. NATS is at (nats://\\S+:(\\d+))[\\s\\S]*taking requests");
    private static final Pattern LISTENING =
            Pattern.compile("Listening for client connections on \\S+:(\\d+)[\\s\\S]*Server is ready");

    private final Path folder;
    private final List<String> command;
    private final Pattern ready;
    private Process process;
    private String port = "0";
    private int starts;

    private TestServer(List<String> command, Pattern ready, Path folder) {
        this.command = command;
        this.ready = ready;
        this.folder = folder;
    }

    static TestServer bridge() {
        TestServer server = new TestServer(List.of(program("PQBRIDGE", "pqbridge"), "-dev"), READY, folder());
        server.start();
        return server;
    }

    /** Starts a NATS server without a bridge. */
    static TestServer nats(String config) {
        Path folder = folder();
        String file = folder.resolve("nats.conf").toString();
        List<String> command = List.of(program("NATS_SERVER", "nats-server"), "-c", file);
        TestServer server = new TestServer(command, LISTENING, folder);
        server.configure(config);
        server.start();
        return server;
    }

    /** Has a NATS server start with another configuration next time. */
    void configure(String config) {
        try {
            Files.writeString(folder.resolve("nats.conf"), "host: \"127.0.0.1\"\nport: -1\n" + config);
        } catch (IOException e) {
            throw new AssertionError(e);
        }
    }

    private static Path folder() {
        try {
            return Files.createTempDirectory("pqbridge");
        } catch (IOException e) {
            throw new AssertionError(e);
        }
    }

    private static String program(String variable, String name) {
        String named = System.getenv(variable);
        Path path = named == null ? Path.of("../../../bin", name).toAbsolutePath().normalize() : Path.of(named);
        if (!Files.isExecutable(path)) {
            throw new AssertionError(path + " is missing: want make build, or its path in " + variable);
        }
        return path.toString();
    }

    void start() {
        Path log = folder.resolve("log" + ++starts);
        try {
            List<String> again = new ArrayList<>(command);
            if (ready == LISTENING && starts > 1) {
                again.addAll(List.of("-p", port));
            }
            ProcessBuilder builder = new ProcessBuilder(again).redirectErrorStream(true).redirectOutput(log.toFile());
            builder.environment().keySet().removeIf(name -> name.startsWith("PQ_")); // of the developer
            builder.environment().putAll(Map.of(
                    "PQ_DEV_NATS_PORT", port, "PQ_HTTP_ADDR", "off", "PQ_DATA_DIR", folder.resolve("data").toString()));
            process = builder.start();
            Runtime.getRuntime().addShutdownHook(new Thread(process::destroyForcibly));
            await("the server is ready", () -> {
                if (!process.isAlive()) {
                    throw new AssertionError(command + " ended:\n" + text(log));
                }
                Matcher found = ready.matcher(text(log));
                if (!found.find()) {
                    return false;
                }
                port = found.group(found.groupCount());
                return true;
            });
        } catch (IOException e) {
            throw new AssertionError(e);
        }
    }

    private static String text(Path log) {
        try {
            return Files.readString(log);
        } catch (IOException e) {
            throw new AssertionError(e);
        }
    }

    /** Waits until something holds. */
    static void await(String what, BooleanSupplier holds) {
        for (long end = System.nanoTime() + PATIENCE.toNanos(); !holds.getAsBoolean(); ) {
            if (System.nanoTime() - end > 0) {
                throw new AssertionError("waited " + PATIENCE + " until " + what);
            }
            try {
                Thread.sleep(10);
            } catch (InterruptedException e) {
                throw new AssertionError(e);
            }
        }
    }

    String url() {
        return "nats://127.0.0.1:" + port;
    }

    Connection connect(Options.Builder options) {
        try {
            return Nats.connect(options.server(url()).build());
        } catch (IOException | InterruptedException e) {
            throw new AssertionError(e);
        }
    }

    PqClient client() {
        return PqClient.builder(connect(PqClient.options())).timeout(PATIENCE).build();
    }

    void kill() {
        process.destroyForcibly();
        try {
            if (!process.waitFor(PATIENCE.toSeconds(), TimeUnit.SECONDS)) {
                throw new AssertionError(command + " does not end");
            }
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
    }

    @Override
    public void close() {
        kill();
        try (Stream<Path> files = Files.walk(folder)) {
            for (Path file : new ArrayList<>(files.sorted(Comparator.reverseOrder()).toList())) {
                Files.delete(file);
            }
        } catch (IOException e) {
            throw new AssertionError(e);
        }
    }
}
