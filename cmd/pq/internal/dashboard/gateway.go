package dashboard

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/discovery"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/subjects"
)

// maxCalls is how many requests to bridges are under way at a time, for all browsers together.
const maxCalls = 16

// statsSubject asks all bridges what they count.
const statsSubject = "$SRV.STATS.pqbridge"

// gateway sends requests to the bridges. It notices when the NATS server refuses one: the server
// reports that on the connection, and nobody answers the request.
type gateway struct {
	nc      *nats.Conn
	client  *client.Client
	grammar subjects.Grammar
	timeout time.Duration
	slots   chan struct{}

	mu    sync.Mutex
	calls map[*call]struct{} // under way
	// refused are the subjects that the server has refused. They are not asked for a while.
	refused map[string]refusal

	allowed memo[struct{}, *discovery.Permissions] // as the server says; nil if it does not
}

// call is a request under way.
type call struct {
	subject string
	cancel  context.CancelCauseFunc
}

// errRefused begins the errors of requests that the NATS server refuses.
var errRefused = errors.New("the NATS user may not")

// refusal is an error until a time.
type refusal struct {
	err   error
	until time.Time
}

// refusal returns why a request to a subject would not pass, nil if it may.
func (g *gateway) refusal(subject string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r := g.refused[subject]; time.Now().Before(r.until) {
		return r.err
	}
	return nil
}

// deniedBy returns why there will be no answer, "" if there only is none now.
func deniedBy(err error) string {
	if errors.Is(err, errRefused) {
		return err.Error()
	}
	return ""
}

// errAway is the error of all requests while the connection is down: they are not sent.
var errAway = errors.New("NATS is away")

// errNoBridge is client.ErrNoBridge without the subject: none listens on any. It is also the error
// of a request that changes nothing and was not answered in time, or that was not sent in time
// because too many are under way.
var errNoBridge = errors.New("no bridge answers")

func newGateway(o *Options) *gateway {
	g := &gateway{
		nc: o.Conn, grammar: o.Grammar, timeout: o.Timeout,
		client: client.New(o.Conn, client.WithGrammar(o.Grammar), client.WithTimeout(o.Timeout)),
		slots:  make(chan struct{}, maxCalls),
		calls:  map[*call]struct{}{}, refused: map[string]refusal{},
	}

	o.Conn.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		g.noteRefusal(err)
	})

	o.Conn.SetDisconnectErrHandler(func(*nats.Conn, error) {
		g.endCalls("", errAway) // replies would be lost
	})

	return g
}

var publishTo = regexp.MustCompile(`Publish to "([^"]+)"`)

// noteRefusal ends the requests that an error of the connection is about.
func (g *gateway) noteRefusal(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}

	if m := publishTo.FindStringSubmatch(err.Error()); m != nil {
		refused := fmt.Errorf("%w send requests to %s", errRefused, m[1])
		g.endCalls(m[1], refused)
		g.mu.Lock()
		defer g.mu.Unlock()
		if len(g.refused) >= maxKept {
			clear(g.refused)
		}
		g.refused[m[1]] = refusal{refused, time.Now().Add(rightTime)}
	} else {
		g.endCalls("", fmt.Errorf("%w receive replies: %w", errRefused, err))
	}
}

// endCalls ends the requests under way to a subject, or with "" all of them.
func (g *gateway) endCalls(subject string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.calls {
		if subject == "" || c.subject == subject {
			c.cancel(err)
		}
	}
}

// send calls request, which sends a request to the subject. The error wraps errRefused if
// the server refuses it.
func (g *gateway) send(
	ctx context.Context, subject string, request func(context.Context) error,
) error {
	if !g.nc.IsConnected() { // the client would wait
		return errAway
	}

	if err := g.refusal(subject); err != nil {
		return err
	}

	ctx, cancel := context.WithTimeoutCause(ctx, g.timeout, fmt.Errorf("waited %v", g.timeout))
	defer cancel()

	select {
	case g.slots <- struct{}{}:
		defer func() { <-g.slots }()
	case <-ctx.Done():
		return errNoBridge
	}

	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	c := &call{subject, end}
	g.mu.Lock()
	g.calls[c] = struct{}{}
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.calls, c)
	}()

	err := request(ctx)
	switch why := context.Cause(ctx); {
	case err != nil && errors.Is(why, errRefused):
		return why
	case errors.Is(err, client.ErrUnknownOutcome):
	case errors.Is(err, client.ErrNoBridge), errors.Is(err, context.DeadlineExceeded):
		return errNoBridge
	}

	return err
}

