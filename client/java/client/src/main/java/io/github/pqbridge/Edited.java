package io.github.pqbridge;

/**
 * What became of one of several items that a request has named.
 *
 * @param id the id of the job, "" beside the error of an item that was named by its place
 * @param place where the item is now, after a move or redrive; beside an error, the place that named it
 * @param home the queue that a dead letter went back to, "" otherwise
 * @param error why nothing was done with this one, or null
 */
public record Edited(String id, String place, String home, PqException error) {}
