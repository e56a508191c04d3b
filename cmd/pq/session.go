package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/user"
	"reflect"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/flags"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/interrupt"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// session is a connection for the requests of one command. It is safe for concurrent use.
type session struct {
	*app
	nc     *nats.Conn
	client *client.Client
	queue  *client.Queue // of the command, nil if it works on none
	of     *queue        // the same, as the command line has it
}

// open connects to the servers, unless ctx ends first.
func (a *app) open(ctx context.Context, more ...nats.Option) (*session, error) {
	options, err := a.Options()
	if err != nil {
		return nil, err
	}

	nc, err := interrupt.Await(ctx,
		func() (*nats.Conn, error) { return a.Connect(append(options, more...)) })
	if err != nil {
		return nil, err
	}

	c := client.New(nc, client.WithGrammar(a.grammar), client.WithTimeout(a.Timeout),
		client.WithName(callerOf(nc)))
	return &session{app: a, nc: nc, client: c}, nil
}

// callerOf says who uses this pq, for the logs of the bridges.
func callerOf(nc *nats.Conn) string {
	name := client.DefaultHolder(nc)
	if u, err := user.Current(); err == nil {
		name = u.Username + "@" + name
	}
	return name
}

// open connects to the servers, unless ctx ends first.
func (q *queue) open(ctx context.Context, more ...nats.Option) (*session, error) {
	s, err := q.app.open(ctx, more...)
	if err == nil {
		s.use(q)
	}
	return s, err
}

// use makes the session's requests go to q.
func (s *session) use(q *queue) { s.queue, s.of = target.Queue(s.client, q.fifo, q.name), q }

// finishing is the context of requests that a signal lets finish.
func (s *session) finishing() context.Context { return context.WithoutCancel(s.of.cmd.Context()) }

// longestPop is how long one request waits for an item. A signal lets it finish, because ending
// it could leave an item leased, so the wait for a longer time takes several.
const longestPop = time.Second

// lease leases up to n items, and returns when that began. While there is none it tries again,
// until the time to wait is over or a signal comes.
func (q *queue) lease(
	s *session, n int, wait, ackWait time.Duration, holder string,
) (list []*client.Delivery, begun time.Time, err error) {
	ctx, until := q.cmd.Context(), time.Now().Add(wait)
	request := s.queue.LeaseBatch
	if q.max {
		request = s.queue.LeaseMaxBatch
	}

	for {
		begun = time.Now()
		left := until.Sub(begun)
		options := []client.LeaseOption{client.AckWait(ackWait), client.NoWait(),
			client.Holder(cmp.Or(holder, client.DefaultHolder(s.nc)))}
		if wait > 0 {
			options = append(options, client.Expires(min(max(left, time.Millisecond), longestPop)))
		}

		list, err = request(s.finishing(), n, options...)
		switch {
		case len(list) > 0:
			return list, begun, nil // the next request will say why there are not more
		case !errors.Is(err, client.ErrEmpty) || left <= longestPop:
			return nil, begun, s.explain(err, "items may stay leased until their leases end")
		case ctx.Err() != nil:
			return nil, begun, context.Cause(ctx)
		}
	}
}

// explain adds what the user can do about an error, and what an unknown outcome
// may mean.
func (s *session) explain(err error, unknown string) error {
	var reply *client.Error
	switch {
	case errors.Is(err, nats.ErrPermissionViolation): // the server did not pass the request on
		const text = "%w: give this user the permission, or log in as another (pq help connection)"
		return fmt.Errorf(text, err)
	case errors.Is(err, client.ErrBadRequest):
		text := strings.TrimPrefix(err.Error(), badSchedule)
		if strings.Contains(text, "unknown member") {
			return fmt.Errorf("%w; if this pq is newer than the bridge, that is why: pq doctor "+
				"compares their versions", err)
		}
		return flags.Named(s.of.cmd, err,
			strings.TrimPrefix(text, subjects.ErrOptions.Error()+": "))
	case errors.Is(err, client.ErrUnknownOutcome):
		return fmt.Errorf("%w: %s", err, unknown)
	case errors.Is(err, client.ErrNoBridge):
		return withoutBridge(err)
	case errors.As(err, &reply) && reply.Reason == subjects.ReasonEmpty:
		return client.ErrEmpty // without the code
	}

	return err
}

