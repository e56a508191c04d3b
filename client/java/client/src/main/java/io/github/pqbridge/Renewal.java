package io.github.pqbridge;

import java.time.Duration;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/**
 * Extends a lease whenever a third of it has passed, until it is ended or the lease is lost. OnLost is
 * called once, when the lease is lost or may be. Both functions must not wait.
 */
final class Renewal {
    private static final Duration LEAST = Duration.ofMillis(30); // between two renewals
    private static final Duration SHORTEST = Duration.ofMillis(50); // for a reply
    private static final Duration LAST_ATTEMPT = Duration.ofSeconds(2); // for the reply after the end of a lease
    private static final long PROGRESS = TimeUnit.SECONDS.toNanos(1); // between two that are said

    private final Lease lease;
    private final Consumer<PqException> onLost;
    private final Consumer<PqException> onFailure;
    private byte[] progress; // to say
    private long progressAt = System.nanoTime() - PROGRESS; // when some was said last
    private long retryAt; // when to try again, if the last attempt failed
    private boolean failing;
    private boolean busy; // a request is under way
    private boolean ended;
    private boolean lost;
    private ScheduledFuture<?> timer;

    /** OnFailure gets each error after which it tries again. */
    Renewal(Lease lease, Consumer<PqException> onLost, Consumer<PqException> onFailure) {
        this.lease = lease;
        this.onLost = onLost;
        this.onFailure = onFailure;
        schedule();
    }

    private Duration every() {
        Duration third = Duration.ofNanos(lease.ackWait().toNanos() / 3);
        return third.compareTo(LEAST) < 0 ? LEAST : third;
    }

    /** Extends the lease soon, at most once a second, and says how far the job is. The latest is sent. */
    synchronized void say(byte[] progress) {
        this.progress = progress;
        schedule();
    }

    /**
     * Stops extending, and reports whether the lease is certainly lost: somebody else has the job, or it
     * is settled. A request may still be under way; its reply is ignored.
     */
    synchronized boolean end() {
        ended = true;
        if (timer != null) {
            timer.cancel(false);
        }
        return lost;
    }

    /** Sets the timer for the next request, unless one is under way. */
    private synchronized void schedule() {
        if (ended || busy) {
            return;
        }
        if (timer != null) {
            timer.cancel(false);
        }
        long now = System.nanoTime();
        long wait = failing ? retryAt - now : lease.began() + every().toNanos() - now;
        if (progress != null && !failing) {
            wait = Math.min(wait, progressAt + PROGRESS - now);
        }
        timer = Threads.TIMER.schedule(this::begin, Math.max(0, wait), TimeUnit.NANOSECONDS);
    }

    private void begin() {
        synchronized (this) {
            if (ended || busy) {
                return;
            }
            busy = true;
        }
        if (!lease.queue.link.isConnected()) { // then it takes no thread, whose number is limited
            tell(new NotSentException("no connection to a NATS server", true), null, lease.left());
            return;
        }
        try {
            Threads.RENEWALS.execute(this::extend);
        } catch (OutOfMemoryError noThread) {
            tell(new NotSentException("no thread: " + noThread.getMessage(), true), null, lease.left());
        }
    }

    private void extend() {
        byte[] said = takeProgress();
        long left = lease.left();
        PqException failure = null;
        try {
            // A lease that is over still counts if nobody else has the job. This is the last attempt then.
            Duration timeout = left > 0 ? Duration.ofNanos(Math.min(every().toNanos(), left)) : LAST_ATTEMPT;
            lease.extend(said, timeout.compareTo(SHORTEST) < 0 ? SHORTEST : timeout);
        } catch (PqException e) {
            failure = e;
        } catch (RuntimeException | Error e) {
            failure = new NotSentException("cannot extend a lease: " + e, true);
        }
        tell(failure, said, left);
    }

    /** Tells what has come of a request that began with so much left of the lease, and goes on. */
    private void tell(PqException failure, byte[] said, long left) {
        if (!note(failure, said, left, every().toNanos())) {
            (lost || left <= 0 ? onLost : onFailure).accept(failure);
        }
        schedule();
    }

    private synchronized byte[] takeProgress() {
        byte[] said = progress;
        progress = null;
        progressAt = said == null ? progressAt : System.nanoTime();
        return said;
    }

    /** Notes what has come of a request, and reports whether there is nothing to tell. */
    private synchronized boolean note(PqException failure, byte[] said, long left, long every) {
        busy = false;
        failing = failure != null;
        if (failure == null || ended) {
            return true;
        }
        lost = failure instanceof LeaseLostException;
        ended = lost || left <= 0;
        progress = progress == null ? said : progress;
        long pause = Math.min(every / 10, TimeUnit.SECONDS.toNanos(1));
        retryAt = System.nanoTime() + Math.max(0, Math.min(pause, lease.left()));
        return false;
    }
}
