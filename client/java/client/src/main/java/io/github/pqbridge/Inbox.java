package io.github.pqbridge;

import io.nats.client.Message;
import io.nats.client.Subscription;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * Receives the messages that answer one request at a time: a subscription that no other request uses
 * meanwhile, so that NATS tells the bridge when nobody is there. The thread of the request reads it.
 */
final class Inbox implements Link.UnderWay {
    private static final Duration SLICE = Duration.ofMillis(100); // between looks at what others say
    private static final Duration CLOSING = Duration.ofMinutes(5);

    private final Link link;
    private final String prefix;
    private final Subscription subscription;
    private long count;
    private volatile String reply = "";
    private volatile String subject = "";
    private volatile PqException failure;
    private volatile boolean lost;

    Inbox(Link link, String prefix) {
        this.link = link;
        this.prefix = prefix;
        subscription = link.nc.subscribe(prefix + "*");
        subscription.setPendingLimits(0, 0); // a message that is dropped would lose its items
    }

    /** Begins a request on a subject: messages for earlier ones are ignored from now on. */
    void begin(String subject) {
        this.subject = subject;
        reply = prefix + ++count;
        failure = null;
        lost = false;
    }

    /** Returns where the reply goes to. */
    String reply() { return reply; }

    @Override
    public String subjects() { return prefix + "*"; }

    @Override
    public String subject() { return subject; }

    @Override
    public void fail(PqException error) { failure = error; }

    @Override
    public boolean isDone() { return failure != null; }

    /** Notes that the connection was lost. */
    void lose() { lost = true; }

    boolean isLost() { return lost; }

    boolean isActive() { return subscription.isActive(); }

    /**
     * Returns the next message, or null after a slice of time or at a deadline. Throws why the server
     * has refused the request.
     */
    Message next(long deadline) throws InterruptedException {
        long left = Math.max(deadline - System.nanoTime(), Link.LAST_LOOK);
        long end = System.nanoTime() + Math.min(left, SLICE.toNanos());
        while (true) {
            Message message = take(Math.max(1, end - System.nanoTime()));
            if (message != null && message.getSubject().equals(reply)) {
                return message;
            }
            if (failure != null) {
                throw failure;
            }
            if (end - System.nanoTime() <= 0) {
                return null;
            }
        }
    }

    private Message take(long nanos) throws InterruptedException {
        try {
            return subscription.nextMessage(Duration.ofNanos(nanos));
        } catch (IllegalStateException e) { // the connection is closed
            lost = true;
            TimeUnit.NANOSECONDS.sleep(Math.min(nanos, Link.LAST_LOOK));
            return null;
        }
    }

    /**
     * Ends the subscription, so that NATS tells the bridge that nobody receives what comes, and returns
     * what came before that: for the bridge it was received.
     */
    List<Message> close() {
        List<Message> rest = new ArrayList<>();
        try {
            if (link.isConnected()) {
                subscription.drain(CLOSING);
            }
            while (subscription.getPendingMessageCount() > 0) {
                Message message = subscription.nextMessage(null);
                if (message != null && message.getSubject().equals(reply)) {
                    rest.add(message);
                }
            }
            if (subscription.isActive()) {
                subscription.unsubscribe();
            }
        } catch (IllegalStateException e) {
            // it has ended already
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        return rest;
    }
}
