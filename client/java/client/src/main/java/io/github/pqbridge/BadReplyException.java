package io.github.pqbridge;

/** Something other than a bridge replied, such as a stream that captures the subject. */
public class BadReplyException extends PqException {
    BadReplyException(String text) { super(text, 0, "", true, false); }
}
