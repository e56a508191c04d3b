package io.github.pqbridge;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;

/**
 * Does the jobs of a queue, as many at a time as it has slots, until it is stopped. It survives
 * restarts of bridges and NATS servers.
 *
 * <pre>{@code
 * try (Worker worker = Worker.builder(jobs).handle("email", job -> send(job.text())).concurrency(8).start()) {
 *     ...
 * }
 * }</pre>
 *
 * <p>Each handler runs in a thread of its own: a virtual one where the JVM has them, never one of
 * jnats. Its lease is renewed when a third of it has passed. If the lease is lost, or may be, the
 * thread is interrupted; the slot stays taken until the handler ends, and nothing that it does counts.
 * A job is done at least once, and by one worker at a time as long as its lease is renewed in time.
 *
 * <p>While a slot is free, one request waits for a job. Jobs that end while two acknowledgements are
 * under way share the next one, which leases as many.
 */
public final class Worker implements AutoCloseable {
    private static final Duration GRACE = Duration.ofSeconds(25);
    private static final System.Logger LOGGER = System.getLogger(Worker.class.getName());

    private final WorkerRun run;
    private final Map<String, Handler> handlers;

    private Worker(Builder b) {
        handlers = Map.copyOf(b.handlers);
        run = new WorkerRun(b, b.wrapped(this::handle));
    }

    private void handle(Job job) throws Exception {
        Handler handler = handlers.getOrDefault(job.type(), handlers.get(Builder.OTHERS));
        if (handler == null) {
            throw new RuntimeException("nobody handles jobs of type \"" + job.type() + "\"");
        }
        handler.handle(job);
    }

    /**
     * Returns a builder of a worker.
     *
     * @param queue the queue whose jobs it does
     * @return the builder
     */
    public static Builder builder(Queue queue) {
        return new Builder(Wire.required("queue", queue));
    }

    /**
     * Begins, in threads that do not keep the process from ending. A worker runs once.
     *
     * @return this
     */
    public Worker start() {
        run.start();
        return this;
    }

    /**
     * Does jobs until the worker is stopped, and waits for that. If this thread is interrupted, the
     * worker asks its handlers to end, and gives their jobs back, before it returns.
     *
     * @throws InterruptedException if the thread is interrupted
     * @throws PqException if the worker cannot go on: NATS denies a permission, the connection is closed
     *     for good, or the bridge has other bounds. All other errors are logged, and it tries again.
     */
    public void run() throws InterruptedException {
        start();
        try {
            await();
        } catch (InterruptedException e) {
            run.beginStop(Duration.ZERO);
            run.ended.handle((none, error) -> null).join();
            throw e;
        }
    }

    private void await() throws InterruptedException {
        try {
            run.ended.get();
        } catch (ExecutionException e) {
            throw e.getCause() instanceof PqException failure ? failure : new IllegalStateException(e.getCause());
        }
    }

    /**
     * Returns what completes when the worker has ended, with an exception if it could not go on: see
     * {@link #run}.
     *
     * @return a future of the end
     */
    public CompletableFuture<Void> ended() {
        CompletableFuture<Void> end = new CompletableFuture<>();
        run.ended.whenComplete((none, error) -> {
            if (error == null) {
                end.complete(null);
            } else {
                end.completeExceptionally(error);
            }
        });
        return end;
    }

