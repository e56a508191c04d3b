package dashboard

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/discovery"
	"github.com/pqbridge/pqbridge/subjects"
)

const (
	// rightTime is how long it is remembered that the user may do something, or may not, and
	// unknownTime that nobody answered.
	rightTime   = time.Minute
	unknownTime = 5 * time.Second
	// maxRights are remembered.
	maxRights = 10_000
	// probeTime bounds the question.
	probeTime = 2 * time.Second
)

// right is to send requests with a verb to a queue.
type right struct {
	queue queueRef
	verb  subjects.Verb
}

// verdict says whether there is the right, until when that is remembered.
type verdict struct {
	allowed bool
	until   time.Time
}

// Probes are requests that every bridge refuses as bad, with nothing changed, if the server lets
// them pass.
var (
	badHeader  = nats.Header{subjects.HeaderDelay: {"?"}} // of a push
	badPayload = []byte(`{"?":0}`)                        // of all others
)

// permissions returns what the NATS server says that the user may publish, nil if it may not ask
// that.
func (g *gateway) permissions(ctx context.Context) *discovery.Permissions {
	g.mu.Lock()
	known, until := g.allowed, g.allowedUntil
	g.mu.Unlock()
	if time.Now().Before(until) {
		return known
	}

	var user *discovery.User
	err := g.send(ctx, discovery.UserSubject, func(ctx context.Context) (err error) {
		user, err = discovery.LoggedIn(ctx, g.nc)
		return err
	})
	if errors.Is(err, errAway) || ctx.Err() != nil {
		return nil
	}

	g.mu.Lock()
	defer g.mu.Unlock()
	if g.allowed = nil; err == nil {
		g.allowed = &user.Permissions.Publish
	}
	g.allowedUntil = time.Now().Add(rightTime)
	return g.allowed
}

// may returns what the NATS user may do to a queue. The server is asked, and where it does not say,
// the bridges are, with requests that change nothing.
func (g *gateway) may(ctx context.Context, q queueRef) (c can) {
	verbs := map[subjects.Verb]*bool{
		subjects.Push: &c.Push, subjects.Config: &c.Config, subjects.Purge: &c.Purge, subjects.Remove: &c.Remove,
		subjects.Move: &c.Move, subjects.Redrive: &c.Redrive, subjects.Release: &c.Release,
	}
	if q.FIFO() {
		verbs[subjects.Enqueue] = &c.Push
		delete(verbs, subjects.Push)
		delete(verbs, subjects.Move)
	}

	if p := g.permissions(ctx); p != nil {
		for verb, allowed := range verbs {
			subject, err := g.subject(q, verb)
			*allowed = err == nil && p.Allows(subject)
		}
		return c
	}

	var asked sync.WaitGroup
	for verb, allowed := range verbs {
		asked.Go(func() { *allowed = g.mayDo(ctx, right{q, verb}) })
	}
	asked.Wait()
	return c
}

func (g *gateway) mayDo(ctx context.Context, r right) bool {
	g.mu.Lock()
	known, ok := g.rights[r]
	g.mu.Unlock()
	if ok && time.Now().Before(known.until) {
		return known.allowed
	}

	allowed, certain := g.probe(ctx, r)
	if ctx.Err() != nil {
		return false
	}
	remember := rightTime
	if !certain { // what was so a minute ago, still is
		allowed, remember = known.allowed, unknownTime
	}

	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.rights) >= maxRights {
		clear(g.rights)
	}
	g.rights[r] = verdict{allowed, time.Now().Add(remember)}
	return allowed
}

// probe asks for something that is refused, and reports whether a bridge did that.
func (g *gateway) probe(ctx context.Context, r right) (allowed, certain bool) {
	subject, err := g.subject(r.queue, r.verb)
	if err != nil {
		return false, true
	}

	m := &nats.Msg{Subject: subject, Data: badPayload}
	if r.verb == subjects.Push || r.verb == subjects.Enqueue {
		m.Header, m.Data = badHeader, nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	err = g.send(ctx, subject, func(ctx context.Context) error {
		_, err := g.nc.RequestMsgWithContext(ctx, m)
		return err
	})
	return err == nil, err == nil || errors.As(err, new(*refusedError))
}
