package io.github.pqbridge;

import java.util.Arrays;
import java.util.Locale;

/** What an item is doing. */
public enum State {
    /** It is there for the next pop. */
    READY,
    /** It waits for its time, or for the members of its join. */
    DELAYED,
    /** A worker has it. */
    LEASED,
    /** The job is acknowledged, and kept. */
    DONE,
    /** It is a dead letter. */
    DEAD,
    /** A bridge of a later version says something else. */
    OTHER;

    /** Returns the word of the protocol. */
    String word() { return name().toLowerCase(Locale.ROOT); }

    static State of(String word) {
        return Arrays.stream(values()).filter(state -> state.word().equals(word)).findFirst().orElse(OTHER);
    }

    @Override
    public String toString() { return word(); }
}
