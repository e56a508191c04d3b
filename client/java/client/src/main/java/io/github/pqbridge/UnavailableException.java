package io.github.pqbridge;

/** Not run, or a request that only reads has no reply (503). Try again. */
public class UnavailableException extends PqException {
    UnavailableException(String text, int code, String reason, boolean passing) {
        super(text, code, reason, false, passing);
    }
}
