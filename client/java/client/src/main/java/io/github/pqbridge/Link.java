package io.github.pqbridge;

import io.nats.client.Connection;
import io.nats.client.Message;
import java.time.Duration;
import java.util.List;
import java.util.Map;

/** What all clients of a connection share: requests and their replies. */
final class Link {
    /** How long a reply may be late. After that the bridge was killed, or NATS lost a message. */
    static final Duration LATE_REPLY = Duration.ofSeconds(5);

    final Connection nc;

    private Link(Connection nc) {
        this.nc = nc;
    }

    /** Returns the link of a connection. */
    static Link of(Connection nc) {
        return new Link(nc);
    }

    /** Reports whether the connection is closed for good, or about to be. */
    boolean isClosed() {
        throw new UnsupportedOperationException();
    }

    long maxPayload() {
        return nc.getMaxPayload();
    }

    /**
     * Sends a request once the connection is up, waits for its reply, and throws the error that the reply
     * says. Writes says that the request can change something: without a reply its outcome is unknown.
     * Restless gives up when the connection was lost, because the reply is lost too, most likely.
     */
    Message request(
            String subject, byte[] data, List<Header> headers, Duration timeout, boolean writes, boolean restless) {
        throw new UnsupportedOperationException();
    }

    /** Sends a request that only reads, with a body in JSON or none. */
    Message read(String subject, Map<String, Object> body, Duration timeout) {
        return request(subject, body == null ? new byte[0] : Json.write(body), List.of(), timeout, false, false);
    }

    /** Waits for a time, or until the connection has changed. */
    void pause(long nanos, boolean unknown) {
        throw new UnsupportedOperationException();
    }

    /** Waits for what runs in the background. */
    void await(Duration most) {
        throw new UnsupportedOperationException();
    }
}
