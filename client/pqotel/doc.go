// Package pqotel adds traces and metrics of OpenTelemetry to programs that use package client. It
// is a module of its own, so that other programs do not need its dependencies.
//
//	telemetry, err := pqotel.New(pqotel.Config{})
//	jobs := telemetry.Pusher(c.PriorityQueue("jobs"))
//	worker, err := c.PriorityQueue("jobs").NewWorker(work, client.WorkerOptions{
//		Middleware: []func(client.Work) client.Work{telemetry.Middleware},
//	})
//
// # Traces
//
// A push is a span, "push jobs". The headers of the item, such as traceparent, carry its trace
// context. So the later spans of the item are children of it, in any process:
//
//   - "wait jobs", from the push to the first delivery, by the clocks of the bridge and of the
//     worker. It includes the delay of the push.
//   - "process jobs", for each call of the Work. It is in the context of the Work.
//
// Pushes in batches, by a Producer and by a Call have no span, but [Telemetry.Link] makes the spans
// of their items children of a span of the program.
//
// # Metrics
//
// All have the attribute messaging.destination.name, the name of the queue.
//
//	pqbridge.worker.jobs          jobs, by pqbridge.outcome
//	pqbridge.worker.job.duration  seconds in the Work, a histogram, by pqbridge.outcome
//	pqbridge.worker.job.wait      seconds from the push to the first delivery, a histogram
//	pqbridge.worker.running       jobs under way
//
// The outcome is "done", "failed", "snoozed", "dropped", "timed_out", "panicked", "stopped" if
// Worker.Shutdown ended the job, or "lost" if its lease was lost. It is what the Work returned: the
// acknowledgement may still come too late.
package pqotel
