package io.github.pqbridge;

/** The bridge no longer confirms that a request waits: it, or the connection, may be gone. */
public class NoHeartbeatException extends UnknownOutcomeException {
    NoHeartbeatException(String text) { super(text, 0, "", true); }
}
