package io.github.pqbridge.sample;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.pqbridge.PqClient;
import io.github.pqbridge.Settings;
import io.github.pqbridge.testing.Bridge;
import io.github.pqbridge.testing.Page;
import io.github.pqbridge.testing.Page.Block;
import io.github.pqbridge.testing.Program;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** The application runs as it would in production: in a process of its own, over HTTP. */
class SampleApplicationTest {
    private static final HttpClient HTTP = HttpClient.newHttpClient();
    private static Bridge bridge;

    @BeforeAll
    static void start() {
        bridge = Bridge.start();
        Settings settings = Settings.of().maxDeliver(3).backoff(Duration.ofMillis(100));
        client(client -> client.priorityQueue("letters").configure(settings));
    }

    @AfterAll
    static void stop() {
        bridge.close();
    }

    /** An instance of the application, and the port that it serves. */
    private record Application(Program program, String port) {
        static Application start() {
            String java = ProcessHandle.current().info().command().orElseThrow();
            Program program = Program.start(
                    Map.of("NATS_URL", bridge.url(), "SERVER_PORT", "0"),
                    List.of(java, "-XX:TieredStopAtLevel=1",
                            "-cp", System.getProperty("java.class.path"), SampleApplication.class.getName()));
            String port = program.await("Tomcat started on port (\\d+)").group(1);
            program.await("Started SampleApplication");
            return new Application(program, port);
        }

        String get(String path) throws IOException, InterruptedException {
            return send(HttpRequest.newBuilder(uri(path)).build());
        }

        String post(String letter) throws IOException, InterruptedException {
            return send(HttpRequest.newBuilder(uri("/letters"))
                    .header("Content-Type", "application/json")
                    .POST(HttpRequest.BodyPublishers.ofString(letter))
                    .build());
        }

        private String send(HttpRequest request) throws IOException, InterruptedException {
            return HTTP.send(request, BodyHandlers.ofString()).body();
        }

        private URI uri(String path) {
            return URI.create("http://localhost:" + port + path);
        }
    }

    /** Letters are sent, and what cannot be sent is a dead letter with the reason. */
    @Test
    void lettersAreSentOrDead() throws Exception {
        Application application = Application.start();
        String eve = application.post("{\"to\":\"eve\"}");
        String full = application.post("{\"to\":\"full\"}");

        assertEquals("sent to eve", application.get("/letters/" + eve));
        assertEquals("dead IOException: the mailbox is full", application.get("/letters/" + full));
        application.program.await("to full, delivery 3");
        String health = application.get("/actuator/health");
        assertTrue(health.contains("\"pqbridge\":{\"details\":{\"nats\":\"CONNECTED\""), health);
        application.program.close();
    }

    /** The commands of the page, pasted together, print what it says. */
    @Test
    void commandsPrintWhatThePageSays() {
        Application application = Application.start();
        List<Block> blocks = new Page("docs/java.md").blocks("Spring Boot");
        Block curl = blocks.stream().filter(block -> block.text().contains("curl")).findFirst().orElseThrow();
        String script = curl.text().replace("localhost:8080", "localhost:" + application.port);

        Program shell = Program.start(Map.of(), List.of("bash", "-c", script + "\necho; echo over"));
        shell.await("over");

        assertEquals(blocks.get(blocks.indexOf(curl) + 1).text() + "over\n", shell.text());
        shell.close();
        application.program.close();
    }

    /** A letter survives a kill, and an application that is asked to end sends its letter first. */
    @Test
    void killsAndStopsLoseNothing() throws Exception {
        Application first = Application.start();
        String id = first.post("{\"to\":\"bob\",\"takes\":\"PT5S\"}");
        first.program.await("to bob, delivery 1");
        first.program.kill();

        Application second = Application.start();
        second.program.await("to bob, delivery 2");
        assertEquals(143, second.program.stop());

        client(client -> assertEquals("sent to bob", client.priorityQueue("letters").result(id).text()));
        first.program.close();
        second.program.close();
    }

    private static void client(Consumer<PqClient> work) {
        try (PqClient client = PqClient.connect(PqClient.options().server(bridge.url()).build())) {
            work.accept(client);
        }
    }
}
