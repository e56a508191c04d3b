package io.github.pqbridge;

/** The client refused to send the request: the text says what would be right. */
public class BadArgumentException extends BadRequestException {
    /**
     * Makes an exception.
     *
     * @param text what is wrong, and what would be right
     */
    public BadArgumentException(String text) { super(text, 400, ""); }
}
