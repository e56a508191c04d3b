package io.github.pqbridge;

/** The service or the stored data is at fault (500). */
public class InternalException extends PqException {
    InternalException(String text, int code, String reason) { super(text, code, reason, false, false); }
}