// withoutBridge adds to ErrNoBridge what the user can do.
func withoutBridge(err error) error {
	return fmt.Errorf("%w: is pqbridge running? pq doctor looks for the reason", err)
}

// ask connects and makes the one request of a command. A signal ends it at once, unless it changes
// something: then unknown says what an unknown outcome may mean.
func ask[T any](
	q *queue, unknown string, request func(context.Context, *session) (T, error),
) (none T, err error) {
	ctx := q.cmd.Context()
	s, err := q.open(ctx)
	if err != nil {
		return none, err
	}

	defer s.nc.Close()

	if unknown != "" {
		defer interrupt.Say(q.cmd, unknown)()
		ctx = s.finishing()
	}

	answer, err := request(ctx, s)
	return answer, s.explain(err, unknown)
}

// isUnused reports whether a queue has no items, settings or consumers. Nothing else tells a queue
// from a misspelt name.
func isUnused(i *client.QueueInfo) bool {
	return target.Count(i, "")+i.Finished == 0 && reflect.ValueOf(i.Settings).IsZero() &&
		len(i.Consumers) == 0
}

// notKept is why a queue may seem unused to somebody who looks for a job.
const notKept = "; if the job is done, nothing was kept of it: pq push --keep 1h, or " +
	"pq config QUEUE keep=1h"

// suggest returns what may be wrong with the name of a queue that is not used, which ends with a
// hint; and "" for one that is, or if that cannot be found out.
func (s *session) suggest(ctx context.Context, hint string) string {
	q := s.of
	if info, err := s.queue.Info(ctx); err != nil || !isUnused(info) {
		return ""
	}

	if list, err := s.queue.Schedules(ctx); err != nil || len(list) > 0 {
		return ""
	}

	finished, err := s.queue.Items(ctx, client.ItemsOptions{State: client.Done, Limit: 1})
	if err != nil || finished.Scanned > 0 {
		return ""
	}

	other := target.Queue(s.client, !q.fifo, q.name)
	if info, err := other.Info(ctx); err == nil && !isUnused(info) {
		if q.fifo {
			return fmt.Sprintf("%s is a priority queue: leave out --fifo", q.name)
		}
		return fmt.Sprintf("%s is a FIFO queue: add --fifo", q.name)
	}

	return fmt.Sprintf("queue %s is not in use: pq ls lists those that are%s", q.name, hint)
}

// noteUnused tells people that the queue they named is not in use, and reports whether that is so.
// That is no error: queues need no creation.
func (s *session) noteUnused(ctx context.Context) bool {
	hint := ""
	if s.of.cmd.Name() == "done" {
		hint = notKept
	}
	text := s.suggest(ctx, hint)
	if text != "" {
		s.of.say("%s", text)
	}
	return text != ""
}

// absent explains that an item is not in the queue.
func (s *session) absent(ctx context.Context, err error) error {
	command := s.of.cmd.Name()
	var reply *client.Error
	switch {
	case errors.As(err, &reply) && reply.Reason == subjects.ReasonDone && command != "redrive":
		return fmt.Errorf("%w: pq redrive %s ID runs it again", err, s.of.name)
	case !errors.Is(err, client.ErrNotFound):
		return err
	}

	if text := s.suggest(ctx, notKept); text != "" {
		return fmt.Errorf("%w: %s", errNoItem, text)
	}

	done := "is done"
	if command == "rm" {
		done += " (pq rm --state done removes finished jobs)"
	}
	home := strings.TrimSuffix(s.of.name, settings.DeadSuffix)
	return fmt.Errorf("%w: it was popped or removed, has expired or %s, the id is misspelt "+
		"(pq items %s prints ids), or it is a dead letter (pq dead %s prints those)",
		errNoItem, done, s.of.name, home)
}

// notFound is ErrNotFound with another text.
type notFound string

func (e notFound) Error() string      { return string(e) }
func (notFound) Is(target error) bool { return target == client.ErrNotFound }

const errNoItem = notFound("no item has this id")
