package io.github.pqbridge;

/** The bridge refused the request (400): it is wrong, and would be wrong every time. */
public class BadRequestException extends PqException {
    BadRequestException(String text, int code, String reason) { super(text, code, reason, false, false); }
}
