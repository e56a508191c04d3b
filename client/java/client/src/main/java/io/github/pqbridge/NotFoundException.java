package io.github.pqbridge;

/** There is no such item, job or schedule (404). */
public class NotFoundException extends PqException {
    NotFoundException(String text, int code, String reason) { super(text, code, reason, false, false); }
}
