package io.github.pqbridge;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.ResourceBundle;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.api.Timeout;

/** Workers at a bridge, beside the table of behaviour that all clients share. */
@Timeout(value = 2, unit = TimeUnit.MINUTES)
class WorkerTest {
    private static TestServer server;

    private final BlockingQueue<String> heard = new LinkedBlockingQueue<>();
    private PqClient client;
    private Queue queue;

    @BeforeAll
    static void startServer() {
        server = TestServer.bridge();
    }

    @AfterAll
    static void stopServer() {
        server.close();
    }

    @BeforeEach
    void connect(TestInfo test) {
        client = server.client();
        queue = client.priorityQueue(test.getTestMethod().orElseThrow().getName());
    }

    @AfterEach
    void close() throws InterruptedException {
        client.connection().close();
        client.close();
    }

    private void hears(String... want) throws InterruptedException {
        for (String text : want) {
            assertEquals(text, heard.poll(1, TimeUnit.MINUTES));
        }
    }

    /** Reports whether one item is in a state, and all that there are. */
    private boolean counts(String state) {
        return ((Number) queue.info().get(state)).longValue() == 1;
    }

    private static void await(CountDownLatch latch) throws InterruptedException {
        assertTrue(latch.await(1, TimeUnit.MINUTES));
    }

    /** Keeps what is logged. */
    private class Log implements System.Logger {
        @Override
        public String getName() {
            return "test";
        }

        @Override
        public boolean isLoggable(Level level) {
            return true;
        }

        @Override
        public void log(Level level, ResourceBundle bundle, String text, Throwable thrown) {
            heard.add(level + " " + text.replaceAll("job \\S+", "job"));
        }

        @Override
        public void log(Level level, ResourceBundle bundle, String text, Object... params) {
            throw new AssertionError("a type with {0} would be changed");
        }
    }

    /** The first middleware is outermost, and may change what a handler does. */
    @Test
    void middlewareWraps() throws InterruptedException {
        Worker.Builder b = Worker.builder(queue).logger(new Log());
        for (String name : List.of("outer", "inner")) {
            b.middleware((job, next) -> {
                heard.add(name + " before");
                try {
                    next.handle(job);
                } finally {
                    heard.add(name + " after");
                }
            });
        }
        b.middleware((job, next) -> {
            try {
                next.handle(job);
            } catch (IllegalStateException e) {
                throw new Drop("it is hopeless");
            }
        });
        b.handle(job -> {
            throw new IllegalStateException();
        });
        Worker worker = b.start();
        String id = queue.push("").id();
        hears("outer before", "inner before", "inner after", "outer after");
        hears("WARNING priority queue middlewareWraps: job failed at delivery 1: it is hopeless");
        assertThrows(JobFailedException.class, () -> queue.result(JobName.id(id), TestServer.PATIENCE).orThrow());
        worker.close();
    }

    /** A middleware sees jobs of types that nobody handles. */
    @Test
    void middlewareSeesUnknownTypes() throws InterruptedException {
        Worker worker = Worker.builder(queue).retryDelay(Duration.ofMinutes(1)).handle("known", job -> {}).middleware((job, next) -> {
            heard.add(assertThrows(RuntimeException.class, () -> next.handle(job)).getMessage());
        }).start();
        queue.push(Push.of("").type("other"));
        hears("nobody handles jobs of type \"other\"");
        worker.close();
    }

    /** What is logged about a job names its queue and its type, which may have braces. */
    @Test
    void logsNameQueueAndType() throws InterruptedException {
        Queue mail = client.fifoQueue("mail");
        Worker worker = Worker.builder(mail).logger(new Log()).jobTimeout(Duration.ofMillis(1)).handle(job -> {
            new CountDownLatch(1).await();
        }).start();
        mail.push(Push.of("").type("{0}"));
        hears("WARNING FIFO queue mail: job of type \"{0}\" takes longer than PT0.001S",
                "WARNING FIFO queue mail: job of type \"{0}\" failed at delivery 1: timed out");
        worker.stop(Duration.ZERO);
    }

