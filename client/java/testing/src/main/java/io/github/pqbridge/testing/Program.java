package io.github.pqbridge.testing;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.regex.MatchResult;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A program that ends with the test, and whose log is in the errors about it. */
public final class Program implements AutoCloseable {
    /** After this time, what a test waits for has hung. */
    public static final Duration PATIENCE = Duration.ofMinutes(2);

    private final Process process;
    private final Path log;

    private Program(Process process, Path log) {
        this.process = process;
        this.log = log;
    }

    /**
     * Starts a program. The developer's variables of pqbridge do not reach it.
     *
     * @param environment variables that it gets
     * @param command the program and its arguments
     * @return the program, which runs
     */
    public static Program start(Map<String, String> environment, List<String> command) {
        try {
            Path log = Files.createTempFile("pqbridge-", ".log");
            ProcessBuilder builder = new ProcessBuilder(command);
            builder.environment().keySet().removeIf(name -> name.startsWith("PQ_"));
            builder.environment().putAll(environment);
            builder.redirectErrorStream(true).redirectOutput(log.toFile());
            Process process = builder.start();
            Runtime.getRuntime().addShutdownHook(new Thread(process::destroyForcibly));
            return new Program(process, log);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /**
     * Finds a file of this repository.
     *
     * @param name its path from the root of the checkout
     * @return the file
     */
    public static Path inRepository(String name) {
        Path folder = Path.of("").toAbsolutePath();
        while (folder != null && !Files.exists(folder.resolve("go.mod"))) {
            folder = folder.getParent();
        }
        if (folder == null) {
            throw new IllegalStateException("these tests run in a checkout of the repository");
        }
        return folder.resolve(name);
    }

    /**
     * Waits until the log has a line.
     *
     * @param pattern of a part of the line
     * @return the first match
     */
    public MatchResult await(String pattern) {
        Matcher matcher = Pattern.compile(pattern).matcher("");
        long end = System.nanoTime() + PATIENCE.toNanos();
        while (true) {
            boolean ended = !process.isAlive();
            if (matcher.reset(text()).find()) {
                return matcher.toMatchResult();
            }
            if (ended || System.nanoTime() > end) {
                throw new AssertionError("no " + pattern + " in the log:\n" + text());
            }
            LockSupport.parkNanos(20_000_000);
        }
    }

    /**
     * Returns the log.
     *
     * @return all that the program has printed so far
     */
    public String text() {
        try {
            return Files.readString(log, StandardCharsets.UTF_8);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** Ends the program as kill -9 does. */
    public void kill() {
        process.destroyForcibly();
        awaitEnd();
    }

    /**
     * Ends the program as SIGTERM does.
     *
     * @return the status with which it ended
     */
    public int stop() {
        process.destroy();
        return awaitEnd();
    }

    /** Stops the program and removes its log. */
    @Override
    public void close() {
        stop();
        File file = log.toFile();
        if (!file.delete()) {
            file.deleteOnExit();
        }
    }

    private int awaitEnd() {
        try {
            if (!process.waitFor(PATIENCE.toSeconds(), TimeUnit.SECONDS)) {
                process.destroyForcibly();
                throw new AssertionError("the program goes on after SIGTERM:\n" + text());
            }
            return process.exitValue();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new AssertionError(e);
        }
    }
}
