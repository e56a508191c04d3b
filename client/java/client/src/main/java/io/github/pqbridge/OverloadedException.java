package io.github.pqbridge;

/** Not run: something is full or at a limit (429). Try again, more slowly. */
public class OverloadedException extends PqException {
    OverloadedException(String text, int code, String reason) { super(text, code, reason, false, true); }
}