    /** Whatever a handler throws, its slot is free again, and stop returns. */
    @Test
    void oddFailuresFreeTheirSlots() throws InterruptedException {
        Snooze noTime = new Snooze(Duration.ZERO) {
            @Override
            public Duration delay() {
                return null;
            }
        };
        Exception silent = new Exception() {
            @Override
            public String getMessage() {
                throw new AssertionError("it has no message");
            }
        };
        Exception long_ = new Exception("x".repeat(1359 - "Exception: ".length()) + "\uD83D\uDE00 and more");
        AtomicInteger next = new AtomicInteger();
        Worker worker = Worker.builder(queue).ackWait(Duration.ofMinutes(1)).retryDelay(Duration.ofMinutes(1)).handle(job -> {
            switch (next.getAndIncrement()) {
                case 0 -> throw noTime;
                case 1 -> throw silent;
                case 2 -> throw long_;
                default -> heard.add("next");
            }
        }).start();
        for (int i = 0; i < 4; i++) {
            queue.push("");
        }
        hears("next");
        worker.stop(Duration.ZERO);
        assertTrue(worker.ended().isDone());
    }

    /** A logger that throws ends neither a worker nor its stop. */
    @Test
    void brokenLoggersHoldNothingUp() throws InterruptedException {
        System.Logger broken = new Log() {
            @Override
            public void log(Level level, ResourceBundle bundle, String text, Throwable thrown) {
                throw new IllegalStateException("the log is full");
            }
        };
        AtomicInteger next = new AtomicInteger();
        Worker worker = Worker.builder(queue).logger(broken).retryDelay(Duration.ofMinutes(1)).handle(job -> {
            if (next.getAndIncrement() == 0) {
                throw new IllegalStateException("it fails");
            }
            heard.add("next");
            try {
                new CountDownLatch(1).await();
            } finally {
                heard.add("" + job.ending().orElseThrow());
            }
        }).jobTimeout(Duration.ofMillis(200)).start();
        queue.push("");
        queue.push("");
        hears("next", "TIMEOUT");
        worker.stop(Duration.ZERO);
    }

    /** An executor may refuse jobs, lack threads, run jobs at once or fail afterwards: all are done, each once. */
    @Test
    void executorsMayDoAnything() throws InterruptedException {
        AtomicInteger calls = new AtomicInteger();
        Executor refuses = task -> {
            if (calls.getAndIncrement() % 2 == 0) {
                throw new RejectedExecutionException("the pool is full");
            }
            new Thread(task).start();
        };
        Executor lacksThreads = task -> {
            if (calls.getAndIncrement() < 4) {
                throw new OutOfMemoryError("unable to create native thread");
            }
            new Thread(task).start();
        };
        Executor failsAfterwards = task -> {
            task.run();
            throw new IllegalStateException("after the job");
        };
        var callerRuns = new ThreadPoolExecutor(
                1, 1, 0, TimeUnit.SECONDS, new SynchronousQueue<>(), new ThreadPoolExecutor.CallerRunsPolicy());
        for (Executor executor : List.of(refuses, lacksThreads, Runnable::run, failsAfterwards, callerRuns)) {
            calls.set(0);
            CountDownLatch both = new CountDownLatch(2);
            Worker worker = Worker.builder(queue).executor(executor).concurrency(2).handle(job -> {
                if (job.type().equals("both")) { // at a time
                    both.countDown();
                    await(both);
                }
                heard.add(job.text());
            }).start();
            Set<String> done = new TreeSet<>();
            for (int i = 0; i < 6; i++) {
                queue.push(Push.of("" + i).type(i < 2 ? "both" : ""));
            }
            for (int i = 0; i < 6; i++) {
                String text = heard.poll(1, TimeUnit.MINUTES);
                assertTrue(text != null, "done are " + done);
                done.add(text);
            }

            assertEquals(Set.of("0", "1", "2", "3", "4", "5"), done);
            TestServer.await("all are acknowledged", () -> queue.items(ItemsQuery.of()).count() == 0);
            assertFalse(worker.ended().isDone());
            worker.close();
            assertTrue(heard.isEmpty());
        }
        callerRuns.shutdown();
    }

