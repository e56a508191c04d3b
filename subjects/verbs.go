package subjects

import (
	"fmt"
	"strings"
)

// Kind is a kind of queue.
type Kind uint8

// The kinds of queues.
const (
	Priority Kind = iota // ordered by priority, then by arrival
	FIFO                 // ordered by arrival
)

// String returns "priority" or "fifo".
func (k Kind) String() string {
	switch k {
	case Priority:
		return "priority"
	case FIFO:
		return "fifo"
	default:
		return fmt.Sprintf("Kind(%d)", uint8(k))
	}
}

// Short returns "pq" or "q", as kinds are called in paths, in statistics and by the tool pq, whatever
// the prefixes of subjects are.
func (k Kind) Short() string {
	if k == FIFO {
		return "q"
	}
	return "pq"
}

// ParseShort returns the kind with that Short, and whether there is one.
func ParseShort(short string) (k Kind, known bool) {
	for _, k := range []Kind{Priority, FIFO} {
		if k.Short() == short {
			return k, true
		}
	}
	return 0, false
}

// Verb is what to do with a queue.
type Verb uint8

// The verbs. Enqueue, EnqueueBatch, Dequeue and Peek exist for [FIFO], the pushes, the other
// pops and peeks, and Move for [Priority], and the others for both kinds of queues.
const (
	Push Verb = iota
	PopMin
	PopMax
	PeekMin
	PeekMax
	Len
	Enqueue
	Dequeue
	Peek
	AckLease
	PushBatch
	EnqueueBatch
	Config
	Info
	Get
	Remove
	Rank
	Move
	Purge
	Redrive
	List
	Items
	Release
	Schedule
	Schedules
	Unschedule
)

// verbRow is a verb as one kind of queue has it.
type verbRow struct {
	kind Kind
	verb Verb
	name string // the end of the subject
	// endpoint is the name in service discovery and in metrics: letters and '-', unique.
	endpoint string
	// priority says that the subject may go on with a priority, token that it goes on with
	// the token of a lease.
	priority, token bool
	// queueless says that the subject names no queue.
	queueless bool
	// both says that the other kind of queues has the verb, too.
	both bool
}

// ackName is the name of AckLease, which Grammar.Ack builds subjects with as well.
const ackName = "ack"

// listName is the name of List. It stands where a queue's name would, and nothing follows it, so a
// queue may have it too.
const listName = "list"

// batchEnd ends the names of batches. It is where a push may have a priority.
const batchEnd = ".batch"

// verbTable is every request there is, in the order in which they are listed.
var verbTable = withBoth([]verbRow{
	{verb: Push, name: "push", priority: true},
	{verb: PushBatch, name: "push" + batchEnd},
	{verb: PopMin, name: "pop.min"},
	{verb: PopMax, name: "pop.max"},
	{verb: PeekMin, name: "peek.min"},
	{verb: PeekMax, name: "peek.max"},
	{verb: Len, name: "len", both: true},
	{verb: AckLease, name: ackName, token: true, both: true},
	{verb: Config, name: "config", both: true},
	{verb: Info, name: "info", both: true},
	{verb: Get, name: "get", both: true},
	{verb: Remove, name: "remove", both: true},
	{verb: Rank, name: "rank", both: true},
	{verb: Move, name: "move"},
	{verb: Items, name: "items", both: true},
	{verb: Release, name: "release", both: true},
	{verb: Schedule, name: "schedule", both: true},
	{verb: Schedules, name: "schedules", both: true},
	{verb: Unschedule, name: "unschedule", both: true},
	{verb: Purge, name: "purge", both: true},
	{verb: Redrive, name: "redrive", both: true},
	{verb: List, name: listName, queueless: true, both: true},
	{kind: FIFO, verb: Enqueue, name: "enqueue"},
	{kind: FIFO, verb: EnqueueBatch, name: "enqueue" + batchEnd},
	{kind: FIFO, verb: Dequeue, name: "dequeue"},
	{kind: FIFO, verb: Peek, name: "peek"},
})

// withBoth names the endpoints of rows, and appends the rows that FIFO queues have as well.
func withBoth(rows []verbRow) []verbRow {
	for i := range rows {
		rows[i].endpoint = strings.ReplaceAll(rows[i].name, ".", "-")
		if row := rows[i]; row.both {
			row.kind, row.endpoint = FIFO, "fifo-"+row.endpoint
			rows = append(rows, row)
		}
	}
	return rows
}

// String returns the end of the subject, such as "pop.min".
func (v Verb) String() string {
	for i := range verbTable {
		if verbTable[i].verb == v {
			return verbTable[i].name
		}
	}
	return fmt.Sprintf("Verb(%d)", uint8(v))
}

// rowOf returns the row of a verb, nil if the kind of queue does not have it.
func rowOf(k Kind, v Verb) *verbRow {
	for i := range verbTable {
		if row := &verbTable[i]; row.kind == k && row.verb == v {
			return row
		}
	}
	return nil
}

// parseVerb returns the row of the verb that follows a queue name, and the priority or token
// after it if there is one.
func parseVerb(k Kind, text string) (row *verbRow, tail string, hasTail bool, err error) {
	for i := range verbTable {
		row := &verbTable[i]
		if row.kind != k || row.queueless {
			continue
		}
		rest, found := strings.CutPrefix(text, row.name)
		switch {
		case found && rest == "" && !row.token:
			return row, "", false, nil
		case found && rest != "" && (row.priority && rest != batchEnd || row.token) && rest[0] == '.':
			return row, rest[1:], true, nil
		}
	}
	return nil, "", false, fmt.Errorf("%w %s: want one of %s", ErrVerb, quoteStart(text, maxQuotedVerb), verbList(k))
}

// verbList lists what can follow a queue name, for error texts.
func verbList(k Kind) string {
	var names []string
	for i := range verbTable {
		row := &verbTable[i]
		if row.kind != k || row.queueless {
			continue
		}
		if row.token {
			names = append(names, row.name+".<token>")
			continue
		}
		names = append(names, row.name)
		if row.priority {
			names = append(names, row.name+".<priority>")
		}
	}
	return strings.Join(names, ", ")
}

// Endpoint is one form of request, as service discovery lists it.
type Endpoint struct {
	// Name is unique among the endpoints and made of letters and '-', as the
	// NATS service protocol wants it: "pop-min", "fifo-len".
	Name string
	// Subject matches the subjects of these requests: "pq.*.pop.min".
	Subject string

	// Kind, Verb and HasPriority are those of the requests.
	Kind        Kind
	Verb        Verb
	HasPriority bool
}

// Endpoints returns one Endpoint for every form of request that Parse accepts.
func (g Grammar) Endpoints() []Endpoint {
	var endpoints []Endpoint
	for i := range verbTable {
		row := &verbTable[i]
		e := Endpoint{
			Name:    row.endpoint,
			Subject: g.prefix(row.kind) + "*." + row.name,
			Kind:    row.kind,
			Verb:    row.verb,
		}
		switch {
		case row.queueless:
			e.Subject = g.prefix(row.kind) + row.name
		case row.token:
			e.Subject += ".*"
		}
		endpoints = append(endpoints, e)
		if row.priority {
			e.Name += "-priority"
			e.Subject += ".*"
			e.HasPriority = true
			endpoints = append(endpoints, e)
		}
	}
	return endpoints
}
