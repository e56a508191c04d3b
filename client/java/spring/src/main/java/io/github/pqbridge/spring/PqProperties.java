package io.github.pqbridge.spring;

import java.time.Duration;
import java.util.Map;
import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;

/**
 * The properties that begin with {@code pqbridge}.
 *
 * @param url NATS servers, separated by commas. Those of the variable NATS_URL, or else port 4222
 *     of this machine, by default
 * @param user NATS user name
 * @param password NATS password
 * @param credentials Path of a NATS credentials file
 * @param inboxPrefix First tokens of the subjects of replies, if the login has its own
 * @param prefix First tokens of the subjects of priority queues
 * @param fifoPrefix First tokens of the subjects of FIFO queues
 * @param timeout How long a request may take that does not wait for anything
 * @param autoStartup Whether workers begin with the application
 * @param stopTimeout How long jobs under way may take when the application stops. Five seconds more
 *     must fit into spring.lifecycle.timeout-per-shutdown-phase
 * @param worker What holds for the workers of all queues
 * @param workers What holds for the worker of a queue, by its name
 */
@ConfigurationProperties("pqbridge")
public record PqProperties(
        String url,
        String user,
        String password,
        String credentials,
        String inboxPrefix,
        @DefaultValue("pq") String prefix,
        @DefaultValue("q") String fifoPrefix,
        @DefaultValue("10s") Duration timeout,
        @DefaultValue("true") boolean autoStartup,
        @DefaultValue("20s") Duration stopTimeout,
        @DefaultValue WorkerProperties worker,
        @DefaultValue Map<String, WorkerProperties> workers) {

    /**
     * What holds for the worker of a queue. What is not set is as {@code pqbridge.worker} says, or
     * else the default of {@link io.github.pqbridge.Worker}.
     *
     * @param concurrency Jobs at a time, 1 by default
     * @param ackWait Length of the leases, after which others get the jobs of a worker that dies: 100
     *     ms to 12 h. What the settings of the queue say, or else 30 s, by default
     * @param jobTimeout How long a job may take
     * @param retryDelay Pause after the first failure if the queue has no backoff, 1 s by default
     * @param holder Name that others see of who has the leases
     * @param max Whether the largest priority is first
     */
    public record WorkerProperties(
            Integer concurrency,
            Duration ackWait,
            Duration jobTimeout,
            Duration retryDelay,
            String holder,
            Boolean max) {}
}
