package io.github.pqbridge;

import java.time.Duration;
import java.util.Set;

/**
 * What becomes of a job.
 *
 * @param kind what
 * @param text the reason of all but done
 * @param delay until a job comes back that failed or snoozed, null for the backoff of the queue
 * @param error what the handler threw, null for nothing
 */
public record Outcome(Kind kind, String text, Duration delay, Throwable error) {
    private static final int MAX_CAUSES = 16;
    private static final Set<Class<?>> PLAIN = Set.of(
            Exception.class, RuntimeException.class, RetryAfter.class, Snooze.class, Drop.class);

    /** Ways in which a delivery of a job ends. */
    public enum Kind {
        /** It is removed, or kept. */
        DONE,
        /** It comes back, or is a dead letter. */
        FAILED,
        /** It comes back, and the delivery does not count. */
        SNOOZED,
        /** It is a dead letter. */
        DROPPED,
        /** Somebody else has it. */
        LOST,
        /** It is given back, and the delivery does not count. */
        STOPPED
    }

    static final Outcome DONE = new Outcome(Kind.DONE, "", null, null);

    /** Returns the outcome of a job whose worker ended it before its handler ran. */
    static Outcome of(Job.Ending why) {
        return switch (why) {
            case LOST -> new Outcome(Kind.LOST, "the lease was lost", null, null);
            case STOPPED -> new Outcome(Kind.STOPPED, "the worker stops", null, null);
            case TIMEOUT -> new Outcome(Kind.FAILED, "timed out", null, null);
        };
    }

    /** Returns the outcome of a job whose handler threw something. */
    static Outcome of(Throwable thrown, Job job) {
        String text = text(thrown, MAX_CAUSES);
        if (thrown instanceof Snooze s) {
            return new Outcome(Kind.SNOOZED, text, s.delay(), thrown);
        }
        if (thrown instanceof Drop) {
            return new Outcome(Kind.DROPPED, text, null, thrown);
        }
        Job.Ending why = job.ending().orElse(null);
        if (why == Job.Ending.LOST || why == Job.Ending.STOPPED) {
            return new Outcome(of(why).kind, text, null, thrown);
        }
        if (why == Job.Ending.TIMEOUT) {
            text = thrown instanceof InterruptedException ? "timed out" : "timed out: " + text;
        }
        return new Outcome(Kind.FAILED, text, thrown instanceof RetryAfter r ? r.delay() : null, thrown);
    }

    /**
     * Runs a handler on a job made of a push, without NATS: a test of the handler.
     *
     * @param handler the handler
     * @param push the value, the type and the other options of the job
     * @return what would become of the job
     */
    public static Outcome of(Handler handler, Push push) {
        Push.Prepared item = push.prepare("", 0);
        return run(handler, new Job(item.value(), new Headers(item.headers()), "test", progress -> {}));
    }

    static Outcome run(Handler handler, Job job) {
        try {
            handler.handle(job);
            return DONE;
        } catch (Throwable thrown) {
            return of(thrown, job);
        }
    }

    /**
     * Returns what an exception says, with its class unless that says nothing, and then what its cause
     * says unless the exception says the same, as in "IOException: cannot print: disk full".
     */
    private static String text(Throwable thrown, int causes) {
        String said = said(thrown);
        Class<?> named = thrown.getClass();
        while (named.isAnonymousClass()) {
            named = named.getSuperclass();
        }
        String name = named.getSimpleName();
        String text = PLAIN.contains(named) ? said : said.isEmpty() ? name : name + ": " + said;
        Throwable cause = cause(thrown);
        if (cause != null && causes > 0) {
            String why = text(cause, causes - 1);
            if (said(cause).isEmpty() || !text.contains(said(cause))) {
                text = text.isEmpty() ? why : text + ": " + why;
            }
        }
        return text.isEmpty() ? name : text;
    }

    private static Throwable cause(Throwable thrown) {
        try {
            return thrown.getCause();
        } catch (RuntimeException | Error broken) {
            return null;
        }
    }

    private static String said(Throwable thrown) {
        try {
            return thrown.getMessage() == null ? "" : thrown.getMessage();
        } catch (RuntimeException | Error broken) {
            return "";
        }
    }
}
