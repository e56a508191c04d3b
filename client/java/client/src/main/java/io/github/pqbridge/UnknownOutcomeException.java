package io.github.pqbridge;

/** The request may or may not have been carried out: the bridge said so, or no reply came. */
public class UnknownOutcomeException extends PqException {
    UnknownOutcomeException(String text, int code, String reason, boolean passing) {
        super(text, code, reason, true, passing);
    }
}
