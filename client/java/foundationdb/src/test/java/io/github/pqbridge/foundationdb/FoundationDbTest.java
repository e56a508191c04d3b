package io.github.pqbridge.foundationdb;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import com.apple.foundationdb.Database;
import com.apple.foundationdb.FDBException;
import com.apple.foundationdb.KeyValue;
import com.apple.foundationdb.Range;
import com.apple.foundationdb.Transaction;
import com.apple.foundationdb.subspace.Subspace;
import com.apple.foundationdb.tuple.Tuple;
import io.github.pqbridge.testing.Bridge;
import io.github.pqbridge.testing.Page;
import io.github.pqbridge.testing.Program;
import io.nats.client.Connection;
import io.nats.client.Message;
import io.nats.client.Nats;
import io.nats.client.Subscription;
import io.nats.client.impl.Headers;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.Function;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Both ways through queues that real bridges serve, one with each format of values. */
class FoundationDbTest {
    private static final String CODE = "Nats-Service-Error-Code";
    private static final int API = Integer.getInteger("fdb.api", 730);
    private static final Map<ValueFormat, Store> STORES = new EnumMap<>(ValueFormat.class);
    private static FoundationServer server;
    private static Database db;

    /** A bridge, its queues, and a connection to its NATS server. */
    private record Store(Bridge bridge, FdbQueues queues, Connection nats) {
        /** Returns the payload of a reply, which must not be an error. */
        String ask(String subject, String payload) throws Exception {
            Message reply = request(subject, payload);
            assertEquals("", code(reply), subject);
            return text(reply.getData());
        }

        Message request(String subject, String payload) throws Exception {
            Message reply = nats.request(subject, bytes(payload), Program.PATIENCE);
            return Objects.requireNonNull(reply, subject);
        }
    }

    @BeforeAll
    static void start() throws Exception {
        String missing = FoundationServer.missing();
        if (!missing.isEmpty()) {
            System.out.println("skipped: tests of pqbridge-foundationdb, because " + missing);
            if ("1".equals(System.getenv("PQ_TEST_FDB"))) {
                fail("FoundationDB was asked for by PQ_TEST_FDB=1, but " + missing);
            }
        }
        Assumptions.assumeTrue(missing.isEmpty(), missing);

        server = new FoundationServer();
        db = FdbQueues.selectApiVersion(API).open(server.clusterFile().toString());
        for (ValueFormat format : ValueFormat.values()) {
            String prefix = format.name().toLowerCase(Locale.ROOT);
            Bridge bridge = Bridge.start(Map.of(
                    "PQ_STORE", "fdb",
                    "PQ_FDB_CLUSTER_FILE", server.clusterFile().toString(),
                    "PQ_FDB_API_VERSION", Integer.toString(API),
                    "PQ_KEY_PREFIX", prefix,
                    "PQ_FIFO_KEY_PREFIX", prefix + "-fifo",
                    "PQ_VALUE_FORMAT", prefix));
            FdbQueues queues = new FdbQueues(prefix, prefix + "-fifo", format);
            STORES.put(format, new Store(bridge, queues, Nats.connect(bridge.url())));
        }
    }

    @AfterAll
    static void stop() throws Exception {
        for (Store store : STORES.values()) {
            store.nats.close();
            store.bridge.close();
        }
        if (db != null) {
            db.close();
        }
        if (server != null) {
            server.close();
        }
    }

    /** A bridge serves what Java pushed in a transaction of its own, in the order of the queue. */
    @ParameterizedTest
    @EnumSource
    void bridgeServesWhatJavaPushes(ValueFormat format) throws Exception {
        Store store = STORES.get(format);
        String name = name();
        FdbPriorityQueue jobs = store.queues.priorityQueue(name);
        FdbFifoQueue mail = store.queues.fifoQueue(name);

        transact(tr -> {
            tr.set(bytes("beside " + name), bytes("the order"));
            jobs.push(tr, 5, bytes("five"));
            jobs.push(tr, 5, bytes("five again"));
            jobs.push(tr, Long.MIN_VALUE, bytes("first\0\u00ff"));
            jobs.push(tr, Long.MAX_VALUE, new byte[0]);
            mail.push(tr, bytes("one"));
            mail.push(tr, bytes("two"));
        });

        for (String want : List.of("first\0\u00ff", "five", "five again", "")) {
            assertEquals(want, store.ask("pq." + name + ".pop.min", ""));
        }
        for (String want : List.of("one", "two")) {
            assertEquals(want, store.ask("q." + name + ".pop", ""));
        }
        assertEquals("404", code(store.request("pq." + name + ".pop.min", "")));
        byte[] beside = db.read(tr -> tr.get(bytes("beside " + name)).join());
        assertEquals("the order", text(beside));
    }

