package io.github.pqbridge;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.FutureTask;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/** The threads of all clients. None keeps the process from ending. */
final class Threads {
    private static final int AT_ONCE = 64;

    // None is a virtual thread, which waits while handlers compute. Idle ones end, or a class loader would stay.

    /** Runs what may wait long, each in a thread of its own. */
    static final Executor LONG = WorkerThreads.platform("pqbridge");

    /** Runs what ends soon, as soon as a thread is free. */
    static final Executor SHORT = pool("pqbridge-push");

    /** Extends leases, whatever else waits. */
    static final Executor RENEWALS = pool("pqbridge-renewal");

    /** Runs what never waits, at a time. */
    static final ScheduledExecutorService TIMER = timer();

    private Threads() {}

    private static ThreadFactory daemons(String name) {
        return task -> {
            Thread thread = new Thread(task, name);
            thread.setDaemon(true);
            return thread;
        };
    }

    private static Executor pool(String name) {
        var waiting = new LinkedBlockingQueue<Runnable>();
        var pool = new ThreadPoolExecutor(AT_ONCE, AT_ONCE, 10, TimeUnit.SECONDS, waiting, daemons(name));
        pool.allowCoreThreadTimeOut(true);
        return pool;
    }

    private static ScheduledExecutorService timer() {
        var timer = new ScheduledThreadPoolExecutor(1, daemons("pqbridge-timer"));
        timer.setRemoveOnCancelPolicy(true);
        timer.setKeepAliveTime(WorkerThreads.IDLE_MILLIS, TimeUnit.MILLISECONDS);
        timer.allowCoreThreadTimeOut(true);
        return timer;
    }

    /**
     * Runs a call, and returns its future. A cancelled future interrupts the call, or keeps it from
     * beginning.
     */
    static <T> CompletableFuture<T> async(Executor executor, Supplier<T> call) {
        CompletableFuture<T> future = new CompletableFuture<>();
        FutureTask<Void> task = new FutureTask<>(() -> {
            Runnable complete;
            try {
                T value = call.get();
                complete = () -> future.complete(value);
            } catch (Throwable e) {
                complete = () -> future.completeExceptionally(e);
            }
            if (executor == SHORT && future.getNumberOfDependents() > 1) { // beside the one below
                LONG.execute(complete); // what depends on it may wait for another one
            } else {
                complete.run();
            }
        }, null);
        future.whenComplete((value, error) -> {
            if (future.isCancelled()) {
                task.cancel(true);
            }
        });
        executor.execute(task);
        return future;
    }
}
