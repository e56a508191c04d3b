package io.github.pqbridge;

/** No bridge listens on the subject. */
public class NoBridgeException extends PqException {
    NoBridgeException(String text) { super(text, 0, "", false, true); }
}
