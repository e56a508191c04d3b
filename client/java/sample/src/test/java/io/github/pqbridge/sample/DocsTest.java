package io.github.pqbridge.sample;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.pqbridge.Codec;
import io.github.pqbridge.PqClient;
import io.github.pqbridge.Push;
import io.github.pqbridge.Queue;
import io.github.pqbridge.Worker;
import io.github.pqbridge.testing.Bridge;
import io.github.pqbridge.testing.Page;
import io.github.pqbridge.testing.Page.Block;
import io.github.pqbridge.testing.Program;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import io.opentelemetry.api.OpenTelemetry;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** The examples of docs/java.md run as they stand. The one about FoundationDB has its own test. */
class DocsTest {
    private static final Page PAGE = new Page("docs/java.md");
    private static final List<String> IMPORTS = List.of(
            "io.github.pqbridge.*", "io.github.pqbridge.telemetry.*", "java.time.*", "java.util.List",
            "java.util.ArrayList", "java.util.Optional", "java.util.concurrent.*");
    private static final String JAVA = ProcessHandle.current().info().command().orElseThrow();
    private static Bridge bridge;
    private static PqClient client;

    @BeforeAll
    static void start() {
        bridge = Bridge.start();
        client = PqClient.connect(PqClient.options().server(bridge.url()).build());
    }

    @AfterAll
    static void stop() {
        client.close();
        bridge.close();
    }

    private static Stream<String> java(String chapter) {
        return PAGE.blocks(chapter).stream().filter(b -> b.language().equals("java")).map(Block::text);
    }

    static Stream<String> snippets() {
        return java("").filter(text -> !text.contains("class ")
                && !text.contains("PqClient.connect(")
                && !text.contains("FdbQueues"));
    }

    /** Each snippet runs on a queue of its own; another worker does what it calls. */
    @ParameterizedTest
    @MethodSource("snippets")
    void snippetsRun(String snippet) throws Exception {
        Queue jobs = client.priorityQueue("q" + UUID.randomUUID());
        Page.Names names = new Page.Names()
                .with("client", PqClient.class, client)
                .with("jobs", Queue.class, jobs)
                .with("registry", MeterRegistry.class, new SimpleMeterRegistry())
                .with("openTelemetry", OpenTelemetry.class, OpenTelemetry.noop());
        Worker helper = Worker.builder(jobs).handle(job -> job.result("sent", Codec.TEXT)).build();
        if (snippet.contains("jobs.call(")) {
            helper.start();
        }

        Page.run(snippet, IMPORTS, names);

        if (snippet.contains("jobs.call(")) {
            helper.close();
        }
    }

    /** The blocks of the first walk, pasted into one shell after each other, print what they should. */
    @Test
    void walkPrintsWhatThePageSays(@TempDir Path folder) throws Exception {
        Bridge own = Bridge.start();
        String walk = "A worker that survives a kill";
        List<String> programs = java(walk).filter(text -> text.contains("void main(")).toList();
        for (String program : programs) {
            Matcher name = Pattern.compile("^class (\\w+)", Pattern.MULTILINE).matcher(program);
            assertTrue(name.find());
            Files.writeString(folder.resolve(name.group(1) + ".java"), program);
        }
        Files.createSymbolicLink(folder.resolve("bin"), Program.inRepository("bin"));
        String script = PAGE.blocks(walk).stream()
                .filter(block -> block.language().equals("sh"))
                .map(Block::text)
                .collect(Collectors.joining()) + "wait $worker; echo it ended with $?\n";
        String want = PAGE.blocks(walk).stream()
                .filter(block -> block.language().equals("text"))
                .map(Block::text)
                .collect(Collectors.joining()) + "it ended with 143\n";
        Files.writeString(folder.resolve("walk.sh"), "cd '" + folder + "'; exec 2>errors\n" + paced(script));

        Map<String, String> environment = new HashMap<>(Map.of(
                "NATS_URL", own.url(),
                "CLASSPATH", System.getProperty("java.class.path"),
                "PATH", Path.of(JAVA).getParent() + ":" + System.getenv("PATH")));
        Program shell = Program.start(environment, List.of("bash", folder.resolve("walk.sh").toString()));
        shell.await("it ended with \\d+");

        assertEquals(want, shell.text(), () -> read(folder.resolve("errors")));
        shell.close();
        own.close();
    }

    /** Waits for the letter of the first worker before the next block, as a reader does. */
    private static String paced(String script) {
        return script.replace("java PushLetter.java full", "wait %2\njava PushLetter.java full");
    }

