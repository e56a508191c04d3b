/**
 * Queues of a bridge inside a program's own FoundationDB transactions: a push, a pop and the
 * program's reads and writes commit together or not at all.
 *
 * <pre>{@code
 * FDB fdb = FdbQueues.selectApiVersion(730);
 * FdbPriorityQueue jobs = new FdbQueues(ValueFormat.RAW).priorityQueue("jobs");
 * try (Database db = fdb.open()) {
 *   db.run(tr -> {
 *     tr.set(order, goods);
 *     jobs.push(tr, 5, order);
 *     return null;
 *   });
 * }
 * }</pre>
 *
 * <p>Items are at the keys of FoundationDB's published recipes for a priority queue and a queue,
 * and nothing else is written. So an item that is pushed here has no headers, and with them no
 * type, group or message id, and no push time, and the lengths of queues do not count it. Leases,
 * delays, limits and settings are the bridge's: a pop here sees ready items only, and takes the
 * first even where a pause, a limit or an expiry would have a bridge pass it over.
 */
package io.github.pqbridge.foundationdb;