    /**
     * Leases no more jobs, and returns once the worker has ended. Jobs under way may end for as long as
     * the timeout. Then the threads of their handlers are interrupted, and unfinished jobs are given back,
     * without counting the delivery. A handler that goes on for two more seconds is left alone: its job is
     * given back too, and nothing that it does counts. Attempts to settle jobs end five seconds after the
     * timeout; those that are not settled come back when their leases are over.
     *
     * @param timeout how long jobs may take to end
     * @throws IllegalStateException in a handler of this worker, for which it would wait
     * @throws CallInterruptedException if the thread is interrupted; the worker goes on to stop
     */
    public void stop(Duration timeout) {
        Wire.checkDuration("timeout", timeout, Duration.ZERO, Wire.TEN_YEARS);
        run.checkCaller();
        run.beginStop(timeout);
        try {
            run.ended.handle((none, error) -> null).get();
        } catch (InterruptedException e) {
            throw new CallInterruptedException("interrupted while the worker stops", false);
        } catch (ExecutionException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    /** Stops with a timeout of 25 s: see {@link #stop}. */
    @Override
    public void close() {
        stop(GRACE);
    }

    /** Builds a worker. All setters return this. */
    public static final class Builder {
        static final String OTHERS = "*";
        private static final int MAX_CONCURRENCY = 100_000;

        final Queue queue;
        int concurrency = 1;
        Duration ackWait = Duration.ZERO; // 0 for what the settings say
        String holder;
        Duration jobTimeout; // null for none
        Duration retryDelay = Duration.ofSeconds(1);
        boolean max;
        Executor executor = WorkerThreads.HANDLERS;
        System.Logger logger = LOGGER;
        private final Map<String, Handler> handlers = new HashMap<>();
        private final List<Middleware> middleware = new ArrayList<>();

        private Builder(Queue queue) {
            this.queue = queue;
            this.holder = queue.client.holder;
        }

        /**
         * Sets the handler of all jobs whose type has none of its own.
         *
         * @param handler the handler
         * @return this
         */
        public Builder handle(Handler handler) {
            return handle(OTHERS, handler);
        }

        /**
         * Sets the handler of a type of jobs: see {@link Push#type}. A job of a type without a handler
         * fails.
         *
         * @param type the type, "" for jobs without one, "*" for all others
         * @param handler the handler
         * @return this
         */
        public Builder handle(String type, Handler handler) {
            if (handlers.put(Wire.required("type", type), Wire.required("handler", handler)) != null) {
                throw new BadArgumentException("jobs of type \"" + type + "\" have a handler already");
            }
            return this;
        }

        /**
         * Adds what wraps all handlers. The first is outermost.
         *
         * @param middleware what wraps
         * @return this
         */
        public Builder middleware(Middleware middleware) {
            this.middleware.add(Wire.required("middleware", middleware));
            return this;
        }

        /**
         * Sets how many jobs are done at a time.
         *
         * @param concurrency 1 to 100,000; the default is 1
         * @return this
         */
        public Builder concurrency(int concurrency) {
            if (concurrency < 1 || concurrency > MAX_CONCURRENCY) {
                throw new BadArgumentException("concurrency " + concurrency + ": want 1 to " + MAX_CONCURRENCY);
            }
            this.concurrency = concurrency;
            return this;
        }

        /**
         * Sets the length of the leases, after which others get the jobs of a worker that dies.
         *
         * @param ackWait 100 ms to 12 h; the default is what the settings of the queue say, or else 30 s
         * @return this
         */
        public Builder ackWait(Duration ackWait) {
            this.ackWait = PopOptions.checkAckWait(ackWait);
            return this;
        }

        /**
         * Sets the name that others see of who has the leases.
         *
         * @param holder up to 128 bytes without control characters; the default is the name of the client
         * @return this
         */
        public Builder holder(String holder) {
            this.holder = Wire.checkHolder("holder", holder);
            return this;
        }

        /**
         * Sets how long a job may take. Then the thread of its handler is interrupted, the job fails unless
         * the handler returns, and the lease is not renewed any more.
         *
         * @param jobTimeout the time; the default is any time
         * @return this
         */
        public Builder jobTimeout(Duration jobTimeout) {
            this.jobTimeout = Wire.checkDuration("jobTimeout", jobTimeout, Duration.ofNanos(1), Wire.TEN_YEARS);
            return this;
        }

        /**
         * Sets after how long a job that failed comes back if its queue has no backoff: after the first
         * delivery, and twice as long after each further one, up to a minute or this time itself.
         *
         * @param retryDelay 0 to ten years; the default is a second
         * @return this
         */
        public Builder retryDelay(Duration retryDelay) {
            this.retryDelay = Wire.checkDuration("retryDelay", retryDelay, Duration.ZERO, Wire.TEN_YEARS);
            return this;
        }

        /**
         * Takes the largest priority first. Not in a FIFO queue.
         *
         * @return this
         */
        public Builder max() {
            queue.checkEnd(true);
            this.max = true;
            return this;
        }

        /**
         * Sets what runs the handlers. It needs a thread for each job that is done at a time: leases of jobs
         * that wait for one are renewed meanwhile. A job that it refuses goes back, and is leased again soon.
         *
         * @param executor the executor, which the caller shuts down after the worker
         * @return this
         */
        public Builder executor(Executor executor) {
            this.executor = Wire.required("executor", executor);
            return this;
        }

        /**
         * Sets where the worker logs jobs that fail, are dropped, lost or cannot be settled, and once a minute
         * what it tries again. Each line names the queue, and those of a single job its id and type.
         *
         * @param logger the logger; the default has the name of this class
         * @return this
         */
        public Builder logger(System.Logger logger) {
            this.logger = Wire.required("logger", logger);
            return this;
        }

        private Handler wrapped(Handler handler) {
            Handler outermost = handler;
            for (int i = middleware.size() - 1; i >= 0; i--) {
                Middleware around = middleware.get(i);
                Handler next = outermost;
                outermost = job -> around.handle(job, next);
            }
            return outermost;
        }

        /**
         * Makes the worker, which does nothing until it is started.
         *
         * @return the worker
         */
        public Worker build() {
            if (handlers.isEmpty()) {
                throw new BadArgumentException("a worker without a handler: want one, of handle(...)");
            }
            return new Worker(this);
        }

        /**
         * Makes the worker, and starts it.
         *
         * @return the worker
         */
        public Worker start() {
            return build().start();
        }
    }
}
