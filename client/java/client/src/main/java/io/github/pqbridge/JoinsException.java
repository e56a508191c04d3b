package io.github.pqbridge;

/** The job waits for its members and cannot be moved, or too many joins have members to purge (409). */
public class JoinsException extends PqException {
    JoinsException(String text, int code, String reason) { super(text, code, reason, false, false); }
}
