package io.github.pqbridge.foundationdb;

import com.apple.foundationdb.Transaction;
import com.apple.foundationdb.tuple.Tuple;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;

/**
 * A priority queue of a bridge, in FoundationDB's recipe of that name. It may be used by any number
 * of threads, each with a transaction of its own.
 *
 * <p>Nothing happens until the transaction commits. Pushes do not conflict with each other. A pop
 * conflicts with other pops from the same end, a bridge's included, and with pushes that would have
 * come before the item it got; the binding's {@code run} then tries again.
 */
public final class FdbPriorityQueue {
    private final Recipe recipe;

    FdbPriorityQueue(Recipe recipe) {
        this.recipe = recipe;
    }

    /**
     * Adds a value behind all others of its priority. Smaller priorities come first.
     *
     * @param tr the caller's transaction
     * @param priority any number
     * @param value at most 100,000 bytes as it is stored, or the commit fails
     */
    public void push(Transaction tr, long priority, byte[] value) {
        pushAsync(tr, priority, value).join();
    }

    /**
     * Is {@link #push} for programs that compose futures. The transaction may commit only once the
     * future is complete.
     *
     * @param tr the caller's transaction
     * @param priority any number
     * @param value at most 100,000 bytes as it is stored, or the commit fails
     * @return complete once the transaction has the item
     */
    public CompletableFuture<Void> pushAsync(Transaction tr, long priority, byte[] value) {
        return recipe.push(tr, Tuple.from(priority), 0, value);
    }

    /**
     * Removes the item with the smallest priority and, among equals, the oldest.
     *
     * @param tr the caller's transaction
     * @return its value, or nothing if no item is ready
     */
    public Optional<byte[]> popMin(Transaction tr) {
        return popMinAsync(tr).join();
    }

    /**
     * Is {@link #popMin} for programs that compose futures.
     *
     * @param tr the caller's transaction
     * @return its value, or nothing if no item is ready
     */
    public CompletableFuture<Optional<byte[]>> popMinAsync(Transaction tr) {
        return recipe.pop(tr, false);
    }

    /**
     * Removes the item with the largest priority and, among equals, the newest.
     *
     * @param tr the caller's transaction
     * @return its value, or nothing if no item is ready
     */
    public Optional<byte[]> popMax(Transaction tr) {
        return popMaxAsync(tr).join();
    }

    /**
     * Is {@link #popMax} for programs that compose futures.
     *
     * @param tr the caller's transaction
     * @return its value, or nothing if no item is ready
     */
    public CompletableFuture<Optional<byte[]>> popMaxAsync(Transaction tr) {
        return recipe.pop(tr, true);
    }
}
