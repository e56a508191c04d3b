package io.github.pqbridge;

/**
 * The thread was interrupted while a call waited. {@link #unknown} says whether the request may have
 * been carried out. The thread is still marked as interrupted.
 */
public class CallInterruptedException extends PqException {
    CallInterruptedException(String text, boolean unknown) {
        super(text, 0, "", unknown, false);
        Thread.currentThread().interrupt();
    }
}
