package io.github.pqbridge;

import java.util.List;

/** Pushes items, again if that may help and cannot push them twice. */
final class Pushes {
    private Pushes() {}

    static Pushed one(Queue q, Push push) {
        throw new UnsupportedOperationException();
    }

    static List<Pushed> batch(Queue q, List<Push> items) {
        throw new UnsupportedOperationException();
    }

    static List<PushOutcome> many(Queue q, Iterable<Push> items) {
        throw new UnsupportedOperationException();
    }
}
