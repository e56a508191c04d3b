package subjects

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/pqbridge/pqbridge/subjects/schedule"
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

// The verbs. PopMax, PeekMax and Move exist only for [Priority]. The one end of a [FIFO] queue has
// no name: Pop and Peek are spelled pop and peek there.
const (
	Push       Verb = iota // push: push an item, at a priority in the subject or a header
	PushBatch              // push.batch: push many items, all or none
	Pop                    // pop.min: take the item with the smallest priority, oldest of equals
	PopMax                 // pop.max: take the item with the largest priority, newest of equals
	Peek                   // peek.min: look at what pop.min would take
	PeekMax                // peek.max: look at what pop.max would take
	Len                    // len: count the ready items
	AckLease               // ack.<token>: end or extend the lease of an item
	Config                 // config: read or change the settings
	Info                   // info: count the items in each state, and more
	Get                    // get: return items by their ids
	Remove                 // remove: remove items by their ids
	Rank                   // rank: count the items that would be served before an item
	Move                   // move: move items to another priority
	Purge                  // purge: remove all items, or those in one state
	Redrive                // redrive: send dead letters back to the queues they came from
	List                   // list: list the queues and count their items
	Items                  // items: browse and search the items
	Release                // release: end the leases of items without their tokens
	Schedule               // schedule: set a schedule of pushes, or pause, resume or fire one
	Schedules              // schedules: list the schedules
	Unschedule             // unschedule: remove a schedule
	Result                 // result: say what became of a job, and return its result
)

// verbRow is a verb of one kind of queue.
type verbRow struct {
	kind      Kind
	verb      Verb
	name      string // the end of the subject
	noFIFO    bool   // FIFO queues lack the verb
	endpoint  string // in service discovery and metrics: letters and '-', unique
	priority  bool   // the subject may go on with a priority
	token     bool   // the subject goes on with the token of a lease
	queueless bool   // the subject names no queue
	reads     bool   // it changes nothing
	most      int    // bytes of the payload; 0 is none
}

// Bounds of payloads, in bytes. Each has room for the largest request that is documented, with each
// byte of a name or text written as six, such as \u003c, and with line breaks between members.
const (
	mostOptions  = 4 << 10
	mostIDs      = 96 << 10                           // MaxItems ids, or as many tokens
	mostItems    = 64 << 10                           // MaxMatchHeaders headers of MaxMatch bytes
	mostConfig   = 88 << 10                           // groups to pause, and queues
	mostSchedule = 6*schedule.MaxContent + (16 << 10) // beside what is in all schedules

	// The value of an item, or several, is only bounded by max_payload, and the reason in an
	// acknowledgement is cut: ParseAck bounds the rest.
	unbounded = math.MaxInt
)

// ackName is the name of AckLease.
const ackName = "ack"

// listName is the name of List. It stands in the place of a queue's name and nothing follows it, so
// a queue may have this name too.
const listName = "list"

// batchEnd ends the names of batches. It stands where a push may have a priority.
const batchEnd = ".batch"

// verbTable has a row for each kind of request, in the order in which they are listed.
var verbTable = withFIFO([]verbRow{
	{verb: Push, name: "push", priority: true, most: unbounded},
	{verb: PushBatch, name: "push" + batchEnd, most: unbounded},
	{verb: Pop, name: "pop.min", most: mostOptions},
	{verb: PopMax, name: "pop.max", noFIFO: true, most: mostOptions},
	{verb: Peek, name: "peek.min", reads: true, most: mostOptions},
	{verb: PeekMax, name: "peek.max", reads: true, noFIFO: true, most: mostOptions},
	{verb: Len, name: "len", reads: true},
	{verb: AckLease, name: ackName, token: true, most: unbounded},
	{verb: Config, name: "config", most: mostConfig},
	{verb: Info, name: "info", reads: true},
	{verb: Get, name: "get", reads: true, most: mostIDs},
	{verb: Result, name: "result", reads: true, most: mostOptions},
	{verb: Remove, name: "remove", most: mostIDs},
	{verb: Rank, name: "rank", reads: true, most: mostOptions},
	{verb: Move, name: "move", noFIFO: true, most: mostIDs},
	{verb: Items, name: "items", reads: true, most: mostItems},
	{verb: Release, name: "release", most: mostIDs},
	{verb: Schedule, name: "schedule", most: mostSchedule},
	{verb: Schedules, name: "schedules", reads: true, most: mostOptions},
	{verb: Unschedule, name: "unschedule", most: mostOptions},
	{verb: Purge, name: "purge", most: mostOptions},
	{verb: Redrive, name: "redrive", most: mostIDs},
	{verb: List, name: listName, reads: true, queueless: true, most: mostOptions},
})

// withFIFO names the endpoints of the rows, and appends the rows for FIFO queues, which do not name
// their only end: "pop", not "pop.min".
func withFIFO(rows []verbRow) []verbRow {
	for i := range rows {
		row := rows[i]
		rows[i].endpoint = strings.ReplaceAll(row.name, ".", "-")
		if !row.noFIFO {
			row.kind, row.name, row.priority = FIFO, strings.TrimSuffix(row.name, ".min"), false
			row.endpoint = "fifo-" + strings.ReplaceAll(row.name, ".", "-")
			rows = append(rows, row)
		}
	}
	return rows
}

// Name returns the end of the subject of a queue: "pop.min" or, if it is FIFO, "pop".
func (v Verb) Name(k Kind) string {
	if row := rowOf(k, v); row != nil {
		return row.name
	}
	return v.String()
}

// String returns the end of the subject of a priority queue, such as "pop.min".
func (v Verb) String() string {
	if row := rowOf(Priority, v); row != nil {
		return row.name
	}
	return fmt.Sprintf("Verb(%d)", uint8(v))
}

// MostPayload returns how many bytes the payload of a request may have. A longer one is refused
// before it is read.
func (v Verb) MostPayload() int {
	if row := rowOf(Priority, v); row != nil {
		return row.most
	}
	return 0
}

// CanChange reports whether a request can change a queue.
func (v Verb) CanChange() bool {
	row := rowOf(Priority, v)
	return row == nil || !row.reads
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
			return "", fmt.Errorf("%w: %s with a queue, priority or token: want none",
				ErrVerb, r.Verb)
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

	// Kind, Verb and HasPriority are what the requests have.
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

// How many bytes of client input an error repeats. Anybody who reads the token of a lease in a log
// could acknowledge the item, so errors show only the start of tokens, and of what may be one.
const (
	maxQuotedVerb  = 16
	maxQuotedToken = 4

	longestPriority = len("-9223372036854775808")
)

// quotePriority quotes a priority, but only the start of a text that may be a token because it is
// longer than any priority.
func quotePriority(text string) string {
	if len(text) > longestPriority {
		return strictjson.QuoteStart(text, maxQuotedToken)
	}
	return quote(text)
}

// quote makes client input safe to print: quoted, ASCII, and not long.
func quote(s string) string { return strictjson.Quote(s) }
