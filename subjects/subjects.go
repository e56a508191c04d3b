// Package subjects is the vocabulary of pqbridge's wire protocol: the subjects of requests, the
// headers of requests and replies, and the payloads of both. It does no I/O, so clients, bridges
// and tools share it.
//
// # Subjects
//
// A subject has a prefix, which says the kind of queue, the name of the queue, and a [Verb]. With
// the default prefixes, for a queue named jobs:
//
//	pq.jobs.push.<priority>  push, for clients that cannot set headers
//	pq.jobs.pop.min          take the item with the smallest priority, the oldest of equals
//	pq.jobs.ack.<token>      end or extend the lease of an item
//	pq.list                  list the queues and count their items
//	q.jobs.push              append to a first-in first-out queue
//	q.jobs.pop               take its oldest item
//
// A [Grammar] parses and builds subjects.
//
// # Payloads
//
// The payload of a push is the value of the item; acknowledgements have JetStream's payloads
// ([Ack]). Other requests have a JSON object, or nothing, and a type with a Parse function and an
// Encode method: [PopOptions], [ItemsOptions], [Change] and so on. Parsing is strict: a misspelled
// or repeated name is an error. Replies are lenient, so that a newer bridge may add members:
// [ParseReply] reads those without a function of their own. Encode checks nothing.
//
// # Errors
//
// Errors about a request name the fault and what would be right, in one line of printable ASCII
// whatever bytes the request has. A bridge sends them unchanged, as an [Error].
//
// All functions are safe for concurrent use.
package subjects

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/pqbridge/pqbridge/subjects/settings"
	"github.com/pqbridge/pqbridge/subjects/strictjson"
)

// Prefixes used unless configured otherwise.
const (
	DefaultPriorityPrefix = "pq"
	DefaultFIFOPrefix     = "q"
)

var (
	// ErrPrefix: a subject is under no prefix of the grammar, or a prefix cannot be used.
	ErrPrefix = errors.New("bad prefix")
	// ErrQueueName: a queue name is empty, too long, or has a character that is not allowed.
	ErrQueueName = errors.New("bad queue name")
	// ErrVerb: a subject ends before the verb, or the kind of queue has no such verb.
	ErrVerb = errors.New("unknown verb")
	// ErrToken: the last token of the subject cannot be the token of a lease.
	ErrToken = errors.New("bad lease token")
	// ErrPriority: a priority is not a decimal int64, or stands where none is allowed.
	ErrPriority = errors.New("bad priority")
)

// Grammar parses and builds the subjects under two prefixes. Make one with [New]; the zero value is
// not usable.
type Grammar struct {
	priority, fifo string // with the dot that ends them
}

// New returns the grammar with these prefixes. A prefix is one or more tokens separated by dots,
// each in the form of a queue name. It must not begin with '_', because NATS itself uses such
// subjects, above all _INBOX. Neither prefix may equal or begin the other. The error joins all
// problems, each wrapping [ErrPrefix].
func New(priorityPrefix, fifoPrefix string) (Grammar, error) {
	g := Grammar{priority: priorityPrefix + ".", fifo: fifoPrefix + "."}
	err := errors.Join(validatePrefix(priorityPrefix), validatePrefix(fifoPrefix))
	if strings.HasPrefix(g.priority, g.fifo) || strings.HasPrefix(g.fifo, g.priority) {
		overlap := fmt.Errorf("%w: %s and %s overlap: want two of which neither begins the other",
			ErrPrefix, quote(priorityPrefix), quote(fifoPrefix))
		err = errors.Join(err, overlap)
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
		const why = "begins with '_': such subjects belong to NATS itself"
		return fmt.Errorf("%w %s: %s", ErrPrefix, quote(prefix), why)
	}
	return nil
}

// Request is what a subject asks for.
type Request struct {
	Kind  Kind
	Verb  Verb
	Queue string // "" for List

	// Priority is the priority in the subject of a push if HasPriority is set, else 0.
	Priority    int64
	HasPriority bool

	// Token is the token of the lease for AckLease, else "". It is one token of a subject.
	Token string
}