    /** A stop waits for a job that its executor runs at once, and the job is done. */
    @Test
    void stopWaitsForJobsInTheThreadThatAsks() throws InterruptedException {
        CountDownLatch release = new CountDownLatch(1);
        Worker worker = Worker.builder(queue).executor(Runnable::run).handle(job -> {
            heard.add("begun");
            await(release);
            job.result("" + job.deliveries(), Codec.TEXT);
        }).start();
        Pushed pushed = queue.push(Push.of("").keep(Duration.ofHours(1)));
        hears("begun");
        Thread stop = new Thread(() -> worker.stop(TestServer.PATIENCE));
        stop.start();
        TestServer.await("the worker stops", () -> stop.getState() == Thread.State.WAITING);
        release.countDown();
        stop.join();
        assertEquals("1", queue.result(pushed.id()).text());
    }

    /** Once a worker stops, no job begins that its executor had no thread for. */
    @Test
    void waitingJobsDoNotBeginDuringAStop() throws InterruptedException {
        BlockingQueue<Runnable> tasks = new LinkedBlockingQueue<>();
        Worker worker = Worker.builder(queue).executor(tasks::add).handle(job -> heard.add("never")).start();
        queue.push("");
        Runnable task = tasks.poll(1, TimeUnit.MINUTES);
        Thread stop = new Thread(() -> worker.stop(TestServer.PATIENCE));
        stop.start();
        TestServer.await("the worker stops", () -> stop.getState() == Thread.State.WAITING);
        task.run();
        stop.join();
        assertTrue(counts("ready"));
        assertTrue(heard.isEmpty());
    }

    /** Jobs that wait for a thread of an executor which others hold are given back when the worker stops. */
    @Test
    void jobsThatNeverBeganAreGivenBack() throws InterruptedException {
        ExecutorService one = Executors.newSingleThreadExecutor();
        CountDownLatch release = new CountDownLatch(1);
        one.execute(() -> {
            try {
                await(release);
            } catch (InterruptedException e) {
                throw new AssertionError(e);
            }
        });
        Worker worker = Worker.builder(queue).executor(one).handle(job -> heard.add("never")).start();
        queue.push("");
        TestServer.await("the job is leased", () -> counts("leased"));
        worker.stop(Duration.ZERO);
        assertTrue(counts("ready"));
        release.countDown();
        one.shutdown();
        assertTrue(one.awaitTermination(1, TimeUnit.MINUTES));
        assertTrue(heard.isEmpty());
    }

    /** A push may be changed once its future is there. */
    @Test
    void futuresKeepWhatTheyWereGiven() {
        Push push = Push.of("");
        var all = new ArrayList<CompletableFuture<Pushed>>();
        for (int i = 0; i < 100; i++) {
            all.add(queue.pushAsync(push.priority(i)));
        }
        for (int i = 0; i < all.size(); i++) {
            assertEquals(i, all.get(i).join().priority());
        }
    }

    /** What follows a push may wait for another one, in as many threads as there are. */
    @Test
    void futuresMayWaitForFutures() {
        var all = new ArrayList<CompletableFuture<Void>>();
        for (int i = 0; i < 200; i++) {
            all.add(queue.pushAsync(Push.of("")).thenAccept(pushed -> queue.pushAsync(Push.of("")).join()));
        }
        all.forEach(CompletableFuture::join);
        assertEquals(400, queue.len());
    }

