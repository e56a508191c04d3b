package io.github.pqbridge.spring;

import io.github.pqbridge.PqClient;
import io.nats.client.Connection.Status;
import java.util.LinkedHashMap;
import java.util.Map;
import org.springframework.boot.health.contributor.AbstractHealthIndicator;
import org.springframework.boot.health.contributor.Health;

/** Is up while NATS is connected and every worker goes on. It sends nothing. */
final class PqHealthIndicator extends AbstractHealthIndicator {
    private final PqClient client;
    private final PqWorkers workers;

    PqHealthIndicator(PqClient client, PqWorkers workers) {
        super("the state of the workers is unknown");
        this.client = client;
        this.workers = workers;
    }

    @Override
    protected void doHealthCheck(Health.Builder builder) {
        Status nats = client.connection().getStatus();
        Map<String, String> states = new LinkedHashMap<>();
        workers.running().forEach((queue, worker) -> states.put(queue, worker.ended().handle(
                (none, failed) -> failed == null ? "stopped" : failed.getMessage()).getNow("running")));
        boolean up = nats == Status.CONNECTED && states.values().stream().allMatch("running"::equals);
        (up ? builder.up() : builder.down()).withDetail("nats", nats).withDetail("workers", states);
    }
}
