package io.github.pqbridge;

/**
 * How many items come before an item.
 *
 * @param rank their number
 * @param atLeast whether there may be more
 */
public record Rank(long rank, boolean atLeast) {}
