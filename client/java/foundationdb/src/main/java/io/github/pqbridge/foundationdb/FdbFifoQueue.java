package io.github.pqbridge.foundationdb;

import com.apple.foundationdb.Transaction;
import com.apple.foundationdb.tuple.Tuple;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;

/**
 * A FIFO queue of a bridge, in FoundationDB's recipe for queues. It may be used by any number of
 * threads, each with a transaction of its own.
 *
 * <p>Nothing happens until the transaction commits. Pushes do not conflict with each other. A pop
 * conflicts with other pops, a bridge's included, and the first push into an empty queue; the
 * binding's {@code run} then tries again.
 */
public final class FdbFifoQueue {
    private static final Tuple NO_PRIORITY = new Tuple();

    private final Recipe recipe;

    FdbFifoQueue(Recipe recipe) {
        this.recipe = recipe;
    }

    /**
     * Adds a value behind all others.
     *
     * @param tr the caller's transaction
     * @param value at most 100,000 bytes as it is stored, or the commit fails
     */
    public void push(Transaction tr, byte[] value) {
        pushAsync(tr, value).join();
    }

    /**
     * Is {@link #push} for programs that compose futures. The transaction may commit only once the
     * future is complete.
     *
     * @param tr the caller's transaction
     * @param value at most 100,000 bytes as it is stored, or the commit fails
     * @return complete once the transaction has the item
     */
    public CompletableFuture<Void> pushAsync(Transaction tr, byte[] value) {
        return recipe.push(tr, NO_PRIORITY, 1, value); // that recipe counts from 1
    }

    /**
     * Removes the oldest item.
     *
     * @param tr the caller's transaction
     * @return its value, or nothing if no item is ready
     */
    public Optional<byte[]> pop(Transaction tr) {
        return popAsync(tr).join();
    }

    /**
     * Is {@link #pop} for programs that compose futures.
     *
     * @param tr the caller's transaction
     * @return its value, or nothing if no item is ready
     */
    public CompletableFuture<Optional<byte[]>> popAsync(Transaction tr) {
        return recipe.pop(tr, false);
    }
}
