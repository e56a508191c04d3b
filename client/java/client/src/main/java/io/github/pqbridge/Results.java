package io.github.pqbridge;

import java.time.Duration;

/** Waits for what becomes of jobs. */
final class Results {
    private Results() {}

    /** Wait is null for as long as it takes. */
    static JobResult call(Queue q, Push push, Duration wait) {
        throw new UnsupportedOperationException();
    }

    static JobResult of(Queue q, JobName job, Duration wait, boolean follow) {
        throw new UnsupportedOperationException();
    }
}
