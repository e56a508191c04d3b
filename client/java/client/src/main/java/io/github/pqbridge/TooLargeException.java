package io.github.pqbridge;

/** A message, batch or item exceeds a limit, which the text names (413). */
public class TooLargeException extends PqException {
    TooLargeException(String text, int code, String reason) { super(text, code, reason, false, false); }
}
