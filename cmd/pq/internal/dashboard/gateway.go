package dashboard

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/discovery"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

const (
	// maxCalls is how many requests to bridges are under way at a time, for all browsers together,
	// and maxLarge how many besides whose replies have a megabyte or more. Such a reply takes
	// several times as much memory until it was cut to what pages show.
	maxCalls = 16
	maxLarge = 4
	// maxRefused subjects are remembered for rightTime.
	maxRefused = 10_000
	// maxLoggedUser is how many bytes of the name of a user the bridges' logs have.
	maxLoggedUser = 64
)

// largeReplies are the verbs whose replies may be large.
var largeReplies = []subjects.Verb{subjects.Items, subjects.Get, subjects.Schedules}

// gateway sends requests to the bridges.
type gateway struct {
	nc      *nats.Conn
	away    func() error // why nc is not connected; nil without
	client  *client.Client
	grammar subjects.Grammar
	timeout time.Duration
	slots   chan struct{}
	large   chan struct{}

	mu sync.Mutex
	// refused are the subjects that the server has refused, and until when nobody asks again.
	refused map[string]time.Time

	allowed ttlCache[struct{}, *discovery.Permissions] // as the server says; nil if it does not
}

// refusal returns why a request to a subject would not pass, nil if it may.
func (g *gateway) refusal(subject string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Now().After(g.refused[subject]) {
		return nil
	}
	return fmt.Errorf("%w send requests to %s", errRefused, subject)
}

// because adds to a text why the connection is down, if that is known.
func (g *gateway) because(text string) string {
	if g.away != nil {
		if why := g.away(); why != nil {
			text = fmt.Sprintf("%s: %v", text, why)
		}
	}
	return text
}

func newGateway(o *Options) *gateway {
	g := &gateway{
		nc: o.Conn, away: o.Away, grammar: o.Grammar, timeout: o.Timeout,
		slots: make(chan struct{}, maxCalls), large: make(chan struct{}, maxLarge),
		refused: map[string]time.Time{},
		allowed: ttlCache[struct{}, *discovery.Permissions]{lasts: rightTime, most: 1},
	}

	g.client = g.newClient("dashboard on ")
	return g
}

// noteRefusal keeps requests to a subject from being sent for a while.
func (g *gateway) noteRefusal(subject string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.refused) >= maxRefused {
		clear(g.refused)
	}
	g.refused[subject] = time.Now().Add(rightTime)
}

// send calls request, which sends a request to the subject, once one of the slots is free. The
// error wraps errRefused if the server refuses it.
func (g *gateway) send(
	ctx context.Context, slots chan struct{}, subject string,
	request func(context.Context) error,
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
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		return errNoBridge
	}

	err := request(ctx)
	switch {
	case errors.Is(err, nats.ErrPermissionViolation) &&
		strings.Contains(err.Error(), "Publish to "):
		g.noteRefusal(subject)
		return g.refusal(subject)
	case errors.Is(err, nats.ErrPermissionViolation):
		return fmt.Errorf("%w receive replies: %w", errRefused, err)
	case errors.Is(err, client.ErrUnknownOutcome):
	case errors.Is(err, client.ErrNoBridge), errors.Is(err, context.DeadlineExceeded):
		return errNoBridge
	}

	return err
}

// subject returns the subject for a verb, or an error if there cannot be such a queue.
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
	request func(*client.Queue, context.Context) (T, error),
) (answer T, err error) {
	slots := g.slots
	if slices.Contains(largeReplies, verb) {
		slots = g.large
	}
	return askIn(ctx, g, slots, q, verb, request)
}

// askIn is ask for a request that takes one of the slots.
func askIn[T any](
	ctx context.Context, g *gateway, slots chan struct{}, q queueRef, verb subjects.Verb,
	request func(*client.Queue, context.Context) (T, error),
) (answer T, err error) {
	subject, err := g.subject(q, verb)
	if err != nil {
		return answer, fmt.Errorf("%w: %w", client.ErrBadRequest, err)
	}

	err = g.send(ctx, slots, subject, func(ctx context.Context) (err error) {
		answer, err = request(target.Queue(g.clientOf(ctx), q.FIFO(), q.Name), ctx)
		return err
	})
	return answer, err
}

// clientOf returns a client that tells the bridges on whose behalf the dashboard acts.
func (g *gateway) clientOf(ctx context.Context) *client.Client {
	c, _ := ctx.Value(callerKey{}).(caller)
	if c.name == "" {
		return g.client
	}
	return g.newClient(settings.Cut(c.name, maxLoggedUser) + " by dashboard on ")
}

// newClient returns a client whose name begins with by.
func (g *gateway) newClient(by string) *client.Client {
	return client.New(g.nc, client.WithGrammar(g.grammar), client.WithTimeout(g.timeout),
		client.WithName(by+client.DefaultHolder(g.nc)))
}

func (g *gateway) info(ctx context.Context, q queueRef) (*client.QueueInfo, error) {
	return ask(ctx, g, q, subjects.Info, (*client.Queue).Info)
}

func (g *gateway) items(
	ctx context.Context, q queueRef, o client.ItemsOptions,
) (client.ItemsPage, error) {
	return ask(ctx, g, q, subjects.Items,
		func(q *client.Queue, ctx context.Context) (client.ItemsPage, error) {
			return q.Items(ctx, o)
		})
}

// schedules calls note with the schedules of a queue whose ids come after one, page by page, until
// it has enough.
func (g *gateway) schedules(
	ctx context.Context, q queueRef, afterID string,
	note func([]*client.ScheduleRecord) (more bool),
) (err error) {
	for after := &afterID; after != nil && err == nil; {
		page := func(q *client.Queue, ctx context.Context) (next *string, err error) {
			list, err := q.SchedulesPage(ctx, *after)
			if err == nil && note(list.Schedules) {
				next = list.Next
			}
			return next, err
		}
		after, err = ask(ctx, g, q, subjects.Schedules, page)
	}
	return err
}

// scan yields the items of a queue page by page, without their values. An error is the last.
func (g *gateway) scan(
	ctx context.Context, q queueRef, o client.ItemsOptions,
) iter.Seq2[client.ItemsPage, error] {
	o.Limit, o.ValueBytes = subjects.MaxItems, client.NoValues
	items := func(ctx context.Context, o client.ItemsOptions) (client.ItemsPage, error) {
		return g.items(ctx, q, o)
	}
	return target.Pages(ctx, o, items)
}

// list returns the queues of a kind that there can be, the first ones once there are most.
func (g *gateway) list(
	ctx context.Context, kind subjects.Kind, most int,
) ([]subjects.QueueCounts, error) {
	subject, err := g.grammar.Build(subjects.Request{Kind: kind, Verb: subjects.List})
	if err != nil {
		return nil, err
	}
	all, err := target.List(g.client, kind == subjects.FIFO, most,
		func(request func(context.Context) error) error {
			return g.send(ctx, g.slots, subject, request)
		})

	// What answers may not be a bridge.
	return slices.DeleteFunc(all, func(q subjects.QueueCounts) bool {
		return g.check(queueRef{kind.Short(), q.Queue}) != nil
	}), err
}

// rightTime is how long it is remembered what the user may do.
const rightTime = time.Minute