    private static String read(Path file) {
        try {
            return Files.readString(file);
        } catch (IOException e) {
            return e.toString();
        }
    }

    /** The first example connects to NATS_URL, as every program of the page does. */
    @Test
    void firstExampleConnects(@TempDir Path folder) throws IOException {
        String start = java("Start and log in").findFirst().orElseThrow();
        Program program = runProgram(folder, start, Map.of("NATS_URL", bridge.url()));
        program.await("(?m)^0$");
        program.close();
    }

    /** The login of the page, and the users of docs/access.md, who may not change settings. */
    @Test
    void workerLogsInAsAccessControlHasIt(@TempDir Path folder) throws IOException {
        String access = new Page("docs/access.md").blocks("").stream()
                .filter(block -> block.language().equals("conf"))
                .findFirst().orElseThrow().text();
        Path conf = Files.writeString(folder.resolve("nats.conf"), "listen: \"127.0.0.1:-1\"\n" + access);
        Map<String, String> secrets = new HashMap<>();
        Pattern.compile("\\$(\\w+_PASSWORD)").matcher(access).results().forEach(m -> secrets.put(m.group(1), "secret"));
        Program server = Program.start(
                secrets, List.of(Program.inRepository("bin/nats-server").toString(), "-c", conf.toString()));
        String url = server.await("Listening for client connections on (\\S+)").group(1);
        url = url.contains("://") ? url : "nats://" + url;
        Program pqbridge = Program.start(
                Map.of("PQ_NATS_URL", url, "PQ_NATS_USER", "bridge", "PQ_NATS_PASSWORD", "secret",
                        "PQ_DATA_DIR", folder.resolve("data").toString(), "PQ_HTTP_ADDR", "off"),
                List.of(Program.inRepository("bin/pqbridge").toString()));
        pqbridge.await("taking requests");
        try (PqClient admin = PqClient.connect(PqClient.options().server(url)
                .userInfo("admin".toCharArray(), "secret".toCharArray()).build())) {
            admin.priorityQueue("jobs").push(Push.of("for the worker").ttl(Duration.ofHours(1)));
        }

        String login = java("Start and log in")
                .filter(text -> text.contains("WORKER_PASSWORD"))
                .findFirst().orElseThrow();
        Program program = runProgram(
                folder,
                login + """
                        Lease lease = jobs.lease().orElseThrow();
                        lease.ack();
                        System.out.println(lease.text());
                        client.close();
                        """,
                Map.of("NATS_URL", url, "WORKER_PASSWORD", "secret"));

        program.await("for the worker");
        for (Program p : List.of(program, pqbridge, server)) {
            p.close();
        }
    }

    /** Runs statements in a process of their own, with variables that they read. */
    private static Program runProgram(Path folder, String statements, Map<String, String> environment)
            throws IOException {
        String imports = IMPORTS.stream().map(i -> "import " + i + ";\n").collect(Collectors.joining());
        Path file = Files.writeString(folder.resolve("Example.java"), imports
                + "class Example { public static void main(String[] a) throws Exception {\n" + statements + "}}\n");
        return Program.start(environment, List.of(JAVA, "-cp", System.getProperty("java.class.path"), file.toString()));
    }

    /** The program of the README, which shows the same as the project's, works and ends at SIGTERM. */
    @Test
    void readmeWorks(@TempDir Path folder) throws IOException {
        String hello = new Page("client/java/README.md").blocks("").get(0).text();
        assertTrue(Files.readString(Program.inRepository("README.md")).contains(hello));
        Path file = Files.writeString(folder.resolve("Hello.java"), hello);

        Program program = Program.start(
                Map.of("NATS_URL", bridge.url()),
                List.of(JAVA, "-cp", System.getProperty("java.class.path"), file.toString()));

        program.await("to eve");
        assertEquals(143, program.stop());
        program.close();
    }

    /** The chapter about Spring Boot shows the sample application. */
    @Test
    void chapterShowsTheSample() throws IOException {
        String sample = "client/java/sample/src/main/java/io/github/pqbridge/sample/";
        for (String block : java("Spring Boot").toList()) {
            String name = block.contains("class Postman") ? "Postman.java" : "LetterController.java";
            String source = Files.readString(Program.inRepository(sample + name));
            assertTrue(source.contains(block), () -> name + " has not:\n" + block);
        }
        String properties = PAGE.blocks("Spring Boot").stream()
                .filter(block -> block.language().equals("properties"))
                .findFirst().orElseThrow().text();
        assertEquals(properties, Files.readString(Program.inRepository(
                "client/java/sample/src/main/resources/application.properties")));
    }
}