    /** Futures complete while handlers compute, however many. */
    @Test
    void futuresDoNotWaitForHandlers() throws Exception {
        int threads = 2 * Runtime.getRuntime().availableProcessors();
        CountDownLatch begun = new CountDownLatch(Runtime.getRuntime().availableProcessors());
        AtomicBoolean isOver = new AtomicBoolean();
        Worker worker = Worker.builder(queue).concurrency(threads).handle(job -> {
            begun.countDown();
            while (!isOver.get()) {
                Thread.onSpinWait();
            }
        }).start();
        for (int i = 0; i < threads; i++) {
            queue.push("");
        }
        await(begun);
        try {
            Queue other = client.priorityQueue("other");
            Pushed pushed = other.pushAsync(Push.of("")).thenApply(p -> p).get(1, TimeUnit.MINUTES);
            var result = other.resultAsync(JobName.id(pushed.id()), Duration.ZERO).get(1, TimeUnit.MINUTES);
            assertEquals(State.READY, result.state());
        } finally {
            isOver.set(true);
            worker.close();
        }
    }

    /** A lost lease interrupts its handler, and nothing that the same thread does next. */
    @Test
    void interruptHitsItsHandlerAlone() throws InterruptedException {
        ExecutorService one = Executors.newSingleThreadExecutor();
        CountDownLatch begun = new CountDownLatch(1);
        Worker.Builder b = Worker.builder(queue).ackWait(Duration.ofMillis(300)).executor(one).handle("lost", job -> {
            begun.countDown();
            try {
                new CountDownLatch(1).await();
            } finally {
                heard.add(job.ending().orElseThrow().toString());
                Thread.currentThread().interrupt(); // as good code does that cannot throw
            }
        });
        b.handle("next", job -> {
            Thread.sleep(1);
            heard.add("next");
        });
        Worker worker = b.start();
        String id = queue.push(Push.of("").type("lost")).id();
        await(begun);
        queue.push(Push.of("").type("next"));
        queue.remove(id);
        hears("LOST", "next");
        worker.close();
        one.shutdown();
    }

    /** An interrupt comes before the end of a handler, or never. */
    @Test
    void interruptIsNeverLate() throws Exception {
        ExecutorService other = Executors.newSingleThreadExecutor();
        for (int i = 0; i < 2000; i++) {
            Received received = new Received(new byte[0], Headers.NONE, "pq.none.ack.token", System.nanoTime());
            Held held = new Held(new Lease(queue, received, Duration.ofHours(12)), (h, e) -> {}, e -> {});
            assertTrue(held.beginHandler(null));
            CountDownLatch ends = new CountDownLatch(1);
            var ended = other.submit(() -> {
                ends.countDown();
                held.end(Job.Ending.LOST);
            });
            while (ends.getCount() > 0) {
                Thread.onSpinWait();
            }
            assertTrue(held.endHandler());
            while (!ended.isDone()) {
                Thread.onSpinWait();
            }
            assertFalse(Thread.currentThread().isInterrupted());
            held.letGo();
        }
        other.shutdown();
    }

    /** Handlers that compute, more than there are processors, keep their leases. */
    @Test
    void computingHandlersKeepTheirLeases() throws InterruptedException {
        int jobs = 2 * Runtime.getRuntime().availableProcessors() + 1;
        for (int i = 0; i < jobs; i++) {
            queue.push("");
        }
        Worker worker = Worker.builder(queue).concurrency(jobs).ackWait(Duration.ofSeconds(3)).handle(job -> {
            for (long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(5); System.nanoTime() < end; ) {
                Thread.onSpinWait();
            }
            heard.add(job.ending() + " " + job.deliveries());
        }).start();
        for (int i = 0; i < jobs; i++) {
            hears("Optional.empty 1");
        }
        worker.close();
        assertEquals(0, queue.len());
    }

    /** A handler that goes on although it was interrupted does not keep its worker from ending. */
    @Test
    void handlerThatGoesOnIsLeftAlone() throws InterruptedException {
        CountDownLatch goOn = new CountDownLatch(1);
        Worker worker = Worker.builder(queue).logger(new Log()).handle(job -> {
            heard.add("begun");
            while (goOn.getCount() > 0) {
                Thread.onSpinWait();
            }
            heard.add("ended");
        }).start();
        String id = queue.push("").id();
        hears("begun");
        worker.stop(Duration.ZERO);
        hears("WARNING priority queue " + queue.name() + ": job has not ended although the worker has stopped");
        assertEquals(State.READY, queue.get(id).state());
        assertEquals(0, queue.get(id).deliveries());
        goOn.countDown();
        hears("ended");
        assertEquals(State.READY, queue.get(id).state());
    }