// subject returns that of requests with a verb, or an error if there cannot be such a queue.
func (g *gateway) subject(q queueRef, verb subjects.Verb) (string, error) {
	kind, known := subjects.ParseShort(q.Kind)
	if !known {
		return "", errors.New("a kind of queues is pq or q")
	}
	return g.grammar.Build(subjects.Request{Kind: kind, Verb: verb, Queue: q.Name})
}

// check returns an error if there cannot be such a queue.
func (g *gateway) check(q queueRef) error {
	_, err := g.subject(q, subjects.Info)
	return err
}

// ask sends a request about a queue, and returns the answer.
func ask[T any](
	ctx context.Context, g *gateway, q queueRef, verb subjects.Verb,
	request func(target.Queue, context.Context) (T, error),
) (answer T, err error) {
	subject, err := g.subject(q, verb)
	if err != nil {
		return answer, fmt.Errorf("%w: %w", client.ErrBadRequest, err)
	}
	err = g.send(ctx, subject, func(ctx context.Context) (err error) {
		answer, err = request(target.New(g.client, q.FIFO(), q.Name), ctx)
		return err
	})
	return answer, err
}

func (g *gateway) info(ctx context.Context, q queueRef) (*client.QueueInfo, error) {
	return ask(ctx, g, q, subjects.Info, target.Queue.Info)
}

func (g *gateway) items(
	ctx context.Context, q queueRef, o client.ItemsOptions,
) (client.ItemsPage, error) {
	items := func(q target.Queue, ctx context.Context) (client.ItemsPage, error) {
		return q.Items(ctx, o)
	}
	return ask(ctx, g, q, subjects.Items, items)
}

func (g *gateway) schedules(ctx context.Context, q queueRef) ([]*client.ScheduleRecord, error) {
	return ask(ctx, g, q, subjects.Schedules, target.Queue.Schedules)
}

// scan reads the items of a queue page by page, without their values, until note has enough.
func (g *gateway) scan(
	ctx context.Context, q queueRef, o client.ItemsOptions,
	note func(*client.ItemsPage) (more bool),
) error {
	o.Limit, o.ValueBytes = subjects.MaxItems, client.NoValues
	items := func(o client.ItemsOptions) (client.ItemsPage, error) { return g.items(ctx, q, o) }
	do := func(page *client.ItemsPage) (bool, error) { return note(page), nil }
	_, err := target.Pages(o, items, do)
	return err
}

// scanAll scans up to maxMatches items of each queue, until note has enough. It passes over queues
// that the user may not read: denied says why.
func (g *gateway) scanAll(
	ctx context.Context, queues []queueRow, o client.ItemsOptions,
	note func(queueRef, *client.ItemsPage) (more bool),
) (denied string, err error) {
	more := true
	for i := 0; i < len(queues) && more; i++ {
		q, scanned := queues[i].queueRef, int64(0)
		err := g.scan(ctx, q, o, func(page *client.ItemsPage) bool {
			scanned += page.Scanned
			more = note(q, page)
			return more && scanned < maxMatches
		})
		if text := deniedBy(err); text != "" {
			denied = text
		} else if err != nil {
			return denied, err
		}
	}

	return denied, nil
}

// list returns all queues of a kind that there can be.
func (g *gateway) list(ctx context.Context, kind subjects.Kind) ([]subjects.QueueCounts, error) {
	subject, err := g.grammar.Build(subjects.Request{Kind: kind, Verb: subjects.List})
	if err != nil {
		return nil, err
	}
	send := func(request func(context.Context) error) error { return g.send(ctx, subject, request) }
	all, err := target.List(g.client, kind == subjects.FIFO, send)

	// What answers may not be a bridge.
	return slices.DeleteFunc(all, func(q subjects.QueueCounts) bool {
		return g.check(queueRef{kind.Short(), q.Queue}) != nil
	}), err
}
