// Package subjects is the vocabulary of the wire protocol: the grammar of the subjects
// that requests arrive on, the headers of requests and replies, and the payloads of
// replies. It does no I/O.
//
// With the default prefixes, for a queue named jobs:
//
//	pq.jobs.push             push at the priority of the Pq-Priority header, 0 without it
//	pq.jobs.push.<priority>  push, for clients that cannot set headers
//	pq.jobs.push.batch       push many items, all or none
//	pq.jobs.pop.min          take the item with the smallest priority, the oldest of equals
//	pq.jobs.pop.max          take the item with the largest priority, the newest of equals
//	pq.jobs.peek.min         look at what pop.min would take
//	pq.jobs.peek.max         look at what pop.max would take
//	pq.jobs.len              count the items that are ready
//	pq.jobs.ack.<token>      end or extend the lease of an item that was popped with one
//	pq.jobs.config           read or change the settings
//	pq.jobs.info             how many items there are in each state, and more
//	pq.jobs.get              return an item by its id
//	pq.jobs.remove           remove an item by its id
//	pq.jobs.rank             how many items would be served before an item
//	pq.jobs.move             move an item to another priority
//	pq.jobs.purge            remove all items, or those in one state
//	pq.jobs.redrive          send dead letters home
//	pq.list                  the queues, and how many items they have
//	q.jobs.enqueue           append to a first-in first-out queue
//	q.jobs.enqueue.batch     append many items, all or none
//	q.jobs.dequeue           take its oldest item
//	q.jobs.peek              look at what dequeue would take
//
// All others exist for first-in first-out queues too, as q.jobs.len, except move.
//
// Errors about a request say what was wrong and what would be right, in one line of
// printable ASCII whatever bytes the request held, so that they can be sent unchanged.
//
// Everything here is safe for concurrent use.
package subjects

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Prefixes used unless configured otherwise.
const (
	DefaultPriorityPrefix = "pq"
	DefaultFIFOPrefix     = "q"
)

// MaxQueueName is the length of the longest queue name, in bytes.
const MaxQueueName = 128

var (
	// ErrPrefix: a subject is not under a prefix of the grammar, or a prefix cannot be used.
	ErrPrefix = errors.New("bad prefix")
	// ErrQueueName: a queue name is empty, too long, or contains a character that is not allowed.
	ErrQueueName = errors.New("bad queue name")
	// ErrVerb: a subject ends before the verb, or the kind of queue has no such verb.
	ErrVerb = errors.New("unknown verb")
	// ErrToken: what should be the token of a lease cannot be one.
	ErrToken = errors.New("bad lease token")
	// ErrPriority: a priority is not a decimal int64, or is given where none is allowed.
	ErrPriority = errors.New("bad priority")
)

// Grammar parses and builds the subjects under two prefixes. Make one with [New]; the
// zero value is not usable.
type Grammar struct {
	priority, fifo string // with the dot that ends them
}

// New returns the grammar with these prefixes. A prefix is one or more tokens separated by dots,
// each in the form of a queue name. It must not begin with '_', because such subjects, _INBOX above
// all, belong to NATS itself. Neither prefix may equal or begin the other. The error joins all
// problems, each wrapping [ErrPrefix].
func New(priorityPrefix, fifoPrefix string) (Grammar, error) {
	g := Grammar{priority: priorityPrefix + ".", fifo: fifoPrefix + "."}
	err := errors.Join(validatePrefix(priorityPrefix), validatePrefix(fifoPrefix))
	if strings.HasPrefix(g.priority, g.fifo) || strings.HasPrefix(g.fifo, g.priority) {
		err = errors.Join(err, fmt.Errorf("%w: %s and %s overlap: want two of which neither begins the other",
			ErrPrefix, quote(priorityPrefix), quote(fifoPrefix)))
	}
	if err != nil {
		return Grammar{}, err
	}
	return g, nil
}

func validatePrefix(prefix string) error {
	for token := range strings.SplitSeq(prefix, ".") {
		if problem := tokenProblem(token); problem != "" {
			return fmt.Errorf("%w %s: a token %s", ErrPrefix, quote(prefix), problem)
		}
	}
	if prefix[0] == '_' {
		return fmt.Errorf("%w %s: begins with '_': such subjects belong to NATS itself", ErrPrefix, quote(prefix))
	}
	return nil
}

// Request is what a subject asks for.
type Request struct {
	Kind  Kind
	Verb  Verb
	Queue string // "" for List

	// Priority is the priority in the subject if HasPriority is set, else 0. Only a
	// push can have one.
	Priority    int64
	HasPriority bool

	// Token is that of AckLease: one token of a subject.
	Token string
}

// Parse returns what subject asks for. The queue name shares the subject's memory;
// nothing is allocated unless there is an error.
//
// Errors: [ErrPrefix], [ErrQueueName], [ErrVerb], [ErrPriority].
func (g Grammar) Parse(subject string) (Request, error) {
	kind, rest, err := g.cutPrefix(subject)
	if err != nil {
		return Request{}, err
	}
	queue, tail, found := strings.Cut(rest, ".")
	if !found && queue == listName {
		return Request{Kind: kind, Verb: List}, nil
	}
	if !found {
		return Request{}, fmt.Errorf("%w: subject %s is too short: want %s<queue>.<verb>, the verb one of %s; or %s%s",
			ErrVerb, quote(subject), g.prefix(kind), verbList(kind), g.prefix(kind), listName)
	}
	if err := ValidateQueueName(queue); err != nil {
		return Request{}, err
	}
	row, tail, hasTail, err := parseVerb(kind, tail)
	if err != nil {
		return Request{}, err
	}
	r := Request{Kind: kind, Verb: row.verb, Queue: queue}
	switch {
	case !hasTail:
	case row.token:
		r.Token, err = tail, validateToken(tail)
	default:
		r.HasPriority = true
		r.Priority, err = ParsePriority(tail)
	}
	if err != nil {
		return Request{}, err
	}
	return r, nil
}

