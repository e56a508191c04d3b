package io.github.pqbridge;

import io.nats.client.Message;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * A leased item: nobody else gets it until the lease is over. End it with {@link #ack()} when the item
 * is done, with a nak or {@link #snooze} to have it come back, and with {@link #term} to make it a dead
 * letter. All of these and {@link #extend()} throw {@link LeaseLostException} once the item is settled or
 * somebody else has it, so a late call does no harm. After an exception that is
 * {@link PqException#unknown}, call again: LeaseLostException then most likely means that the first
 * call counted.
 */
public final class Lease extends Item {
    static final int MAX_PROGRESS = 1024; // bytes
    private static final int MAX_REASON = 1360; // characters, of three bytes at most
    private static final byte[] WORKING = "+WPI".getBytes(StandardCharsets.US_ASCII);

    final Queue queue;
    final String ackSubject;
    private final String token;
    private volatile Duration length;
    private volatile long began;

    /** The length is 0 if the settings of the queue decided it. */
    Lease(Queue queue, Received received, Duration ackWait) {
        super(received.value(), received.headers());
        this.queue = queue;
        this.ackSubject = received.ackSubject();
        this.began = received.began();
        if (ackSubject == null || ackSubject.isEmpty()) {
            throw new BadReplyException("a leased item without a reply subject: job " + id());
        }
        int at = ackSubject.lastIndexOf(".ack.");
        this.token = at < 0 ? "" : ackSubject.substring(at + ".ack.".length());
        this.length = ackWait.isZero() ? Wire.parseDuration(all().get("Pq-Ack-Wait", "0")) : ackWait;
    }

    /**
     * Returns the length of the lease.
     *
     * @return the length; 0 if the message left no room for it: {@link #extend()} learns it
     */
    public Duration ackWait() { return length; }

    /** Returns when the lease began, or earlier, on System.nanoTime. */
    long began() { return began; }

    /** Returns the nanoseconds until the lease may be over, 0 or less after that. */
    long left() { return began + length.toNanos() - System.nanoTime(); }

    /** Removes the item: it is done. */
    public void ack() { ack(Ack.of()); }

    /**
     * Removes the item, with a result.
     *
     * @param result what {@link Queue#result} returns if the job is kept
     */
    public void ack(byte[] result) { ack(Ack.of().result(result)); }

    /**
     * Removes the item, with a result and what follows.
     *
     * @param ack the result, and what is pushed
     * @throws BadRequestException if the result is too large for the bridge, or the settings do not allow
     *     what is pushed: the lease goes on
     * @throws TooLargeException if a message of NATS has no room for it
     */
    public void ack(Ack ack) {
        Wire.required("ack", ack);
        PqException error = Acks.together(List.of(new Acks.Done(this, ack.result, ack.contentType, ack.next))).get(0);
        if (error != null) {
            throw error;
        }
    }

    /** Returns the item to its old place, after the backoff of the queue, or else at once. */
    public void nak() { nak(""); }

    /**
     * Returns the item to its old place, after the backoff of the queue, or else at once. After the last
     * delivery that the settings allow it becomes a dead letter instead.
     *
     * @param reason why, cut at 1,024 bytes
     */
    public void nak(String reason) { nak(Json.of("reason", cut(reason))); }

    /**
     * Returns the item to its old place after a time, whatever the backoff.
     *
     * @param delay the time, up to ten years
     * @param reason why, cut at 1,024 bytes
     */
    public void nakAfter(Duration delay, String reason) {
        nak(Json.of("reason", cut(reason), "delay", Wire.durationText("delay", delay)));
    }

    /**
     * Returns the item to its old place after the backoff of the queue. Without one it is back after a
     * time, which doubles with each further delivery, up to a minute or the time itself.
     *
     * @param retryDelay the time, up to ten years
     * @param reason why, cut at 1,024 bytes
     */
    public void nakRetry(Duration retryDelay, String reason) {
        nak(Json.of("reason", cut(reason), "retry_delay", Wire.durationText("retryDelay", retryDelay)));
    }

    /**
     * Returns the item to its place after a time, without counting this delivery.
     *
     * @param delay the time, up to ten years
     */
    public void snooze(Duration delay) { nak(Json.of("snooze", true, "delay", Wire.durationText("delay", delay))); }

    /**
     * Makes the item a dead letter.
     *
     * @param reason why, cut at 256 bytes
     */
    public void term(String reason) {
        settle(List.of(), ("+TERM " + cut(reason)).strip().getBytes(StandardCharsets.UTF_8), patience());
    }

    /**
     * Restarts the lease with its old length.
     *
     * @return its new end by the bridge's clock
     */
    public Optional<Instant> extend() { return extend(null, patience()); }

    /**
     * Restarts the lease, and says how far the job is: {@link Queue#result} and {@link Queue#items} have it.
     *
     * @param progress up to 1,024 bytes
     * @return its new end by the bridge's clock
     */
    public Optional<Instant> extend(byte[] progress) { return extend(Wire.required("progress", progress), patience()); }

    /** Extends the lease, with progress unless that is null. */
    Optional<Instant> extend(byte[] progress, Duration timeout) {
        if (progress != null && (progress.length < 1 || progress.length > MAX_PROGRESS)) {
            throw new BadArgumentException("progress of " + progress.length + " bytes: want 1 to " + MAX_PROGRESS);
        }
        long sent = System.nanoTime();
        List<Header> headers = progress == null ? List.of() : List.of(new Header("Pq-Ack", "+WPI"));
        Message reply = settle(headers, progress == null ? WORKING : progress, timeout);
        String told = Link.header(reply, "Pq-Ack-Wait");
        began = sent;
        length = told.isEmpty() ? length : Wire.parseDuration(told);
        return Optional.ofNullable(Json.parseTime(Link.header(reply, "Pq-Lease-Until")));
    }

    /** Extends the lease if it may be over, or if its length is unknown, before a job begins. */
    void confirm() {
        if (left() <= 0) {
            extend();
        }
    }

    private void nak(Map<String, Object> options) {
        settle(List.of(), ("-NAK " + Json.text(options)).getBytes(StandardCharsets.US_ASCII), patience());
    }

    /** Shortens a text to what a message has room for; the bridge keeps less. */
    private static String cut(String reason) {
        String text = Wire.required("reason", reason);
        text = text.length() > MAX_REASON ? text.substring(0, MAX_REASON) + "..." : text;
        return text.replaceAll("\\p{Cs}", "?"); // halves of pairs, also of one that was cut
    }

    /** Sends an acknowledgement once, and returns the reply. */
    Message settle(List<Header> headers, byte[] data, Duration timeout) {
        return queue.link.request(ackSubject, data, headers, timeout, true, true);
    }

    /** Returns how long to wait for a reply, so that there is time for another attempt. */
    Duration patience() {
        Duration third = Duration.ofNanos(length.toNanos() / 3);
        Duration most = third.compareTo(Link.LATE_REPLY) < 0 ? Link.LATE_REPLY : third;
        return most.compareTo(queue.client.timeout) < 0 ? most : queue.client.timeout;
    }

    /** Returns the subject of acknowledgements in the queue up to the token. */
    String acks() { return ackSubject.substring(0, ackSubject.length() - token().length()); }

    /** Returns the token of the lease, "" for a client of another account than the bridge. */
    String token() { return token; }
}
