/**
 * Meters of Micrometer and spans of OpenTelemetry, with the names that the module for Go has.
 *
 * <pre>{@code
 * PqTelemetry telemetry = new PqTelemetry(registry, openTelemetry);
 * telemetry.push(jobs, Push.of("hello").priority(5));
 * Worker worker = Worker.builder(jobs).handle(handler).middleware(telemetry).start();
 * }</pre>
 *
 * <h2>Spans</h2>
 *
 * <p>A push is a span, "push jobs". The headers of the item, such as traceparent, carry its trace
 * context, so the later spans of the item are its children, in any process:
 *
 * <ul>
 *   <li>"wait jobs", from the push to the first delivery, by the clocks of the bridge and of the
 *       worker. It includes the delay of the push.
 *   <li>"process jobs", for each call of the handler, which has it as its current span.
 * </ul>
 *
 * <h2>Meters</h2>
 *
 * <p>All have the tag messaging.destination.name, the name of the queue.
 *
 * <table>
 *   <caption>Meters</caption>
 *   <tr><th>name</th><th>what it measures</th></tr>
 *   <tr><td>pqbridge.worker.jobs</td><td>counts jobs, by pqbridge.outcome</td></tr>
 *   <tr><td>pqbridge.worker.job.duration</td><td>times handlers, by pqbridge.outcome</td></tr>
 *   <tr><td>pqbridge.worker.job.wait</td><td>times what is between push and first delivery</td></tr>
 *   <tr><td>pqbridge.worker.running</td><td>jobs under way</td></tr>
 * </table>
 *
 * <p>The outcome is "done", "failed", "snoozed", "dropped", "timed_out", "stopped" if the worker
 * ended the job because it stops, or "lost" if its lease was lost. It is what the handler did: the
 * acknowledgement may still come too late.
 */
package io.github.pqbridge.telemetry;
