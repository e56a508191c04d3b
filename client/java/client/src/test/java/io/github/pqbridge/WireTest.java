package io.github.pqbridge;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** What is checked and written without a connection. */
class WireTest {
    /** Durations of bridges are read exactly, and what is none is refused. */
    @Test
    void durationsAreRead() {
        assertEquals(Duration.ofSeconds(90), Wire.parseDuration("1m30s"));
        assertEquals(Duration.ofMillis(1500), Wire.parseDuration("1.5s"));
        assertEquals(Duration.ofHours(87600), Wire.parseDuration("87600h0m0s"));
        assertEquals(Duration.ofNanos(1_500_000), Wire.parseDuration("1.5ms"));
        assertEquals(Duration.ZERO, Wire.parseDuration("0"));
        for (String wrong : List.of("", "5", "1d", "s", "1s ", "-1s")) {
            assertThrows(BadReplyException.class, () -> Wire.parseDuration(wrong), wrong);
        }
    }

    /** Any bytes are a text that is sent as these bytes. */
    @Test
    void bytesSurviveAsText() {
        long seed = System.nanoTime();
        Random random = new Random(seed);
        for (int i = 0; i < 2000; i++) {
            byte[] bytes = new byte[random.nextInt(12)];
            random.nextBytes(bytes);
            byte[] back = Wire.encode(Wire.decode(bytes, 0, bytes.length));
            assertArrayEquals(bytes, back, () -> seed + " " + Arrays.toString(bytes));
        }
        String text = "Käse 🧀 \uFFFD";
        byte[] utf8 = text.getBytes(StandardCharsets.UTF_8);
        assertEquals(text, Wire.decode(utf8, 0, utf8.length));
    }

    /** Frames that are cut or counted wrongly are refused. */
    @Test
    void framesAreWhole() {
        byte[] frame = Wire.frame(-1, List.of(new Header("A", "ü"), new Header("A", "")), new byte[] {7});
        Wire.Frame read = Wire.parseFrames(frame, 1).get(0);
        assertEquals(List.of("ü", ""), read.headers().all("A"));
        assertArrayEquals(new byte[] {7}, read.value());
        assertThrows(BadReplyException.class, () -> Wire.parseFrames(frame, 2));
        for (int cut = 1; cut < frame.length; cut++) {
            byte[] part = Arrays.copyOf(frame, cut);
            assertThrows(BadReplyException.class, () -> Wire.parseFrames(part, 1));
        }
        assertEquals(frame.length, Push.of(new byte[] {7}).header("A", "ü").header("A", "").prepare("", 0).size());
    }

    private static void refuses(String says, Executable call) {
        BadArgumentException e = assertThrows(BadArgumentException.class, call);
        assertTrue(e.getMessage().contains(says), e.getMessage());
        assertEquals(400, e.code());
    }

    /** What cannot be sent is refused with what would be right. */
    @Test
    void wrongArgumentsAreNamed() {
        Push push = Push.of("a");
        refuses("want one", () -> Push.of((byte[]) null));
        refuses("want text", () -> Push.of("half \uD83D"));
        refuses("1 to 512", () -> push.msgId(""));
        refuses("1 to 512", () -> push.unique(""));
        refuses("1 to 128", () -> push.group(""));
        refuses("joiner -1: want", () -> push.joiner(-1));
        refuses("open PT0S: want", () -> push.guard(Duration.ZERO));
        refuses("headers is null", () -> push.headers(null));
        refuses("max_items is NaN: want", () -> Settings.of().set("max_items", Double.NaN));
        refuses("jitter is Infinity: want", () -> Schedule.of("a").set("jitter", Double.POSITIVE_INFINITY));
        refuses("1 to 512", () -> push.unique("ü".repeat(257)));
        refuses("1 to 128", () -> push.group(" "));
        refuses("1 to 100", () -> push.weight(101));
        refuses("PT1S", () -> push.ttl(Duration.ofMillis(999)));
        refuses("ttl is null", () -> push.ttl(null));
        refuses("PT0S", () -> push.delay(Duration.ofSeconds(-1)));
        refuses("PT87600H", () -> push.delay(Duration.ofDays(3651)));
        refuses("year 10000", () -> push.at(Instant.MAX));
        refuses("want delay(...)", () -> push.header("Pq-Delay", "1s"));
        refuses("in one line", () -> push.header("A", "b\r\nNats-Rollup: all"));
        refuses("want a name", () -> push.header("a b", "c"));
        refuses("surrogate", () -> push.header("A", "\uD83D"));
        refuses("want one of them", () -> Push.of("a").delay(Duration.ZERO).at(Instant.now()).prepare("", 0));
        refuses("an item before it", () -> Push.of("a").joiner(1).prepare("", 1));
        refuses("PT1H", () -> PopOptions.of().expires(Duration.ofHours(2)));
        refuses("PT0.1S", () -> PopOptions.of().ackWait(Duration.ofMillis(99)));
        refuses("1 or more", () -> PopOptions.of().maxBytes(0));
        refuses("0 to 65536", () -> ItemsQuery.of().valueBytes(70_000));
        refuses("want text, a number", () -> Settings.of().set("x", new Object()));
        refuses("queue name", () -> Settings.of().next("a b"));
        refuses("want one", () -> JobName.id(null));
        refuses("want an id", () -> JobName.msgId(""));
        refuses("want one", () -> Ack.of().result((byte[]) null));
        Ack ack = Ack.of();
        for (int i = 0; i < Acks.MAX_SUCCESSORS; i++) {
            ack.next("other", push);
        }
        refuses("at most 256", () -> ack.next("other", push));
    }

    /** JSON is written in ASCII, and its integers are read exactly. */
    @Test
    void jsonIsExact() {
        String text = Json.text(Json.of("holder", "Jürgen \"🧀\"\n", "batch", 5, "absent", null, "none", List.of()));
        assertEquals("{\"holder\":\"J\\u00fcrgen \\u0022\\ud83e\\uddc0\\u0022\\u000a\",\"batch\":5,\"none\":[]}", text);
        String wide = """
                {"queue":"q","a":9223372036854775807,"b":[1,true,"x"],"c":{"d":-9223372036854775808}}""";
        Map<String, Object> read = Json.read(wide.getBytes(StandardCharsets.UTF_8), "queue").toMap();
        assertEquals(Long.MAX_VALUE, read.get("a"));
        assertEquals(List.of(1L, true, "x"), read.get("b"));
        assertEquals(Map.of("d", Long.MIN_VALUE), read.get("c"));
    }

    /** As many acknowledgements go into a request as a message has room for; a lease without a token goes alone. */
    @Test
    void acknowledgementsFit() {
        List<Acks.Done> plain = List.of(done("t", null), done("t", null), done("t", null));
        assertEquals(3, Acks.fitting(plain, 1 << 20));
        assertEquals(1, Acks.fitting(List.of(done("t", new byte[800]), done("t", new byte[800])), 2048));
        assertEquals(1, Acks.fitting(List.of(done("", null), done("t", null)), 1 << 20));
        assertEquals(1, Acks.fitting(List.of(done("t", null), done("", null)), 1 << 20));
        List<Acks.Done> many = java.util.Collections.nCopies(1200, done("t", null));
        assertEquals(1000, Acks.fitting(many, 1 << 20));
    }

    private static Acks.Done done(String token, byte[] result) {
        String subject = token.isEmpty() ? "_R_.1" : "pq.jobs.ack." + token;
        Lease lease = new Lease(null, new Received(new byte[0], Headers.NONE, subject, 0), Duration.ofSeconds(1));
        return new Acks.Done(lease, result, "", List.of());
    }
}