    /** Java pops what was pushed over NATS, from either end, and a bridge pops none of it again. */
    @ParameterizedTest
    @EnumSource
    void javaPopsWhatBridgesTook(ValueFormat format) throws Exception {
        Store store = STORES.get(format);
        String name = name();
        FdbPriorityQueue jobs = store.queues.priorityQueue(name);
        FdbFifoQueue mail = store.queues.fifoQueue(name);
        for (int priority : new int[] {7, -2, 0, 3}) {
            store.ask("pq." + name + ".push." + priority, "at " + priority + "\0");
        }
        store.ask("q." + name + ".push", "one");

        assertEquals("at -2\0", run(jobs::popMin));
        assertEquals("at 7\0", run(jobs::popMax));
        assertEquals("at 3\0", text(db.runAsync(jobs::popMaxAsync).join().orElseThrow()));
        assertEquals("at 0\0", text(db.runAsync(jobs::popMinAsync).join().orElseThrow()));
        assertEquals("nothing", run(jobs::popMin));
        assertEquals("one", run(mail::pop));
        assertEquals("nothing", run(mail::pop));
        assertEquals("404", code(store.request("pq." + name + ".pop.min", "")));
    }

    /** Items of other programs with the recipes are popped, and the next push counts on. */
    @ParameterizedTest
    @EnumSource
    void itemsOfTheRecipesArePopped(ValueFormat format) throws Exception {
        String root = "vectors-" + format;
        String fifoRoot = root + "-fifo";
        FdbQueues queues = new FdbQueues(root, fifoRoot, format);
        FdbPriorityQueue jobs = queues.priorityQueue("jobs");
        FdbFifoQueue mail = queues.fifoQueue("mail");
        List<Vectors> theirJobs = Vectors.of("priority_queue");
        List<Vectors> theirMail = Vectors.of("queue");

        transact(tr -> {
            theirJobs.forEach(i -> tr.set(i.keyBelow("pq", root), i.stored(format)));
            theirMail.forEach(i -> tr.set(i.keyBelow("q", fifoRoot), i.stored(format)));
            jobs.push(tr, 1L << 40, bytes("last"));
            mail.push(tr, bytes("last"));
        });

        assertEquals(8, lastNumber(new Subspace(Tuple.from(root, "jobs", "i", 1L << 40))));
        assertEquals(301, lastNumber(new Subspace(Tuple.from(fifoRoot, "mail", "i"))));
        for (Vectors item : theirJobs) {
            assertArrayEquals(item.value(), db.run(jobs::popMin).orElseThrow());
        }
        for (Vectors item : theirMail) {
            assertArrayEquals(item.value(), db.run(mail::pop).orElseThrow());
        }
        assertEquals("last", run(jobs::popMax));
        assertEquals("last", run(mail::pop));
        assertEquals(List.of(), keysBelow(root), "the queue leaves nothing");
        assertEquals(List.of(), keysBelow(fifoRoot), "the queue leaves nothing");
    }

    /** A worker that waits over NATS has a job that Java pushes, though no bridge is told of it. */
    @ParameterizedTest
    @EnumSource
    void workerThatWaitsHasTheJob(ValueFormat format) throws Exception {
        Store store = STORES.get(format);
        String name = name();
        String inbox = store.nats.createInbox();
        Subscription replies = store.nats.subscribe(inbox);
        String wait = "{\"expires\":\"1h\",\"ack_wait\":\"1m\",\"idle_heartbeat\":\"100ms\"}";
        store.nats.publish("pq." + name + ".pop.min", inbox, bytes(wait));
        assertTrue(isHeartbeat(next(replies)), "the request waits");

        transact(tr -> store.queues.priorityQueue(name).push(tr, 5, bytes("job")));

        Message job = next(replies);
        while (isHeartbeat(job)) {
            job = next(replies);
        }
        assertEquals("job", text(job.getData()));
        assertEquals("5", job.getHeaders().getFirst("Pq-Priority"));
    }

    /** While threads push and pop in transactions, and others over NATS, each item comes once. */
    @Test
    void eachItemComesOutOnce() throws Exception {
        int each = 40;
        Store store = STORES.get(ValueFormat.RAW);
        String name = name();
        FdbPriorityQueue jobs = store.queues.priorityQueue(name);
        Set<String> popped = ConcurrentHashMap.newKeySet();
        List<Callable<Void>> tasks = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            String thread = " of thread " + i;
            tasks.add(repeat(each, n -> {
                transact(tr -> jobs.push(tr, n % 3, bytes("Java's " + n + thread)));
                store.ask("pq." + name + ".push." + n % 3, "NATS's " + n + thread);
            }));
            tasks.add(repeat(each, n -> {
                String value = "nothing";
                while (value.equals("nothing")) {
                    value = run(n % 2 == 0 ? jobs::popMin : jobs::popMax);
                }
                assertTrue(popped.add(value), value + " came twice");
            }));
            tasks.add(repeat(each, n -> {
                String value = store.ask("pq." + name + ".pop.min", "{\"expires\":\"1m\"}");
                assertTrue(popped.add(value), value + " came twice");
            }));
        }

        ExecutorService threads = Executors.newFixedThreadPool(tasks.size());
        for (Future<Void> done : threads.invokeAll(tasks)) {
            done.get(Program.PATIENCE.toSeconds(), TimeUnit.SECONDS);
        }
        threads.shutdown();

