package io.github.pqbridge.foundationdb;

import com.apple.foundationdb.FDB;
import com.apple.foundationdb.subspace.Subspace;
import com.apple.foundationdb.tuple.Tuple;
import java.util.Objects;
import java.util.regex.Pattern;

/**
 * The queues that the bridges of one store serve. Making one, or a queue, reads and writes nothing.
 * The prefixes and the format must be those of the bridges, or other keys are meant.
 *
 * @param priorityPrefix the bridges' {@code PQ_KEY_PREFIX}
 * @param fifoPrefix the bridges' {@code PQ_FIFO_KEY_PREFIX}
 * @param format the bridges' {@code PQ_VALUE_FORMAT}
 */
public record FdbQueues(String priorityPrefix, String fifoPrefix, ValueFormat format) {
    private static final Pattern NAME = Pattern.compile("[A-Za-z0-9_-]{1,128}");

    /**
     * Checks that nothing is null.
     *
     * @param priorityPrefix the bridges' {@code PQ_KEY_PREFIX}
     * @param fifoPrefix the bridges' {@code PQ_FIFO_KEY_PREFIX}
     * @param format the bridges' {@code PQ_VALUE_FORMAT}
     */
    public FdbQueues {
        Objects.requireNonNull(priorityPrefix, "priorityPrefix");
        Objects.requireNonNull(fifoPrefix, "fifoPrefix");
        Objects.requireNonNull(format, "format");
    }

    /**
     * Returns the queues of bridges with the default prefixes, {@code "pq"} and {@code "q"}.
     *
     * @param format the bridges' {@code PQ_VALUE_FORMAT}
     */
    public FdbQueues(ValueFormat format) {
        this("pq", "q", format);
    }

    /**
     * Returns the priority queue that bridges serve as {@code pq.<name>}.
     *
     * @param name 1 to 128 ASCII letters, digits, '-' and '_'
     * @return the queue
     * @throws IllegalArgumentException if this is no name of a queue
     */
    public FdbPriorityQueue priorityQueue(String name) {
        return new FdbPriorityQueue(recipe(priorityPrefix, name));
    }

    /**
     * Returns the FIFO queue that bridges serve as {@code q.<name>}.
     *
     * @param name 1 to 128 ASCII letters, digits, '-' and '_'
     * @return the queue
     * @throws IllegalArgumentException if this is no name of a queue
     */
    public FdbFifoQueue fifoQueue(String name) {
        return new FdbFifoQueue(recipe(fifoPrefix, name));
    }

    private Recipe recipe(String prefix, String name) {
        if (!NAME.matcher(name).matches()) {
            throw new IllegalArgumentException(
                    "queue name \"" + name + "\": want 1 to 128 letters, digits, '-' and '_'");
        }
        return new Recipe(new Subspace(Tuple.from(prefix, name, "i")), format);
    }

    /**
     * Is {@link FDB#selectAPIVersion} with an exception that says what to install where
     * FoundationDB's client library is missing.
     *
     * @param version of the API, 620 to 730
     * @return the entry to the binding
     * @throws IllegalStateException if {@code libfdb_c} cannot be loaded
     */
    public static FDB selectApiVersion(int version) {
        try {
            return FDB.selectAPIVersion(version);
        } catch (LinkageError e) { // another one from the second call on
            throw new IllegalStateException("libfdb_c cannot be loaded: install FoundationDB's"
                    + " package foundationdb-clients, 7.3 or newer; " + e.getMessage(), e);
        }
    }
}
