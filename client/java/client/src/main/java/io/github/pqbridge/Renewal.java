package io.github.pqbridge;

import java.util.function.Consumer;

/**
 * Extends a lease whenever a third of it has passed, until it is ended or the lease is lost. OnLost is
 * called once, from a thread of its own, when the lease is lost or may be.
 */
final class Renewal {
    final Lease lease;

    /** OnFailure gets each error after which it tries again. */
    Renewal(Lease lease, Consumer<PqException> onLost, Consumer<PqException> onFailure) {
        this.lease = lease;
    }

    /** Extends the lease soon, at most once a second, and says how far the job is. The latest is sent. */
    void say(byte[] progress) {
        throw new UnsupportedOperationException();
    }

    /**
     * Stops extending, and reports whether the lease is certainly lost: somebody else has the job, or it
     * is settled. A request may still be under way; its reply is ignored.
     */
    boolean end() {
        throw new UnsupportedOperationException();
    }
}
