// Package clients defines the lines that a driver speaks, and has the table of behaviour that
// clients in all languages share. Its tests run each scenario of the table with a driver in Go;
// make test-clients runs them with drivers in JavaScript, Python and Java too. Answers, events, and
// the queue afterwards must be the same in each language.
//
// A driver is a thin program over one client. It knows no scenario: commands say what to do, and
// the value of a job says what its handler does. It connects to NATS_URL as the page of its
// language tells, with no loop or option that the page does not have. Only its pause between
// attempts to connect again may be shorter. If that fails, it ends with another status than 0.
// Otherwise it prints {"event":"ready"}, and then obeys the commands on its standard input until
// that ends. Logs go to standard error. SIGTERM stops all workers with the default timeout and ends
// the driver with status 0.
//
// These variables configure the client, if they are set: PQ_PREFIX and PQ_FIFO_PREFIX (subjects),
// PQ_INBOX_PREFIX (inboxes), PQ_TIMEOUT (a duration, for each reply), NATS_USER and NATS_PASSWORD.
//
// # Lines
//
// Commands, answers and events are JSON objects, one a line. Integers are decimal text, since
// JavaScript would round them, durations are text as in the protocol, bytes are base64, and headers
// are a list of pairs of name and value. A value of a header that is not UTF-8 is {"base64":"..."}.
// A member that is absent has the default.
//
// Each command has a number n, an op and, if it is about a queue, its name, with "fifo":true for a
// FIFO queue. Answers have the number of their command and come in any order:
//
//	{"n":1,"op":"push","queue":"jobs","priority":"5","value":"aGk="}
//	{"n":1,"value":{"id":"FQEU...","priority":"5","duplicate":false}}
//	{"n":2,"op":"settle","lease":"1","how":"ack"}
//	{"n":2,"error":{"class":"LeaseLost","code":"409","reason":"lost","text":"","unknown":false}}
//
// The class of an error has the name of the error in Go, without Err. BadArgument is a request that
// the client refuses to send, JobFailed a call whose job has died. NotDone is a call whose job goes
// on, and has the id of the job as "job". Unsupported answers an operation or member that the
// driver does not know, and fails the test.
//
// # Operations
//
// What they answer is behind the arrow; null is an empty queue, or nothing to say.
//
//	push      value, priority, msgId, unique, delay, at, ttl, group, weight, keep, headers, type,
//	          join; joiner, the id of one in the queue -> {"id","priority","duplicate"}
//	pushMany  items, with the members of push -> [{"id","duplicate"} or {"error"}, ...]
//	all       items: a joiner and its members -> [{"id","duplicate"}, ...]
//	open      the members of push, open: a joiner -> {"id"}
//	close     id of such a joiner -> null
//	pop       max, expires, count, peek -> an item, or null; with count a list of items
//	lease     ackWait, expires, holder, max, count -> an item with "lease" and "deliveries", or
//	          null; with count a list of them
//	settle    lease; how: ack, nak, snooze, term or extend; result, delay, retryDelay, reason,
//	          progress, next: [{"queue","value","priority"}, ...] -> null
//	ackAll    leases -> [null or {"error"}, ...]
//	result    id or msgId, wait, follow -> {"state","value","error","reason","progress"}; error
//	          and reason are of a dead letter, value and progress null without any
//	call      the members of push, wait -> the result
//	work      worker, queue or queues, concurrency, ackWait, holder, jobTimeout, retryDelay, max,
//	          types -> null once it runs
//	stop      worker, timeout -> null once it has stopped
//	exit      -> null; the driver ends with status 0
//
// Look has a member what:
//
//	len       -> the number of ready items
//	info      -> the body of the reply
//	items     state, match -> what the replies have of all items
//	get       id -> an item with "state" and, if it has any, "parent" {"queue","id"}, "attempts"
//	          as in the protocol, "successors" [{"queue","id"}, ...]
//	rank      id, max -> {"rank","atLeast"}
//	queues    -> the names of all queues
//	schedules -> the records of all schedules
//
// And so has manage:
//
//	move, remove         id or place, priority -> {"place"}; id -> null
//	release              id -> null
//	redrive              max -> {"redriven"}; id -> {"home"}
//	                     all four also take ids, move and redrive places
//	                     -> [{"place"}, {}, {"home"} or {"error"}, ...]
//	purge                state -> {"purged"}
//	configure            settings -> all settings
//	pause, resume        group, or else the queue -> null
//	schedule             name, schedule -> its record
//	unschedule           name -> null
//
// An item has "id", "priority", "value", "headers" and "group". The settings and the schedule of
// manage are as the protocol has them, with real numbers; in answers, numbers are text.
//
// # Jobs
//
// A worker calls one handler for all jobs or, with types, one for each of these types and, under
// "*", for all others. The value of a job is its script, {"do":[["wait","1s"],["fail","why"]]}. A
// value that is no script is done with no result. The steps:
//
//	["wait", d]            pause; ends early with the job's signal
//	["block", d]           pause, deaf to the signal, and stop everything that handlers can stop:
//	                       in JavaScript the event loop, in Python and Java the thread
//	["thread"]             as the first step: run the handler in a thread, where there is a choice
//	["progress", text]     say how far the job is
//	["next", queue, bytes] push to that queue with the acknowledgement
//	["all", queue, bytes, ...]
//	                       the same for a joiner and its members
//	["member", queue, bytes]
//	                       the same for another member of this job's own joiner
//	["fail", text]         fail with this reason
//	["fail", text, cause]  fail with an error that another one, with the text cause, has caused
//	["retry", d, text]     fail, and be tried again after that time
//	["snooze", d]          come back after that time, uncounted
//	["drop", text]         be a dead letter with this reason
//	["return", bytes]      be done with this result
//	["return"]             be done
//
// # Events
//
// A handler that begins and one that ends say so, with the time in milliseconds since 1970 (at):
//
//	{"event":"start","worker":"w","job":"FQEU...","deliveries":"1","type":"","at":"1795..."}
//	{"event":"end","worker":"w","job":"FQEU...","how":"done","at":"1795..."}
//	{"event":"error","worker":"w","class":"NotSent"}
//
// With types, start has the key of the handler too, such as "handler":"*", and that of a joiner has
// what became of its members, such as "joined":"done=2 dead=1 gone=0 open=0". That of a job with a
// parent has the id of that, such as "parent":"FQEU...". A job has ended as
// done if its script came to its end; failed if it failed, was dropped, or comes back on its own
// wish; or lost, stopped or timeout if the signal of the job cut a wait short, because of its
// lease, of the timeout of stop, or of jobTimeout. The line is printed before the job is
// acknowledged. An error is what ended the worker; drivers may print others, which the table
// ignores.
package clients
