package io.github.pqbridge;

/** The joiner of a push does not wait for members, or not any more (409). */
public class JoinedException extends PqException {
    JoinedException(String text, int code, String reason) { super(text, code, reason, false, false); }
}
