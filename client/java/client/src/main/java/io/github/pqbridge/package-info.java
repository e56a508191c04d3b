/**
 * Durable, strictly ordered priority queues over NATS: a client and a worker.
 *
 * <p>Begin with {@link io.github.pqbridge.PqClient}.
 */
package io.github.pqbridge;
