package io.github.pqbridge;

import java.util.concurrent.ScheduledFuture;
import java.util.function.BiConsumer;
import java.util.function.Consumer;

/** A job that a worker has leased, and whose lease it renews. It takes a slot until it is settled. */
final class Held {
    final Lease lease;
    final Job job;
    private final Renewal renewal;

    private ScheduledFuture<?> timer; // of the job's timeout
    private Thread thread; // that runs the handler, or settles the job
    private boolean isHandling;
    private boolean isOver; // the handler
    private boolean isAbandoned;

    Held(Lease lease, BiConsumer<Held, PqException> onLost, Consumer<PqException> onFailure) {
        this.lease = lease;
        this.job = new Job(lease.value(), lease.all(), lease.queue.name(), p -> say(p));
        this.renewal = new Renewal(lease, error -> onLost.accept(this, error), onFailure);
    }

    private void say(byte[] progress) {
        renewal.say(progress);
    }

    /** Returns the acknowledgement of the job. */
    Acks.Done done() {
        return new Acks.Done(lease, job.ack.result, job.ack.contentType, job.ack.next);
    }

    /** Stops renewing the lease, and reports whether it is certainly lost. */
    boolean letGo() {
        return renewal.end();
    }

    // The thread of the job. It is interrupted only between enter and leave, under the lock, and leave
    // clears what has come: so a late interrupt never hits what the thread does next.

    /** Begins the handler in this thread, unless the job should end. */
    synchronized boolean beginHandler(ScheduledFuture<?> timer) {
        this.timer = timer;
        if (job.ending().isPresent()) {
            isOver = true;
            return false;
        }
        isHandling = true;
        thread = Thread.currentThread();
        return true;
    }

    /** Ends the handler, and reports whether the job is still its own to settle. */
    synchronized boolean endHandler() {
        leave();
        isHandling = false;
        isOver = true;
        if (timer != null) {
            timer.cancel(false);
        }
        return !isAbandoned;
    }

    /** Runs what settles the job in this thread, and can be interrupted. */
    void settling(Runnable settle) {
        synchronized (this) {
            thread = Thread.currentThread();
        }
        try {
            settle.run();
        } finally {
            leave();
        }
    }

    private synchronized void leave() {
        thread = null;
        Thread.interrupted();
    }

    /** Asks the handler to end. */
    synchronized void end(Job.Ending why) {
        if (!isOver && job.ending().isEmpty()) {
            job.end(why);
            if (isHandling) {
                thread.interrupt();
            }
        }
    }

    /** Gives up a handler that goes on although it should end, or never began, and reports whether it does. */
    synchronized boolean abandon() {
        isAbandoned = !isOver;
        return isAbandoned;
    }

    /** Gives up a job whose handler has not begun, and reports whether it does. */
    synchronized boolean refuse() {
        boolean begun = isHandling || isOver;
        if (!begun) {
            job.end(Job.Ending.STOPPED);
            isAbandoned = true;
        }
        return !begun;
    }

    /** Interrupts what settles the job. */
    synchronized void giveUp() {
        if (isOver && thread != null) {
            thread.interrupt();
        }
    }

    synchronized boolean isHandledBy(Thread other) {
        return isHandling && thread == other;
    }
}
