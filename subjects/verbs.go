package subjects

import (
	"fmt"
	"slices"
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

// Verb is what to do with a queue.
type Verb uint8

// The verbs. Len exists for both kinds of queues, Enqueue, Dequeue and Peek
// for [FIFO], the others for [Priority].
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
)

var verbNames = [...]string{
	Push:    "push",
	PopMin:  "pop.min",
	PopMax:  "pop.max",
	PeekMin: "peek.min",
	PeekMax: "peek.max",
	Len:     "len",
	Enqueue: "enqueue",
	Dequeue: "dequeue",
	Peek:    "peek",
}

// String returns the end of the subject, such as "pop.min".
func (v Verb) String() string {
	if int(v) < len(verbNames) {
		return verbNames[v]
	}
	return fmt.Sprintf("Verb(%d)", uint8(v))
}

var (
	priorityVerbs = []Verb{Push, PopMin, PopMax, PeekMin, PeekMax, Len}
	fifoVerbs     = []Verb{Enqueue, Dequeue, Peek, Len}
)

// Verbs returns the verbs of a kind of queue. The slice belongs to the caller.
func Verbs(k Kind) []Verb { return slices.Clone(verbsOf(k)) }

func verbsOf(k Kind) []Verb {
	switch k {
	case Priority:
		return priorityVerbs
	case FIFO:
		return fifoVerbs
	default:
		return nil
	}
}

func has(k Kind, v Verb) bool { return slices.Contains(verbsOf(k), v) }

func parseVerb(k Kind, text string) (Verb, error) {
	for _, v := range verbsOf(k) {
		if verbNames[v] == text {
			return v, nil
		}
	}
	return 0, fmt.Errorf("%w %s: want one of %s", ErrVerb, quote(text), verbList(k))
}

// verbList lists what can follow a queue name, for error texts.
func verbList(k Kind) string {
	var names []string
	for _, v := range verbsOf(k) {
		names = append(names, v.String())
		if v == Push {
			names = append(names, pushWithPriority+"<priority>")
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
	for _, kind := range []Kind{Priority, FIFO} {
		for _, verb := range verbsOf(kind) {
			e := Endpoint{
				Name:    strings.ReplaceAll(verb.String(), ".", "-"),
				Subject: g.prefix(kind) + "*." + verb.String(),
				Kind:    kind,
				Verb:    verb,
			}
			if kind == FIFO && has(Priority, verb) {
				e.Name = "fifo-" + e.Name
			}
			endpoints = append(endpoints, e)
			if verb == Push {
				e.Name += "-priority"
				e.Subject += ".*"
				e.HasPriority = true
				endpoints = append(endpoints, e)
			}
		}
	}
	return endpoints
}
