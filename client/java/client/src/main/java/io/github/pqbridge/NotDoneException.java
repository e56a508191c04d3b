package io.github.pqbridge;

/** A call waits no longer for its job, which is pushed and goes on: see {@link Queue#result}. */
public class NotDoneException extends PqException {
    /** The id of the job. */
    private final String id;
    /** What the bridge said last. */
    private final State state;

    NotDoneException(String text, String id, State state) {
        super(text, 0, "", false, false);
        this.id = id;
        this.state = state;
    }

    /**
     * Returns the id of the job.
     *
     * @return the id
     */
    public String id() { return id; }

    /**
     * Returns what the bridge said last.
     *
     * @return the state, null if it did not answer; then the cause says why
     */
    public State state() { return state; }
}
