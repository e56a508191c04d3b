package io.github.pqbridge.driver;

import io.github.pqbridge.PqClient;
import io.github.pqbridge.Push;
import io.github.pqbridge.Queue;
import io.github.pqbridge.Worker;
import java.util.Collections;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.IntConsumer;

/**
 * What BenchmarkWorkers in testenv/clients measures: a worker whose jobs do nothing or, with OP=push or
 * OP=call, 64 threads of that. It prints a line when the first begins and when the last does, or has
 * ended. Before, it does the same for some time: until then a JVM compiles, and interprets meanwhile.
 */
final class Bench {
    private static final int AT_ONCE = 64;
    private static final int BATCH = 1000;
    private static final int WARM = 50 * BATCH;

    private Bench() {}

    public static void main(String[] args) throws InterruptedException {
        int jobs = Integer.parseInt(System.getenv("JOBS"));
        try (PqClient client = PqClient.connect()) {
            Queue queue = client.priorityQueue("bench");
            if (System.getenv("OP").equals("work")) {
                Queue warm = client.priorityQueue("warm");
                for (int i = 0; i < WARM; i += BATCH) {
                    warm.pushBatch(Collections.nCopies(BATCH, Push.of(new byte[128])));
                }
                work(warm, WARM, n -> {});
                work(queue, jobs, System.out::println);
            } else {
                boolean pushes = System.getenv("OP").equals("push");
                Runnable operation = () -> {
                    if (pushes) {
                        queue.push(new byte[128]);
                    } else {
                        queue.call(Push.of(new byte[128]));
                    }
                };
                repeat(jobs, operation);
                System.out.println(1);
                repeat(jobs, operation);
                System.out.println(jobs);
            }
        }
    }

    private static void repeat(int times, Runnable operation) throws InterruptedException {
        AtomicInteger begun = new AtomicInteger();
        Thread[] threads = new Thread[AT_ONCE];
        for (int i = 0; i < AT_ONCE; i++) {
            threads[i] = new Thread(() -> {
                while (begun.incrementAndGet() <= times) {
                    operation.run();
                }
            });
            threads[i].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private static void work(Queue queue, int jobs, IntConsumer say) throws InterruptedException {
        AtomicInteger begun = new AtomicInteger();
        CountDownLatch last = new CountDownLatch(1);
        Worker worker = Worker.builder(queue).concurrency(AT_ONCE).handle(job -> {
            int n = begun.incrementAndGet();
            if (n == 1 || n == jobs) {
                say.accept(n);
            }
            if (n == jobs) {
                last.countDown();
            }
        }).start();
        last.await();
        worker.close();
    }
}