func (g Grammar) cutPrefix(subject string) (Kind, string, error) {
	if rest, found := strings.CutPrefix(subject, g.priority); found {
		return Priority, rest, nil
	}
	if rest, found := strings.CutPrefix(subject, g.fifo); found {
		return FIFO, rest, nil
	}
	return 0, "", fmt.Errorf("%w: subject %s begins neither with %q nor with %q",
		ErrPrefix, quote(subject), g.priority, g.fifo)
}

// Build returns the subject that Parse turns into r.
//
// Errors: [ErrQueueName]; [ErrVerb] if the kind of queue has no such verb; [ErrToken];
// [ErrPriority] if there is a priority without HasPriority, or with another verb than push.
func (g Grammar) Build(r Request) (string, error) {
	row := rowOf(r.Kind, r.Verb)
	if row != nil && row.queueless {
		if r != (Request{Kind: r.Kind, Verb: r.Verb}) {
			return "", fmt.Errorf("%w: %s with a queue, priority or token: want none", ErrVerb, r.Verb)
		}
		return g.prefix(r.Kind) + row.name, nil
	}
	if err := ValidateQueueName(r.Queue); err != nil {
		return "", err
	}
	if row == nil {
		return "", fmt.Errorf("%w %s for a queue of kind %s: want one of %s", ErrVerb, r.Verb, r.Kind, verbList(r.Kind))
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

func validateToken(token string) error {
	if problem := tokenProblem(token); problem != "" {
		return fmt.Errorf("%w %s: it %s", ErrToken, quoteStart(token, maxQuotedToken), problem)
	}
	return nil
}

// Ack returns the subject of acknowledgements of a lease, whose token must be one that Build
// takes. It is Build for bridges, which have checked all that.
func (g Grammar) Ack(kind Kind, queue, token string) string {
	return g.prefix(kind) + queue + "." + ackName + "." + token
}

// Owns reports whether a message published to subject would come back as a
// request. A reply subject must not.
func (g Grammar) Owns(subject string) bool {
	return strings.HasPrefix(subject, g.priority) || strings.HasPrefix(subject, g.fifo)
}

// Wildcards returns the subjects to subscribe to: together they match every
// subject that Owns accepts.
func (g Grammar) Wildcards() []string {
	return []string{g.priority + ">", g.fifo + ">"}
}

// Prefix returns the first tokens of the subjects of a kind.
func (g Grammar) Prefix(k Kind) string { return strings.TrimSuffix(g.prefix(k), ".") }

func (g Grammar) prefix(k Kind) string {
	if k == FIFO {
		return g.fifo
	}
	return g.priority
}

// ValidateQueueName returns an [ErrQueueName] unless name is 1 to 128 ASCII
// letters, digits, '-' and '_'.
func ValidateQueueName(name string) error {
	if problem := tokenProblem(name); problem != "" {
		return fmt.Errorf("%w %s: it %s", ErrQueueName, quote(name), problem)
	}
	return nil
}

// tokenProblem says what is wrong with a token, as the end of a sentence, or returns "".
func tokenProblem(token string) string {
	const want = "want 1 to 128 letters, digits, '-' and '_'"
	if token == "" {
		return "is empty: " + want
	}
	if len(token) > MaxQueueName {
		return fmt.Sprintf("is %d bytes long: %s", len(token), want)
	}
	if i := strings.IndexFunc(token, notInToken); i >= 0 {
		return fmt.Sprintf("holds %+q: %s", token[i:i+1], want)
	}
	return ""
}

func notInToken(c rune) bool {
	letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
	return !letter && (c < '0' || c > '9') && c != '-' && c != '_'
}

// checkToken returns an error that quotes the token and says what is wrong with it, if anything is.
func checkToken(token string) error {
	if problem := tokenProblem(token); problem != "" {
		return errors.New(quote(token) + " " + problem)
	}
	return nil
}

// ParsePriority parses a decimal int64, with a leading '-' if it is negative and
// nothing else around it. Leading zeros are allowed. Errors wrap [ErrPriority].
func ParsePriority(text string) (int64, error) {
	digits := strings.TrimPrefix(text, "-")
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, fmt.Errorf("%w %s: want a decimal integer, such as 5 or -5", ErrPriority, quotePriority(text))
	}
	priority, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w %s: want %d to %d", ErrPriority, quotePriority(text), math.MinInt64, math.MaxInt64)
	}
	return priority, nil
}

// How many bytes of client input an error repeats. Whoever reads the token of a lease in a log
// could acknowledge the item, so of tokens, and of what may end with one, it is less.
const (
	maxQuoted      = 64
	maxQuotedVerb  = 16
	maxQuotedToken = 4

	longestPriority = len("-9223372036854775808")
)

// quotePriority quotes what may be a token in place of a priority, if it is longer than any
// priority.
func quotePriority(text string) string {
	if len(text) > longestPriority {
		return quoteStart(text, maxQuotedToken)
	}
	return quote(text)
}

// quote makes client input safe to print: quoted, ASCII, and not long.
func quote(s string) string { return quoteStart(s, maxQuoted) }

// quoteStart is quote with another limit.
func quoteStart(s string, most int) string {
	if len(s) > most {
		return fmt.Sprintf("%+q... (%d bytes)", s[:most], len(s))
	}
	return fmt.Sprintf("%+q", s)
}
