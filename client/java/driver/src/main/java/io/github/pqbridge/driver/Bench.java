package io.github.pqbridge.driver;

import io.github.pqbridge.PqClient;
import io.github.pqbridge.Push;
import io.github.pqbridge.Queue;
import io.github.pqbridge.Worker;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * What BenchmarkWorkers in testenv/clients measures: a worker whose jobs do nothing or, with OP=push or
 * OP=call, 64 threads of that. It prints a line when the first begins and when the last does, or has ended.
 */
final class Bench {
    private static final int AT_ONCE = 64;

    private Bench() {}

    public static void main(String[] args) throws InterruptedException {
        int jobs = Integer.parseInt(System.getenv("JOBS"));
        try (PqClient client = PqClient.connect()) {
            Queue queue = client.priorityQueue("bench");
            switch (System.getenv("OP")) {
                case "push" -> repeat(jobs, () -> queue.push(new byte[128]));
                case "call" -> repeat(jobs, () -> queue.call(Push.of(new byte[128])));
                default -> work(queue, jobs);
            }
        }
    }

    private static void repeat(int times, Runnable operation) throws InterruptedException {
        System.out.println(1);
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
        System.out.println(times);
    }

    private static void work(Queue queue, int jobs) throws InterruptedException {
        AtomicInteger begun = new AtomicInteger();
        CountDownLatch last = new CountDownLatch(1);
        Worker worker = Worker.builder(queue).concurrency(AT_ONCE).handle(job -> {
            int n = begun.incrementAndGet();
            if (n == 1 || n == jobs) {
                System.out.println(n);
            }
            if (n == jobs) {
                last.countDown();
            }
        }).start();
        last.await();
        worker.close();
    }
}
