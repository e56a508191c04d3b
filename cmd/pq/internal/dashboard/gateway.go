package dashboard

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/discovery"
	"github.com/pqbridge/pqbridge/subjects"
)

// maxCalls is how many requests to bridges are under way at a time, for all browsers together.
const maxCalls = 16

// gateway sends requests to the bridges. It notices when the NATS server does not let one pass: the
// server says so on the connection, and nobody answers the request.
type gateway struct {
	nc      *nats.Conn
	client  *client.Client
	grammar subjects.Grammar
	timeout time.Duration
	slots   chan struct{}

	mu      sync.Mutex
	waiting map[string]map[*call]struct{} // by subject
	rights  map[right]verdict

	allowed      *discovery.Permissions // as the server says; nil if it does not
	allowedUntil time.Time              // then it is asked again
}

// call is a request under way.
type call struct{ cancel context.CancelCauseFunc }

// refusedError is the error of a request that the NATS server does not let pass.
type refusedError struct{ text string }

func (e *refusedError) Error() string { return e.text }

// errAway is the error of all requests while the connection is down.
var errAway = fmt.Errorf("%w: NATS is away: try again when it is back", client.ErrNotSent)

func newGateway(o *Options) *gateway {
	g := &gateway{
		nc: o.Conn, grammar: o.Grammar, timeout: o.Timeout,
		client:  client.New(o.Conn, client.WithGrammar(o.Grammar), client.WithTimeout(o.Timeout)),
		slots:   make(chan struct{}, maxCalls),
		waiting: map[string]map[*call]struct{}{},
		rights:  map[right]verdict{},
	}
	o.Conn.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { g.noteRefusal(err) })
	return g
}

var publishTo = regexp.MustCompile(`Publish to "([^"]+)"`)

// noteRefusal ends the requests that an error of the connection is about.
func (g *gateway) noteRefusal(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}

	if m := publishTo.FindStringSubmatch(err.Error()); m != nil {
		g.endCalls(m[1], &refusedError{fmt.Sprintf("the NATS user may not send requests to %s", m[1])})
	} else {
		g.endCalls("", &refusedError{"the NATS user cannot receive replies: " + err.Error()})
	}
}

// endCalls ends the requests under way to a subject, or with "" all of them.
func (g *gateway) endCalls(subject string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for s, calls := range g.waiting {
		if subject != "" && s != subject {
			continue
		}
		for c := range calls {
			c.cancel(err)
		}
	}
}

// watchSubject returns a context that ends if the server refuses a request to the subject.
func (g *gateway) watchSubject(ctx context.Context, subject string) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := &call{cancel}

	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting[subject] == nil {
		g.waiting[subject] = map[*call]struct{}{}
	}
	g.waiting[subject][c] = struct{}{}

	return ctx, func() {
		cancel(nil)
		g.mu.Lock()
		defer g.mu.Unlock()
		if delete(g.waiting[subject], c); len(g.waiting[subject]) == 0 {
			delete(g.waiting, subject)
		}
	}
}

// send calls request, which sends a request to the subject. The error is a *refusedError if the
// server did not let it pass.
func (g *gateway) send(ctx context.Context, subject string, request func(context.Context) error) error {
	if !g.nc.IsConnected() { // the client would wait
		return errAway
	}
	ctx, cancel := context.WithTimeoutCause(ctx, g.timeout, fmt.Errorf("waited %v", g.timeout))
	defer cancel()

	select {
	case g.slots <- struct{}{}:
		defer func() { <-g.slots }()
	case <-ctx.Done():
		return fmt.Errorf("not sent: too many requests are under way: %w", context.Cause(ctx))
	}

	ctx, stop := g.watchSubject(ctx, subject)
	defer stop()
	err := request(ctx)
	var refused *refusedError
	if err != nil && errors.As(context.Cause(ctx), &refused) {
		return refused
	}
	return err
}

// queue is what handles of both kinds of queues have in common.
type queue interface {
	Info(ctx context.Context) (*client.QueueInfo, error)
	Items(ctx context.Context, o client.ItemsOptions) (client.ItemsPage, error)
	Get(ctx context.Context, id string) (*client.Item, client.State, error)
	GetItems(ctx context.Context, ids []string, valueBytes int) ([]client.StoredItem, error)
	Rank(ctx context.Context, id string) (n int64, atLeast bool, err error)
	RemoveItems(ctx context.Context, ids []string) ([]client.ItemResult, error)
	RedriveItems(ctx context.Context, ids []string) ([]client.ItemResult, error)
	ReleaseItems(ctx context.Context, ids []string) ([]client.ItemResult, error)
	Purge(ctx context.Context, state client.State) (int64, error)
	Configure(ctx context.Context, change client.Settings, reset ...string) (client.Settings, error)
}

// handle returns the handle of a queue.
func (g *gateway) handle(q queueRef) queue {
	if q.FIFO() {
		return g.client.Queue(q.Name)
	}
	return g.client.PriorityQueue(q.Name)
}

func kindOf(q queueRef) subjects.Kind {
	if q.FIFO() {
		return subjects.FIFO
	}
	return subjects.Priority
}

var errKind = errors.New("a kind of queues is pq or q")

// check returns an error if there cannot be such a queue.
func (g *gateway) check(q queueRef) error {
	if q.Kind != "pq" && q.Kind != "q" {
		return errKind
	}
	_, err := g.subject(q, subjects.Info)
	return err
}

// subject returns that of requests with a verb.
func (g *gateway) subject(q queueRef, verb subjects.Verb) (string, error) {
	return g.grammar.Build(subjects.Request{Kind: kindOf(q), Verb: verb, Queue: q.Name})
}

// ask sends a request about a queue, and returns the answer.
func ask[T any](ctx context.Context, g *gateway, q queueRef, verb subjects.Verb, request func(context.Context, queue) (T, error)) (answer T, err error) {
	subject, err := g.subject(q, verb)
	if err != nil {
		return answer, err
	}
	err = g.send(ctx, subject, func(ctx context.Context) (err error) {
		answer, err = request(ctx, g.handle(q))
		return err
	})
	return answer, err
}

// list returns all queues of a kind.
func (g *gateway) list(ctx context.Context, kind subjects.Kind) (all []subjects.QueueCounts, err error) {
	subject, err := g.grammar.Build(subjects.Request{Kind: kind, Verb: subjects.List})
	if err != nil {
		return nil, err
	}

	for after := new(string); after != nil; {
		var page client.QueueList
		err := g.send(ctx, subject, func(ctx context.Context) (err error) {
			if kind == subjects.FIFO {
				page, err = g.client.ListQueues(ctx, *after, 0)
			} else {
				page, err = g.client.ListPriorityQueues(ctx, *after, 0)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		all, after = append(all, page.Queues...), page.Next
	}
	return all, nil
}
