package io.github.pqbridge;

/** The item is leased, and can be neither moved nor redriven (409). */
public class LeasedException extends PqException {
    LeasedException(String text, int code, String reason) { super(text, code, reason, false, false); }
}
