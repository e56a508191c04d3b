package io.github.pqbridge;

import io.nats.client.Connection;
import io.nats.client.impl.NatsServerPool;
import io.nats.client.support.NatsUri;
import java.lang.reflect.Field;
import java.util.Map;

/**
 * The servers of a connection, which outlasts refused logins once it was up. Left to itself, jnats
 * closes a connection whose login one server has refused twice, and never ends an attempt to connect.
 */
final class Servers extends NatsServerPool {
    private volatile Connection nc;
    private volatile boolean isAbandoned;

    /** Notes the connection, which was up. */
    void connected(Connection nc) { this.nc = nc; }

    /** Ends the attempt to connect. */
    void abandon() { isAbandoned = true; }

    @Override
    public NatsUri peekNextServer() { return isAbandoned ? null : super.peekNextServer(); }

    @Override
    public NatsUri nextServer() {
        if (nc != null) {
            forgetRefusals();
        }
        return isAbandoned ? null : super.nextServer();
    }

    /** Has jnats take each refusal for the first one. It has no setting for that. */
    private void forgetRefusals() {
        try {
            Field refusals = nc.getClass().getDeclaredField("serverAuthErrors");
            refusals.setAccessible(true);
            ((Map<?, ?>) refusals.get(nc)).clear();
        } catch (ReflectiveOperationException | RuntimeException e) {
            // a jnats that remembers them elsewhere, and gives up
        }
    }
}
