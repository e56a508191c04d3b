package io.github.pqbridge;

import java.util.Optional;
import java.util.function.Consumer;

/** An item that a {@link Worker} has leased, and a {@link Handler} does. */
public final class Job extends Item {
    private static final int MAX_PROGRESS = 1024; // bytes

    private final String queue;
    private final Consumer<byte[]> say;
    private volatile Ending ending;

    final Ack ack = Ack.of();

    /** Why a handler should end. */
    public enum Ending {
        /** The lease is lost, or may be: somebody else may do the job, and nothing more of this call counts. */
        LOST,
        /** The job takes longer than the worker allows. */
        TIMEOUT,
        /** The worker stops. The job goes back, and this delivery does not count. */
        STOPPED
    }

    Job(byte[] value, Headers all, String queue, Consumer<byte[]> say) {
        super(value, all);
        this.queue = queue;
        this.say = say;
    }

    /**
     * Returns the name of the queue.
     *
     * @return the name
     */
    public String queue() {
        return queue;
    }

    /**
     * Returns the job as the joiner of other items: see {@link Push#joiner(JobRef)}.
     *
     * @return the queue and the id
     */
    public JobRef ref() {
        return new JobRef(queue, id());
    }

    /**
     * Returns why the handler should end, since when its thread is interrupted. A handler that does not
     * wait, and so does not notice an interrupt, looks here now and then.
     *
     * @return why, or nothing as long as the job goes on
     */
    public Optional<Ending> ending() {
        return Optional.ofNullable(ending);
    }

    void end(Ending why) {
        ending = why;
    }

    /**
     * Sets what {@link Queue#result} returns if the handler returns and the job is kept. The last call
     * counts.
     *
     * @param result the bytes; a bridge takes 64 KiB unless it is configured otherwise, and the job fails
     *     with more
     */
    public void result(byte[] result) {
        ack.result(result);
    }

    /**
     * Sets what {@link Queue#result} returns if the handler returns and the job is kept.
     *
     * @param <T> the type of the result
     * @param result the result
     * @param codec turns it into bytes
     */
    public <T> void result(T result, Codec<T> codec) {
        ack.result(result, codec);
    }

    /**
     * Pushes an item in the transaction that removes this job: both happen, or neither. The setting next
     * of this job's queue must name the other queue, or the job fails. Message ids, unique keys and
     * weights are not possible.
     *
     * @param queue the name of a queue of the same kind
     * @param push the item
     * @return how many items came before it: those after it can have it as their {@link Push#joiner(int)}
     */
    public int next(String queue, Push push) {
        ack.next(queue, push);
        return ack.next.size() - 1;
    }

    /**
     * Says how far the job is, for {@link Queue#result} and {@link Queue#items}. It never waits: the
     * latest progress is sent, at most once a second.
     *
     * @param progress 1 to 1,024 bytes
     */
    public void progress(byte[] progress) {
        int size = Wire.required("progress", progress).length;
        if (size < 1 || size > MAX_PROGRESS) {
            throw new BadArgumentException("progress of " + size + " bytes: want 1 to " + MAX_PROGRESS);
        }
        say.accept(progress);
    }

    /**
     * Says how far the job is.
     *
     * @param <T> the type of the progress
     * @param progress 1 to 1,024 bytes, once they are encoded
     * @param codec turns it into bytes
     */
    public <T> void progress(T progress, Codec<T> codec) {
        progress(codec.encode(Wire.required("progress", progress)));
    }
}
