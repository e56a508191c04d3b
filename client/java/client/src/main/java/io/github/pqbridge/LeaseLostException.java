package io.github.pqbridge;

/** The item is settled, somebody else's, or in another state than the request needs (409). */
public class LeaseLostException extends PqException {
    LeaseLostException(String text, int code, String reason) { super(text, code, reason, false, false); }
}