        assertEquals(4 * each, popped.size());
    }

    /** A transaction that does not commit has pushed nothing, and popped nothing. */
    @Test
    void nothingHappensBeforeTheCommit() {
        FdbPriorityQueue jobs = STORES.get(ValueFormat.RAW).queues.priorityQueue(name());
        transact(tr -> jobs.push(tr, 1, bytes("there")));

        Throwable failed = assertThrows(CompletionException.class, () -> transact(tr -> {
            assertEquals("there", text(jobs.popMin(tr).orElseThrow()));
            jobs.push(tr, 1, bytes("never"));
            throw new IllegalStateException("no");
        }));

        assertEquals("no", failed.getCause().getMessage());
        assertEquals("there", run(jobs::popMin));
        assertEquals("nothing", run(jobs::popMin));
    }

    /** FoundationDB refuses a value above its limit when the transaction commits. */
    @Test
    void valuesThatAreTooLargeFailTheCommit() {
        FdbFifoQueue mail = STORES.get(ValueFormat.RAW).queues.fifoQueue(name());
        transact(tr -> mail.push(tr, new byte[100_000]));

        Throwable failed = assertThrows(CompletionException.class,
                () -> transact(tr -> mail.push(tr, new byte[100_001])));

        assertEquals(2103, ((FDBException) failed.getCause()).getCode());
        assertEquals(100_000, db.run(mail::pop).orElseThrow().length);
        assertEquals("nothing", run(mail::pop));
    }

    /** The example of docs/java.md pushes a job beside an order, once. */
    @Test
    void pageExample() throws Exception {
        String example = new Page("docs/java.md").blocks("In a FoundationDB transaction").stream()
                .filter(block -> block.language().equals("java"))
                .findFirst().orElseThrow().text();
        byte[] order = bytes("order " + name());
        Page.Names names = new Page.Names()
                .with("clusterFile", String.class, server.clusterFile().toString())
                .with("order", byte[].class, order)
                .with("goods", byte[].class, bytes("goods"));
        List<String> imports = List.of("com.apple.foundationdb.*", "io.github.pqbridge.foundationdb.*");

        for (int i = 0; i < 2; i++) {
            Page.run(example.replace("730", Integer.toString(API)), imports, names);
        }

        FdbPriorityQueue jobs = new FdbQueues(ValueFormat.RAW).priorityQueue("jobs");
        assertEquals(text(order), run(jobs::popMin));
        assertEquals("nothing", run(jobs::popMin));
    }

    /** Without the client library, the exception names it. */
    @Test
    void missingLibraryIsNamed() {
        List<String> command = List.of(
                ProcessHandle.current().info().command().orElseThrow(),
                "-DFDB_LIBRARY_PATH_FDB_JAVA=/nowhere/libfdb_java.so",
                "-cp", System.getProperty("java.class.path"), Select.class.getName());
        try (Program program = Program.start(Map.of(), command)) {
            program.await("first: .*libfdb_c cannot be loaded: install .*/nowhere/libfdb_java.so");
            program.await("second: .*libfdb_c cannot be loaded: install ");
        }
    }

    /** A program on a machine without the library. */
    static final class Select {
        public static void main(String[] arguments) {
            for (String call : List.of("first", "second")) {
                try {
                    FdbQueues.selectApiVersion(API);
                } catch (IllegalStateException e) {
                    System.out.println(call + ": " + e.getMessage());
                }
            }
        }
    }

    private static Callable<Void> repeat(int times, Attempt attempt) {
        return () -> {
            for (int n = 0; n < times; n++) {
                attempt.run(n);
            }
            return null;
        };
    }

    private interface Attempt {
        void run(int n) throws Exception;
    }

    private static void transact(Consumer<Transaction> work) {
        db.run(tr -> {
            work.accept(tr);
            return null;
        });
    }

    private static String run(Function<Transaction, Optional<byte[]>> pop) {
        return db.run(pop).map(FoundationDbTest::text).orElse("nothing");
    }

    /** The number of the last item below a subspace. */
    private static long lastNumber(Subspace within) {
        List<KeyValue> last = db.read(tr -> tr.getRange(within.range(), 1, true).asList().join());
        return within.unpack(last.get(0).getKey()).getLong(0);
    }

    private static List<KeyValue> keysBelow(String root) {
        Range range = Range.startsWith(Tuple.from(root).pack());
        return db.read(tr -> tr.getRange(range).asList().join());
    }

    /** The code of an error, or an empty text. */
    private static String code(Message reply) {
        Headers headers = reply.getHeaders();
        return headers == null || headers.getFirst(CODE) == null ? "" : headers.getFirst(CODE);
    }

    private static boolean isHeartbeat(Message reply) {
        return reply.getHeaders().containsKey("Pq-Heartbeat");
    }

    private static Message next(Subscription replies) throws Exception {
        return Objects.requireNonNull(replies.nextMessage(Program.PATIENCE), "a reply");
    }

    private static String name() {
        return "q" + UUID.randomUUID();
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
