package subjects

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/pqbridge/pqbridge/subjects/strictjson"
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
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Short returns "pq" or "q", as paths, statistics and the tool pq call the kinds, whatever the
// prefixes of subjects are.
func (k Kind) Short() string {
	if k == FIFO {
		return "q"
	}
	return "pq"
}

// ParseShort returns the kind whose Short is short. known is false if there is none.
func ParseShort(short string) (k Kind, known bool) {
	for _, k := range []Kind{Priority, FIFO} {
		if k.Short() == short {
			return k, true
		}
	}
	return 0, false
}

// Verb is what a request does with a queue.
type Verb uint8

// The verbs. The package comment says what each does. Enqueue, EnqueueBatch, Dequeue and Peek exist
// only for [FIFO]; the other pushes, pops and peeks, and Move, only for [Priority]; the rest for
// both.
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

// verbRow is a verb of one kind of queue.
type verbRow struct {
	kind      Kind
	verb      Verb
	name      string // the end of the subject
	endpoint  string // in service discovery and metrics: letters and '-', unique
	priority  bool   // the subject may go on with a priority
	token     bool   // the subject goes on with the token of a lease
	queueless bool   // the subject names no queue
	both      bool   // the other kind of queue has the verb too
}

// ackName is the name of AckLease.
const ackName = "ack"

// listName is the name of List. It stands in the place of a queue's name and nothing follows it, so
// a queue may have this name too.
const listName = "list"

// batchEnd ends the names of batches. It stands where a push may have a priority.
const batchEnd = ".batch"

// verbTable has a row for each kind of request, in the order in which they are listed.
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

// withBoth names the endpoints of the rows, and appends a row for FIFO queues to each verb of both.
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

// rowOf returns the row of a verb, or nil if the kind of queue lacks the verb.
func rowOf(k Kind, v Verb) *verbRow {
	for i := range verbTable {
		if row := &verbTable[i]; row.kind == k && row.verb == v {
			return row
		}
	}
	return nil
}

// verbList lists what can follow a queue name, for error texts.
func verbList(k Kind) string {
	var names []string
	for i := range verbTable {
		row := &verbTable[i]
		if row.kind != k || row.queueless {
			continue
		}

		switch {
		case row.token:
			names = append(names, row.name+".<token>")
		case row.priority:
			names = append(names, row.name, row.name+".<priority>")
		default:
			names = append(names, row.name)
		}
	}
	return strings.Join(names, ", ")
}

// Build returns the subject that Parse turns into r.
//
// Errors wrap [ErrQueueName], [ErrVerb] if the kind of queue has no such verb, [ErrToken], or
// [ErrPriority] if there is a priority without HasPriority or with another verb than push.
func (g Grammar) Build(r Request) (string, error) {
	row := rowOf(r.Kind, r.Verb)
	if row != nil && row.queueless {
		if r != (Request{Kind: r.Kind, Verb: r.Verb}) {
			const problem = "with a queue, priority or token: want none"
			return "", fmt.Errorf("%w: %s %s", ErrVerb, r.Verb, problem)
		}
		return g.prefix(r.Kind) + row.name, nil
	}

	if err := ValidateQueueName(r.Queue); err != nil {
		return "", err
	}
	if row == nil {
		return "", fmt.Errorf("%w %s for a queue of kind %s: want one of %s",
			ErrVerb, r.Verb, r.Kind, verbList(r.Kind))
	}

	subject := g.prefix(r.Kind) + r.Queue + "." + row.name
	switch {
	case row.token:
		if err := validateToken(r.Token); err != nil {
			return "", err
		}
		return subject + "." + r.Token, nil
	case r.HasPriority && row.priority:
		return subject + "." + strconv.FormatInt(r.Priority, 10), nil
	case r.HasPriority:
		return "", fmt.Errorf("%w: the verb %s takes none", ErrPriority, r.Verb)
	case r.Priority != 0:
		return "", fmt.Errorf("%w: %d without HasPriority", ErrPriority, r.Priority)
	}
	return subject, nil
}

// Owns reports whether a message published to subject would come back as a request. A reply subject
// must not.
func (g Grammar) Owns(subject string) bool {
	return strings.HasPrefix(subject, g.priority) || strings.HasPrefix(subject, g.fifo)
}

// Wildcards returns the subjects to subscribe to: together they match every subject that Owns
// accepts.
func (g Grammar) Wildcards() []string {
	return []string{g.priority + ">", g.fifo + ">"}
}

// Endpoint is one form of request, as service discovery lists it.
type Endpoint struct {
	// Name is unique among the endpoints and made of letters and '-', as the NATS service protocol
	// wants it: "pop-min", "fifo-len".
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

		// A push with its priority in the subject is a form of its own.
		if row.priority {
			e.Name += "-priority"
			e.Subject += ".*"
			e.HasPriority = true
			endpoints = append(endpoints, e)
		}
	}
	return endpoints
}

// checkToken returns an error that says what is wrong with a token, if anything is.
func checkToken(token string) error {
	if problem := tokenProblem(token); problem != "" {
		return errors.New(quote(token) + " " + problem)
	}
	return nil
}

// How many bytes of client input an error repeats. Anybody who reads the token of a lease in a log
// could acknowledge the item, so errors show only the start of tokens, and of what may be one.
const (
	maxQuotedVerb  = 16
	maxQuotedToken = 4

	longestPriority = len("-9223372036854775808")
)

// quotePriority quotes a priority. What is longer than any priority may be a token.
func quotePriority(text string) string {
	if len(text) > longestPriority {
		return strictjson.QuoteStart(text, maxQuotedToken)
	}
	return quote(text)
}

// quote makes client input safe to print: quoted, ASCII, and not long.
func quote(s string) string { return strictjson.Quote(s) }
