package io.github.pqbridge;

/** The NATS server refused the request or its inbox: the connection lacks a permission. */
public class DeniedException extends NotSentException {
    DeniedException(String text) { super(text, false); }
}
