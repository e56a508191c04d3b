package io.github.pqbridge;

/** A chain of jobs branches or runs again: nobody can say which job is its last. */
public class ChainException extends PqException {
    ChainException(String text) { super(text, 0, "", false, false); }
}
