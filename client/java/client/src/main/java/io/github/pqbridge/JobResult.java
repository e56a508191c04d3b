package io.github.pqbridge;

import java.util.Optional;
import java.util.Set;

/** What became of a job. {@link #value} is what its handler returned, once it is done. */
public final class JobResult extends Item {
    JobResult(byte[] value, Headers all) { super(value, all); }

    /**
     * Returns what the job is doing.
     *
     * @return the state
     */
    public State state() { return State.of(all().get("Pq-State", "")); }

    /**
     * Reports whether the job is done or a dead letter.
     *
     * @return whether it has ended
     */
    public boolean isOver() { return state() == State.DONE || state() == State.DEAD; }

    /**
     * Reports whether the job is done and has returned something, be it empty.
     *
     * @return whether there is a result
     */
    public boolean hasResult() { return all().get("Pq-Result-Size") != null; }

    /**
     * Returns what failed, of a dead letter or of a job that is tried again.
     *
     * @return the text of the failure, "" for none
     */
    public String failure() {
        if (state() != State.DEAD) {
            return all().get("Pq-Last-Reason", "");
        }
        boolean plain = Set.of("max_deliver", "terminated").contains(reason());
        return plain && !error().isEmpty() ? error() : reason();
    }

    /**
     * Returns why a dead letter is one: "max_deliver", or the reason it was dropped with.
     *
     * @return the reason, "" unless the job is dead
     */
    public String reason() { return all().get("Pq-Dead-Reason", ""); }

    /**
     * Returns the last error of a dead letter that was not dropped.
     *
     * @return the error, "" for none
     */
    public String error() { return all().get("Pq-Dead-Error", ""); }

    int deadDeliveries() { return (int) number("Pq-Dead-Deliveries"); }

    /**
     * Returns what the worker said of how far a leased job is.
     *
     * @return the progress
     */
    public Optional<byte[]> progress() { return Optional.ofNullable(all().get("Pq-Progress")).map(Json::decode); }

    /**
     * Returns this, unless the job is a dead letter.
     *
     * @return this
     * @throws JobFailedException if it is one
     */
    public JobResult orThrow() {
        if (state() == State.DEAD) {
            throw new JobFailedException(this);
        }
        return this;
    }
}