    /** A handler cannot wait for the end of its own worker. */
    @Test
    void handlerCannotStopItsWorker() throws InterruptedException {
        List<Worker> workers = new ArrayList<>();
        CountDownLatch started = new CountDownLatch(1);
        workers.add(Worker.builder(queue).handle(job -> {
            await(started);
            heard.add(assertThrows(IllegalStateException.class, workers.get(0)::close).getMessage());
        }).start());
        queue.push("");
        started.countDown();
        hears("stop in a handler, which it would wait for: want another thread");
        workers.get(0).close();
    }

    /** A worker ends with its connection, and says why. */
    @Test
    void closedConnectionEndsTheWorker() throws InterruptedException {
        Worker worker = Worker.builder(queue).handle(job -> {}).start();
        queue.push("");
        TestServer.await("the job is done", () -> queue.len() == 0);
        client.connection().close();
        ExecutionException end = assertThrows(ExecutionException.class, () -> worker.ended().get(1, TimeUnit.MINUTES));
        assertInstanceOf(NotSentException.class, end.getCause());
        assertThrows(NotSentException.class, () -> Worker.builder(queue).handle(job -> {}).build().run());
    }

    /** A worker whose thread is interrupted gives its job back before it returns. */
    @Test
    void interruptedRunGivesBack() throws InterruptedException {
        Worker worker = Worker.builder(queue).handle(job -> {
            heard.add("begun");
            new CountDownLatch(1).await();
        }).build();
        Thread thread = new Thread(() -> {
            assertThrows(InterruptedException.class, worker::run);
            heard.add("ended");
        });
        thread.start();
        String id = queue.push("").id();
        hears("begun");
        thread.interrupt();
        hears("ended");
        assertEquals(State.READY, queue.get(id).state());
        assertEquals(0, queue.get(id).deliveries());
    }

    /** Following a chain has no limit. */
    @Test
    void chainsHaveNoLimit() {
        queue.configure(Settings.of().next(queue.name()).keep(Duration.ofHours(1)).trail(2));
        Worker worker = Worker.builder(queue).handle(job -> {
            int n = Integer.parseInt(job.text());
            if (n < 100) {
                job.next(queue.name(), Push.of("" + (n + 1)));
            }
            job.result("end of " + n, Codec.TEXT);
        }).start();
        String first = queue.push("1").id();
        assertEquals("end of 100", queue.follow(JobName.id(first), TestServer.PATIENCE).text());
        worker.close();
    }

    /** Options that no worker can have are refused when they are set. */
    @Test
    void optionsAreChecked() {
        Worker.Builder b = Worker.builder(queue);
        assertThrows(BadArgumentException.class, b::build);
        assertThrows(BadArgumentException.class, () -> b.concurrency(0));
        assertThrows(BadArgumentException.class, () -> b.ackWait(Duration.ofMillis(1)));
        assertThrows(BadArgumentException.class, () -> b.holder("x".repeat(129)));
        assertThrows(BadArgumentException.class, () -> b.jobTimeout(Duration.ZERO));
        assertThrows(BadArgumentException.class, () -> b.retryDelay(Duration.ofSeconds(-1)));
        assertThrows(BadArgumentException.class, () -> b.handle("email", null));
        assertThrows(BadArgumentException.class, () -> b.handle(job -> {}).handle(job -> {}));
        assertThrows(BadArgumentException.class, () -> Worker.builder(client.fifoQueue("q")).max());
        Worker worker = b.build();
        worker.close(); // before it has begun
        worker.start();
        assertThrows(IllegalStateException.class, worker::start);
        assertTrue(worker.ended().isDone());
    }
}