// Parse returns what subject asks for. Queue and Token share the memory of subject; Parse allocates
// only if it fails.
//
// Errors wrap [ErrPrefix], [ErrQueueName], [ErrVerb], [ErrToken] or [ErrPriority].
func (g Grammar) Parse(subject string) (Request, error) {
	kind := Priority
	rest, found := strings.CutPrefix(subject, g.priority)
	if !found {
		kind = FIFO
		rest, found = strings.CutPrefix(subject, g.fifo)
	}
	if !found {
		return Request{}, fmt.Errorf("%w: subject %s begins neither with %q nor with %q",
			ErrPrefix, quote(subject), g.priority, g.fifo)
	}

	// A single token after the prefix can only be the list of queues.
	queue, tail, found := strings.Cut(rest, ".")
	if !found && queue == listName {
		return Request{Kind: kind, Verb: List}, nil
	}
	if !found {
		return Request{}, fmt.Errorf("%w: subject %s is too short: "+
			"want %[3]s<queue>.<verb>, the verb one of %[4]s; or %[3]s%[5]s",
			ErrVerb, quote(subject), g.prefix(kind), verbList(kind), listName)
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

// parseVerb returns the row of the verb that follows a queue name, and the priority or token after
// it, if there is one.
func parseVerb(k Kind, text string) (row *verbRow, tail string, hasTail bool, err error) {
	for i := range verbTable {
		row := &verbTable[i]
		if row.kind != k || row.queueless {
			continue
		}

		rest, found := strings.CutPrefix(text, row.name)
		if found && rest == "" && !row.token {
			return row, "", false, nil
		}

		// push.batch is a verb of its own, not a push with the priority "batch".
		mayHaveTail := row.token || row.priority && rest != batchEnd
		if found && rest != "" && rest[0] == '.' && mayHaveTail {
			return row, rest[1:], true, nil
		}
	}
	return nil, "", false, fmt.Errorf("%w %s: want one of %s",
		ErrVerb, strictjson.QuoteStart(text, maxQuotedVerb), verbList(k))
}

func validateToken(token string) error {
	if problem := tokenProblem(token); problem != "" {
		return fmt.Errorf("%w %s: it %s", ErrToken,
			strictjson.QuoteStart(token, maxQuotedToken), problem)
	}
	return nil
}

// Ack returns the subject that acknowledges a lease. Unlike [Grammar.Build] it checks nothing: a
// bridge knows that queue and token are valid.
func (g Grammar) Ack(kind Kind, queue, token string) string {
	return g.prefix(kind) + queue + "." + ackName + "." + token
}

// inText finds tokens of leases in text, by the subjects that acknowledge them: from Ack, from
// JetStream, and the ones by which a server replaces them for other accounts.
var inText = regexp.MustCompile(`(\.ack\.|\$JS\.ACK\.\S*\.|_R_\.)([\w-]{4})[\w.-]{8,}`)

// HideTokens returns text for logs and errors, in which only the first letters of tokens of leases
// are left. With a whole token, anybody could acknowledge the item.
func HideTokens(text string) string { return inText.ReplaceAllString(text, "$1$2...") }

// Prefix returns the first tokens of the subjects of a kind.
func (g Grammar) Prefix(k Kind) string { return strings.TrimSuffix(g.prefix(k), ".") }

func (g Grammar) prefix(k Kind) string {
	if k == FIFO {
		return g.fifo
	}
	return g.priority
}

// ValidateQueueName returns an error wrapping [ErrQueueName] unless name is 1 to 128 ASCII letters,
// digits, '-' and '_'.
func ValidateQueueName(name string) error {
	if problem := tokenProblem(name); problem != "" {
		return fmt.Errorf("%w %s: it %s", ErrQueueName, quote(name), problem)
	}
	return nil
}

// tokenProblem says why a token is invalid, as the end of a sentence, or returns "".
func tokenProblem(token string) string {
	const want = "want 1 to 128 letters, digits, '-' and '_'"
	if token == "" {
		return "is empty: " + want
	}
	if len(token) > settings.MaxQueueName {
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

// maxDigits leaves room for zeros before the digits of a priority.
const maxDigits = 64

// ParsePriority parses a decimal int64. It may begin with '-' or zeros, but not with '+' or a
// space. Errors wrap [ErrPriority].
func ParsePriority(text string) (int64, error) {
	digits := strings.TrimPrefix(text, "-")
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, fmt.Errorf("%w %s: want a decimal integer, such as 5 or -5",
			ErrPriority, quotePriority(text))
	}

	priority, err := int64(0), strconv.ErrRange
	if len(digits) <= maxDigits {
		priority, err = strconv.ParseInt(text, 10, 64)
	}
	if err != nil {
		return 0, fmt.Errorf("%w %s: want %d to %d",
			ErrPriority, quotePriority(text), math.MinInt64, math.MaxInt64)
	}
	return priority, nil
}
