package io.github.pqbridge;

import java.util.List;

/** An item with its state, and what its job has gone through and pushed. */
public class FoundItem extends Item {
    private final List<Attempt> attempts;
    private final List<JobRef> successors;
    private final int moreSuccessors;

    FoundItem(byte[] value, Headers all, List<Attempt> attempts, List<JobRef> successors, int moreSuccessors) {
        super(value, all);
        this.attempts = attempts;
        this.successors = successors;
        this.moreSuccessors = moreSuccessors;
    }

    /** Reads the past from the headers of a reply. */
    static FoundItem of(byte[] value, Headers all) {
        List<Attempt> attempts = all.all("Pq-Trail").stream()
                .map(text -> Attempt.of(Json.read(Wire.encode(text), "")))
                .toList();
        List<String> next = all.all("Pq-Next");
        int more = next.stream().filter(s -> s.startsWith("+")).mapToInt(Integer::parseInt).sum();
        List<JobRef> pushed = next.stream().filter(s -> !s.startsWith("+")).map(JobRef::of).toList();
        return new FoundItem(value, all, attempts, pushed, more);
    }

    /**
     * Returns what the item is doing.
     *
     * @return the state
     */
    public State state() { return State.of(all().get("Pq-State", "")); }

    /**
     * Returns the attempts of the job that have ended, as far as the setting trail keeps them.
     *
     * @return the attempts, the oldest first
     */
    public List<Attempt> attempts() { return attempts; }

    /**
     * Returns the first 64 jobs that one which is done has pushed, if the setting trail was there.
     *
     * @return the jobs
     */
    public List<JobRef> successors() { return successors; }

    /**
     * Returns how many more than these the job has pushed.
     *
     * @return the number
     */
    public int moreSuccessors() { return moreSuccessors; }
}
