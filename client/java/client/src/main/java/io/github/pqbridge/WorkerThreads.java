package io.github.pqbridge;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * Runs handlers where the JVM has no virtual threads: as many at a time as there are. A thread that
 * begins wakes the next one if there is more to do. So of short tasks that come together a few
 * threads do many, instead of all threads one each. None of them keeps the process from ending.
 */
final class WorkerThreads implements Executor {
    /** Runs each handler at once: in a virtual thread of its own where the JVM has them. */
    static final Executor HANDLERS = handlers();

    static final long IDLE_MILLIS = 10_000;

    private final Deque<Runnable> tasks = new ArrayDeque<>();
    private int idle; // threads that wait
    private boolean isWaking; // a thread that has not begun yet

    private static Executor handlers() {
        try {
            return (Executor) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
        } catch (ReflectiveOperationException before21) {
            return new WorkerThreads();
        }
    }

    /** Returns as many threads as there is work for. Handlers that compute do not hold them up. */
    static ExecutorService platform(String name) {
        return new ThreadPoolExecutor(
                0, Integer.MAX_VALUE, IDLE_MILLIS, TimeUnit.MILLISECONDS, new SynchronousQueue<>(),
                task -> daemon(task, name));
    }

    private static Thread daemon(Runnable task, String name) {
        Thread thread = new Thread(task, name);
        thread.setDaemon(true);
        return thread;
    }

    @Override
    public synchronized void execute(Runnable task) {
        tasks.add(task);
        try {
            wake();
        } catch (OutOfMemoryError noThread) {
            tasks.removeLast();
            throw noThread;
        }
    }

    /** Has another thread begin, if there is something to do and none is about to. */
    private void wake() {
        if (tasks.isEmpty() || isWaking) {
            return;
        }
        isWaking = true;
        if (idle > 0) {
            notify();
        } else {
            try {
                daemon(this::serve, "pqbridge-job").start();
            } catch (OutOfMemoryError noThread) {
                isWaking = false;
                throw noThread;
            }
        }
    }

    private void serve() {
        synchronized (this) {
            isWaking = false;
        }
        for (Runnable task = next(); task != null; task = next()) {
            task.run();
        }
    }

    /** Returns the next task, or null if there was none for some time. */
    private synchronized Runnable next() {
        while (tasks.isEmpty()) {
            idle++;
            long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(IDLE_MILLIS);
            for (long left = IDLE_MILLIS; left > 0 && !isWaking; left = (end - System.nanoTime()) / 1_000_000) {
                try {
                    wait(left);
                } catch (InterruptedException late) {
                    // it was for a task that has ended
                }
            }
            idle--;
            if (!isWaking) {
                return null;
            }
            isWaking = false;
        }
        Runnable task = tasks.remove();
        try {
            wake();
        } catch (OutOfMemoryError noThread) {
            // this one takes the next
        }
        return task;
    }
}
