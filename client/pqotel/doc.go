// Package pqotel gives programs that use package client traces and metrics of OpenTelemetry. It is a
// module of its own, so that others do without its dependencies.
//
//	telemetry, err := pqotel.New(pqotel.Config{})
//	jobs := telemetry.Pusher(c.PriorityQueue("jobs"))
//	worker, err := c.PriorityQueue("jobs").NewWorker(work, client.WorkerOptions{
//		Middleware: []func(client.Work) client.Work{telemetry.Middleware},
//	})
//
// # Traces
//
// A push is a span, "push jobs". Its trace context goes into the headers of the item, such as
// traceparent, so the spans of what becomes of the item are its children, in whichever process they
// begin:
//
//   - "wait jobs", from the push to the first delivery, by the clock of the bridge and that of the
//     worker. It includes a delay that the push asked for.
//   - "process jobs", each time that the Work is called with the item. The context of the Work has it.
//
// Pushes in batches and by a Producer have no span, but [Telemetry.Link] makes the spans of their
// items children of one that the program has.
//
// # Metrics
//
// All have the attribute messaging.destination.name, which is the queue.
//
//	pqbridge.worker.jobs          jobs, by pqbridge.outcome
//	pqbridge.worker.job.duration  seconds in the Work, a histogram, by pqbridge.outcome
//	pqbridge.worker.job.wait      seconds from the push to the first delivery, a histogram
//	pqbridge.worker.running       jobs that are being done
//
// The outcome is "done", "failed", "snoozed", "dropped", "timed_out", "panicked", "stopped" if
// Worker.Shutdown ended the job, or "lost" if its lease was lost. It is what the Work returned: the
// acknowledgement may still come too late.
package pqotel
