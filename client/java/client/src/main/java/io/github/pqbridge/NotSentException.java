package io.github.pqbridge;

/** The request was certainly not sent: the connection is away, closed, or may not send it. */
public class NotSentException extends PqException {
    NotSentException(String text, boolean passing) { super(text, 0, "", false, passing); }
}
