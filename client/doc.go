// Package client is the Go client of pqbridge: durable priority queues and FIFO queues over a NATS
// connection that the program already has.
//
//	jobs := client.New(nc).PriorityQueue("jobs")
//	_, err := jobs.Push(ctx, 5, []byte("write the report"))
//	item, err := jobs.Pop(ctx)
//
// # Leases
//
// A pop removes the item, so a worker that dies loses it. A lease keeps the item in the queue,
// where no other worker gets it, until the worker acknowledges it. If the lease ends first, the
// item returns to its old place. So it is delivered at least once:
//
//	job, err := jobs.Lease(ctx, client.AckWait(time.Minute))
//	...
//	err = job.Ack(ctx)
//
// A [Worker] does all of that: it leases, extends, acknowledges and waits. [Job.Progress] says how
// far a job is.
//
// # Many items
//
// PopBatch and LeaseBatch take up to 1,000 items in one request. PushBatch adds up to 4,096 items
// in one transaction, all or none. PushMany adds any number of items in several batches, and says
// what became of each. AckAll acknowledges many deliveries with few requests. A [Producer] pushes
// items as they come, without waiting for each, and bounds how many are under way.
//
// # Results
//
// A job that was pushed with [Keep] is kept for that time once it is done, with what it returned.
// [Queue.Result] finds it by its id, and can wait for it. [Queue.Call] pushes a job and waits for
// its result. A [Work] returns one with [Job.SetResult], or is made by [Returns], or by a
// [Function], which has types. The result is stored with the acknowledgement, or not at all.
//
// # Timeouts
//
// Every call waits for its reply until its context ends. If the context has no deadline, the call
// waits for [DefaultTimeout], or as long as [WithTimeout] says.
//
// A pop or lease of an empty queue returns [ErrEmpty] at once, or waits for an item:
//
//	item, err := jobs.Pop(ctx, client.Expires(30*time.Second))
//
// # Errors
//
// Compare errors with the variables of this package, using errors.Is. Any request can fail with
// [ErrNotSent], [ErrNoBridge], [ErrBadRequest] for the name of the queue, [ErrOverloaded],
// [ErrUnavailable], [ErrInternal], [ErrBadReply] or the error of its context. Each method lists
// what else it returns.
//
// After ErrNotSent, a request was certainly not sent. A request that failed changed nothing, unless
// the error is [ErrUnknownOutcome]. Then a push may or may not be in the queue, a pop whose reply
// was lost may have taken an item that nobody will get, and an acknowledgement may or may not
// count. A leased item whose delivery was lost comes back when the lease ends.
//
// While the connection is down, calls wait for it and send nothing. Once it is closed, they return
// nats.ErrConnectionClosed, together with ErrUnknownOutcome if the request may have been sent.
//
// When the context of a pop or lease ends, so does its wait. An item that comes later goes back to
// its place, and the delivery does not count. But an item that NATS has already sent cannot go
// back. So the call first asks NATS whether a reply is on its way, for at most half a second, and
// returns it. For this, each request under way has its own subscription, which later requests
// reuse. The error of a context that ended wraps both its error and its cause.
//
// # Permissions
//
// A call without a permission that it needs fails at once, with [ErrNotSent] and
// nats.ErrPermissionViolation. The text has the subject, and whether the NATS server refused to
// publish to it or to subscribe to it, which replies need. Nothing was carried out.
//
// A refusal names only the subject. If it may be of another request on that subject,
// [ErrUnknownOutcome] comes instead of ErrNotSent: while several are under way, and until the first
// refusal after the connection was lost or a wait was cut short. ErrUnknownOutcome also comes if
// the right to receive replies is lost while a request is under way. A refusal of what the program
// itself publishes to the subjects of requests, without this package, counts as one of a request.
//
// The NATS client tells only the error handler of the connection what the server refuses, so the
// first [New] for a connection puts itself in front of that handler, which still gets every error.
// A handler that is set later replaces both. Then, and while that handler takes long, a refused
// request waits until its context ends, and a change has an unknown outcome. Its error still names
// the permission if that was the last thing that the server refused.
//
// # Concurrency
//
// Everything here is safe for concurrent use. Requests that one goroutine makes one after another
// are carried out in that order.
package client
