package io.github.pqbridge.testing;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.MatchResult;
import java.util.stream.Stream;

/** A bridge and its NATS server in one process, which can be killed and started again. */
public final class Bridge implements AutoCloseable {
    private final Map<String, String> environment;
    private final Path folder;
    private Program program;
    private String url;

    private Bridge(Path folder, Map<String, String> environment) {
        this.folder = folder;
        this.environment = new HashMap<>(environment);
        this.environment.put("PQ_DATA_DIR", folder.toString());
        this.environment.put("PQ_HTTP_ADDR", "off");
        this.environment.put("PQ_DEV_NATS_PORT", "0"); // the system chooses it
    }

    /**
     * Starts a bridge on the embedded store.
     *
     * @return the bridge, which takes requests
     */
    public static Bridge start() {
        return start(Map.of());
    }

    /**
     * Starts a bridge.
     *
     * @param environment variables that it gets
     * @return the bridge, which takes requests
     */
    public static Bridge start(Map<String, String> environment) {
        try {
            Bridge bridge = new Bridge(Files.createTempDirectory("pqbridge-"), environment);
            bridge.restart();
            return bridge;
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** Starts a killed bridge with its port and its data. */
    public void restart() {
        Path pqbridge = Program.inRepository("bin/pqbridge");
        if (!Files.exists(pqbridge)) {
            throw new IllegalStateException(pqbridge + " is missing: make build");
        }
        program = Program.start(environment, List.of(pqbridge.toString(), "-dev"));
        MatchResult ready = program.await("Ready\\. NATS is at (nats://\\S+:(\\d+))");
        program.await("taking requests");
        url = ready.group(1);
        environment.put("PQ_DEV_NATS_PORT", ready.group(2));
    }

    /**
     * Returns where its NATS server is.
     *
     * @return the URL
     */
    public String url() {
        return url;
    }

    /** Ends the bridge and its NATS server as kill -9 does. */
    public void kill() {
        program.kill();
    }

    /** Stops the bridge and removes its data. */
    @Override
    public void close() {
        program.close();
        try (Stream<Path> files = Files.walk(folder)) {
            files.sorted((a, b) -> b.compareTo(a)).forEach(file -> file.toFile().delete());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
