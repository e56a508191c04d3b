package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// restricted is a system with a user "me", whose permissions the test sets, and a connection of
// that user. Other connections may do everything.
type restricted struct {
	*testing.T
	e     *testenv.Env
	nc    *nats.Conn
	jobs  *client.Queue // of nc
	heard atomic.Int64  // refusals, by the error handler of nc
}

func newRestricted(t *testing.T, may server.Permissions) *restricted {
	t.Helper()
	r := &restricted{T: t}
	r.e = testenv.New(t, testenv.Options{NATS: func(o *server.Options) { r.change(may)(o) }})
	r.nc = r.e.Connect(nats.UserInfo("me", "me"),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) { r.heard.Add(1) }))
	r.jobs = client.New(r.nc, client.WithTimeout(time.Hour)).PriorityQueue("jobs")

	return r
}

// change returns a change of the server's options: the user has these permissions.
func (r *restricted) change(may server.Permissions) func(*server.Options) {
	return func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "all", Password: "all"},
			{Username: "me", Password: "me", Permissions: &may},
		}
		o.NoAuthUser = "all"
	}
}

// allow gives the user other permissions, on the connections that there are.
func (r *restricted) allow(may server.Permissions) {
	r.Helper()
	r.e.NATS.Change(r.change(may))
	r.e.NATS.Reload()
}

// all returns what everybody else sees as queue jobs.
func (r *restricted) all() *client.Queue { return client.New(r.e.Conn).PriorityQueue("jobs") }

// wantEmpty fails the test if something is in queue jobs.
func (r *restricted) wantEmpty() {
	r.Helper()
	if n, err := r.all().Len(r.Context()); n != 0 || err != nil {
		r.Errorf("%d items are in the queue, %v", n, err)
	}
}

func denyPublish(subjects ...string) server.Permissions {
	return server.Permissions{Publish: &server.SubjectPermission{Deny: subjects}}
}

func denySubscribe(subjects ...string) server.Permissions {
	return server.Permissions{Subscribe: &server.SubjectPermission{Deny: subjects}}
}

// wantRefused fails the test unless err says that nothing was sent because this was refused.
func wantRefused(t *testing.T, what string, err error, refused string) {
	t.Helper()
	if !errors.Is(err, nats.ErrPermissionViolation) || !errors.Is(err, client.ErrNotSent) ||
		errors.Is(err, client.ErrUnknownOutcome) || !strings.Contains(fmt.Sprint(err), refused) {
		t.Errorf("%s: %v; want %s", what, err, refused)
	}
}

// target is a client and a queue of it.
type target struct {
	*client.Client
	jobs *client.Queue
}

// refusable are calls that the server may refuse. The keys are the refused subjects, and after a
// space or a comma whatever tells two calls with the same subject apart.
var refusable = map[string]func(context.Context, target) error{
	"pq.jobs.push": func(ctx context.Context, to target) error {
		_, err := to.jobs.Push(ctx, 1, nil)
		return err
	},
	"pq.jobs.push.batch": func(ctx context.Context, to target) error {
		_, err := to.jobs.PushBatch(ctx, make([]client.PushItem, 2))
		return err
	},
	"pq.jobs.push.batch of PushMany": func(ctx context.Context, to target) error {
		results, _ := to.jobs.PushMany(ctx, make([]client.PushItem, 2))
		return results[1].Err
	},
	"pq.jobs.push.batch of a Producer": func(ctx context.Context, to target) error {
		p := must(to.jobs.NewProducer(client.ProducerOptions{}))
		_, err := must(p.PushAsync(ctx, 1, client.Message{})).Wait(ctx)
		return errors.Join(err, p.Close(ctx))
	},
	"pq.jobs.pop.min": func(ctx context.Context, to target) error {
		_, err := to.jobs.Pop(ctx)
		return err
	},
	"pq.jobs.pop.max, waiting": func(ctx context.Context, to target) error {
		_, err := to.jobs.LeaseMax(ctx, client.Expires(time.Hour))
		return err
	},
	"pq.jobs.pop.min of a batch": func(ctx context.Context, to target) error {
		_, err := to.jobs.LeaseBatch(ctx, 1000)
		return err
	},
	"pq.jobs.ack.a": func(ctx context.Context, to target) error {
		return to.Delivery("pq.jobs.ack.a").Ack(ctx)
	},
	"pq.jobs.ack.b": func(ctx context.Context, to target) error {
		_, err := to.Delivery("pq.jobs.ack.b").Extend(ctx)
		return err
	},
	"pq.jobs.ack.c": func(ctx context.Context, to target) error {
		_, err := to.Delivery("pq.jobs.ack.c").Next(ctx, client.Expires(time.Hour))
		return err
	},
	"pq.jobs.ack.d": func(ctx context.Context, to target) error {
		return to.AckAll(ctx, to.Delivery("pq.jobs.ack.d"), to.Delivery("pq.jobs.ack.e"))[1]
	},
	"pq.jobs.ack.f": func(ctx context.Context, to target) error {
		return to.Delivery("pq.jobs.ack.f").Nak(ctx, time.Second)
	},
	"pq.jobs.info": func(ctx context.Context, to target) error {
		_, err := to.jobs.Settings(ctx)
		return err
	},
	"pq.jobs.config": func(ctx context.Context, to target) error {
		_, err := to.jobs.Configure(ctx, client.Settings{})
		return err
	},
	"pq.jobs.items": func(ctx context.Context, to target) error {
		_, err := to.jobs.Items(ctx, client.ItemsOptions{})
		return err
	},
	"pq.jobs.purge": func(ctx context.Context, to target) error {
		_, err := to.jobs.Purge(ctx, "")
		return err
	},
	"pq.jobs.schedule": func(ctx context.Context, to target) error {
		_, err := to.jobs.RunSchedule(ctx, "nightly")
		return err
	},
	"pq.list": func(ctx context.Context, to target) error {
		_, err := to.ListPriorityQueues(ctx, "", 0)
		return err
	},
}

// A call that the server refuses ends at once, says which permission is missing, and was not sent.
// The connection's error handler hears of each.
func TestRefusedCalls(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		r := newRestricted(t, denyPublish("pq.>"))
		c := client.New(r.nc, client.WithTimeout(time.Hour)) // shares the connection with r.jobs
		begun := time.Now()

		for subject, call := range refusable {
			subject, _, _ = strings.Cut(strings.ReplaceAll(subject, ",", ""), " ")

			err := call(t.Context(), target{c, c.PriorityQueue("jobs")})

			wantRefused(t, subject, err, fmt.Sprintf("Publish to %q", subject))
		}

		if took := time.Since(begun); took > time.Minute { // by the bubble's clock
			t.Errorf("the calls waited %v", took)
		}
		if n := r.heard.Load(); n != int64(len(refusable)) {
			t.Errorf("the error handler of the connection was called %d times, want %d", n,
				len(refusable))
		}
		r.wantEmpty()
	})
}

// wantRefusalNamed fails the test unless err names what was refused, even if another request on
// that subject may have been meant.
func wantRefusalNamed(t *testing.T, what string, err error, refused string) {
	t.Helper()
	if !errors.Is(err, nats.ErrPermissionViolation) ||
		!errors.Is(err, client.ErrNotSent) && !errors.Is(err, client.ErrUnknownOutcome) ||
		!strings.Contains(fmt.Sprint(err), refused) {
		t.Errorf("%s: %v; want a refusal of %s", what, err, refused)
	}
}

// Of many calls at the same time, each refused one names the permission, and allowed ones succeed.
func TestRefusedCallsAtTheSameTime(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		r := newRestricted(t, denyPublish("pq.jobs.push", "pq.*.ack.*"))
		c := client.New(r.nc, client.WithTimeout(time.Hour))

		var calls sync.WaitGroup
		for i := range 300 {
			calls.Go(func() {
				_, err := r.jobs.Push(t.Context(), 1, nil)
				wantRefusalNamed(t, "push", err, `Publish to "pq.jobs.push"`)
			})

			calls.Go(func() {
				subject := fmt.Sprintf("pq.jobs.ack.t%d", i)
				wantRefused(t, "ack", c.Delivery(subject).Ack(t.Context()), subject)
			})

			calls.Go(func() {
				_, err := r.jobs.Len(t.Context())
				if err != nil {
					t.Errorf("an allowed call: %v", err)
				}
			})
		}

		calls.Wait()
		r.wantEmpty()
	})
}

// Nothing is sent, and nothing stored, if the reply could not be received.
func TestRefusedReplies(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		r := newRestricted(t, denySubscribe("_INBOX.>"))

		var calls sync.WaitGroup
		for range 20 {
			calls.Go(func() {
				_, err := r.jobs.Push(t.Context(), 1, nil)
				wantRefused(t, "push", err, `Subscription to "_INBOX.`)
			})
		}

		calls.Wait()
		r.wantEmpty()
	})
}

// When permissions change while the connection stays, later calls are refused or succeed
// accordingly.
func TestPermissionsChange(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		r := newRestricted(t, denyPublish("pq.jobs.push"))
		push := func() error {
			_, err := r.jobs.Push(t.Context(), 1, nil)
			return err
		}
		wantRefused(t, "push", push(), "Publish to")

		r.allow(server.Permissions{})
		ok(t, push())

		// This also ends the subscription of the idle inbox, of which the client hears meanwhile.
		r.allow(denySubscribe("_INBOX.>"))
		time.Sleep(time.Second)
		for range 3 {
			wantRefused(t, "push without replies", push(), `Subscription to "_INBOX.`)
		}

		r.allow(server.Permissions{})
		ok(t, push())
		if n := must(r.all().Len(t.Context())); n != 2 {
			t.Errorf("%d items are in the queue, want those of the 2 pushes that succeeded", n)
		}
	})
}

// A push that was sent before the permission was taken away succeeds, even if a second push is
// refused before the answer comes.
func TestRefusalIsOfTheNewestRequest(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		r := newRestricted(t, server.Permissions{})
		held := make(chan *nats.Msg, 1)
		listen(t, r.e.Connect(), "far.jobs.push", func(m *nats.Msg) { held <- m })
		far := client.WithGrammar(must(subjects.New("far", "q")))
		jobs := client.New(r.nc, far, client.WithTimeout(time.Hour)).PriorityQueue("jobs")

		push := func() (string, error) {
			ack, err := jobs.Push(t.Context(), 1, nil)
			return ack.ID, err
		}

		first := async(push)
		m := <-held

		r.allow(denyPublish("far.jobs.push"))
		_, err := push()
		wantRefusalNamed(t, "the second push", err, "far.jobs.push")

		ok(t, m.Respond([]byte(`{"queue":"jobs","id":"first","priority":1}`)))
		wantOutcome(t, "the first push", <-first, nil, "first")
	})
}

// late is a restricted system with an error handler that returns only when the test lets it, so
// that the client hears of refusals late. Its queue jobs is "far": the test answers its requests.
type late struct {
	*restricted
	jobs    *client.Queue
	entered chan struct{} // receives when the error handler begins
	goOn    chan struct{} // closed when it may return, and all later ones
	held    chan *nats.Msg
}

// newLate returns a system whose error handler has begun, and does not return yet. Its user may not
// publish on the denied subjects.
func newLate(t *testing.T, denied ...string) *late {
	t.Helper()
	l := &late{
		entered: make(chan struct{}, 1000),
		goOn:    make(chan struct{}),
		held:    make(chan *nats.Msg, 10),
	}

	l.restricted = newRestricted(t, denyPublish(append(denied, "other")...))
	nc := l.e.Connect(nats.UserInfo("me", "me"), nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {
			l.entered <- struct{}{}
			<-l.goOn
		}))

	t.Cleanup(sync.OnceFunc(func() {
		select {
		case <-l.goOn:
		default:
			close(l.goOn)
		}
	}))

	listen(t, l.e.Connect(), "far.jobs.push", func(m *nats.Msg) { l.held <- m })
	far := client.WithGrammar(must(subjects.New("far", "q")))
	l.jobs = client.New(nc, far, client.WithTimeout(time.Hour)).PriorityQueue("jobs")
	l.nc = nc
	ok(t, nc.Publish("other", nil))
	<-l.entered

	return l
}

// push pushes an item, for as long as ctx lasts.
func (l *late) push(ctx context.Context) (string, error) {
	ack, err := l.jobs.Push(ctx, 1, nil)
	return ack.ID, err
}

// pushRefused makes n pushes that are refused, and wait until their contexts end because the client
// does not hear of it. Their errors name the permission all the same.
func (l *late) pushRefused(n int) {
	l.Helper()
	for range n {
		ctx, cancel := context.WithTimeout(l.Context(), 2*time.Second)
		_, err := l.push(ctx)
		cancel()

		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, client.ErrUnknownOutcome) ||
			!errors.Is(err, nats.ErrPermissionViolation) ||
			!strings.Contains(fmt.Sprint(err), "far.jobs.push") {
			l.Errorf("a refused push whose refusal is late: %v", err)
		}
	}
}

// answer answers the push that is held.
func (l *late) answer(m *nats.Msg) {
	l.Helper()
	ok(l, m.Respond([]byte(`{"queue":"jobs","id":"a","priority":1}`)))
}

// If refusals of earlier pushes come late, a push that was sent has an unknown outcome, and is not
// said to be unsent. That holds over a new connection too. Once they have come, pushes succeed, and
// the errors of refused ones are exact again.
func TestLateRefusals(t *testing.T) {
	for _, reconnects := range []bool{false, true} {
		subtest(t, fmt.Sprint("reconnects ", reconnects), func(t *testing.T) {
			l := newLate(t, "far.jobs.push")
			const refused = 3
			l.pushRefused(refused)

			l.allow(denyPublish("other"))
			if reconnects {
				changes := l.nc.StatusChanged(nats.CONNECTED)
				ok(t, l.nc.ForceReconnect())
				<-changes
			}

			// This push is allowed and arrives, while the client hears of the others' refusals.
			granted := async(func() (string, error) { return l.push(t.Context()) })
			m := <-l.held
			close(l.goOn)

			got := <-granted
			if !errors.Is(got.err, client.ErrUnknownOutcome) ||
				errors.Is(got.err, client.ErrNotSent) ||
				!errors.Is(got.err, nats.ErrPermissionViolation) {
				t.Errorf("the push that was sent: %v", got.err)
			}

			l.answer(m) // for nobody
			for range refused {
				<-l.entered // the refusals of the pushes that timed out
			}

			// From now on, results are exact.
			again := async(func() (string, error) { return l.push(t.Context()) })
			l.answer(<-l.held)
			wantOutcome(t, "a later push", <-again, nil, "a")

			l.allow(denyPublish("far.jobs.push"))
			_, err := l.push(t.Context()) // may not be the only one without an answer
			failsWith(t, "a push without the right", nats.ErrPermissionViolation)(nil, err)

			_, err = l.push(t.Context())
			wantRefused(t, "the next push without the right", err, "far.jobs.push")
		})
	}
}

// A worker goes on after a refusal that may be of an earlier request: it leases and does jobs.
func TestWorkerSurvivesLateRefusals(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		l := newLate(t, "pq.jobs.pop.min")
		jobs := client.New(l.nc).PriorityQueue("jobs")

		for range 3 { // refusals of which the client hears later
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			_, err := jobs.Lease(ctx)
			cancel()
			failsWith(t, "a refused lease", nats.ErrPermissionViolation)(nil, err)
		}

		l.allow(denyPublish("other"))
		pops := make(chan *nats.Msg, 100)
		listen(t, l.e.Connect(), "pq.jobs.pop.min", func(m *nats.Msg) { pops <- m })
		worked := make(chan struct{}, 1)

		w := must(jobs.NewWorker(func(context.Context, *client.Job) error {
			worked <- struct{}{}
			return nil
		}, quiet(client.WorkerOptions{})))

		// The refusals come while the worker's pop, which is allowed, waits.
		done, stop := run(w)
		<-pops
		close(l.goOn)

		select {
		case <-pops: // the worker leases again
		case err := <-done:
			t.Fatalf("Run: %v", err)
		}

		succeeds(t)(l.all().Push(t.Context(), 1, nil))

		<-worked
		stop()
		ok(t, <-done)
	})
}

// noisyLink is a connection to the server that publishes something forbidden after each
// subscription.
type noisyLink struct {
	net.Conn
	server *testenv.Server
}

func (l *noisyLink) InProcessConn() (_ net.Conn, err error) {
	l.Conn, err = l.server.InProcessConn()
	return l, err
}

func (l *noisyLink) Write(b []byte) (int, error) {
	subscribes := regexp.MustCompile(`SUB _INBOX[^\r]*\r\n`)
	noisy := subscribes.ReplaceAll(b, []byte("${0}PUB other 0\r\n\r\n"))

	if _, err := l.Conn.Write(noisy); err != nil {
		return 0, err
	}

	return len(b), nil
}

// A push whose reply could not be received is not sent, and its error says so, even if the server
// refuses something else at the same moment.
func TestRefusedRepliesAmongOtherRefusals(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		may := denySubscribe("_INBOX.>")
		may.Publish = denyPublish("other").Publish
		r := newRestricted(t, may)
		nc := r.e.Connect(nats.UserInfo("me", "me"),
			nats.InProcessServer(&noisyLink{server: r.e.NATS}))
		jobs := client.New(nc, client.WithTimeout(time.Hour)).PriorityQueue("jobs")

		for range 3 {
			_, err := jobs.Push(t.Context(), 1, nil)
			wantRefused(t, "push", err, `Subscription to "_INBOX.`)
		}
		r.wantEmpty()
	})
}

// A worker that may not acknowledge, lease or receive replies ends and names the permission. If it
// may not acknowledge, it also says that jobs are unsettled.
func TestWorkerWithoutPermission(t *testing.T) {
	for refused, may := range map[string]server.Permissions{
		`Publish to "pq.jobs.ack.`:     denyPublish("pq.*.ack.*"),
		`Publish to "pq.jobs.pop.min"`: denyPublish("pq.*.pop.*"),
		`Subscription to "_INBOX.`:     denySubscribe("_INBOX.>"),
	} {
		for name, o := range map[string]client.WorkerOptions{
			"one at a time": {},
			"several":       {Concurrency: 3, AckWait: time.Hour},
		} {
			subtest(t, refused+" "+name, func(t *testing.T) {
				r := newRestricted(t, may)
				succeeds(t)(r.all().PushBatch(t.Context(), make([]client.PushItem, 5)))
				w := must(r.jobs.NewWorker(doNothing, quiet(o)))

				err := w.Run(t.Context())

				if !errors.Is(err, nats.ErrPermissionViolation) ||
					!strings.Contains(fmt.Sprint(err), refused) {
					t.Errorf("Run: %v", err)
				}

				unsettled := strings.Contains(refused, "ack")
				if errors.Is(err, client.ErrUnsettled) != unsettled {
					t.Errorf("Run: %v; jobs are unsettled: %t", err, unsettled)
				}
			})
		}
	}
}

// A worker that may not extend the lease of its job ends the job's context, and then says that the
// permission is missing.
func TestWorkerMayNotExtend(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		r := newRestricted(t, denyPublish("pq.*.ack.*"))
		succeeds(t)(r.all().Push(t.Context(), 1, nil))

		work := func(ctx context.Context, _ *client.Job) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}

		w := must(r.jobs.NewWorker(work, quiet(client.WorkerOptions{AckWait: time.Minute})))

		err := w.Run(t.Context())

		failsWith(t, "Run", nats.ErrPermissionViolation)(nil, err)
	})
}

// A worker that may not read how long leases are extends each after a third of its time.
func TestWorkerMayNotReadSettings(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		r := newRestricted(t, denyPublish("pq.*.info"))
		const ackWait = 3 * time.Second
		succeeds(t)(r.all().Configure(t.Context(), client.Settings{AckWait: ackWait}))
		succeeds(t)(r.all().Push(t.Context(), 1, nil))
		acks, err := r.e.Conn.SubscribeSync("pq.jobs.ack.*")
		ok(t, err)
		begun, finish := make(chan time.Time, 1), make(chan struct{})

		w := must(r.jobs.NewWorker(func(context.Context, *client.Job) error {
			begun <- time.Now()
			<-finish
			return nil
		}, client.WorkerOptions{}))

		done, stop := run(w)
		m, err := acks.NextMsg(testenv.Patience)
		ok(t, err)

		took := time.Since(<-begun)
		if string(m.Data) != "+WPI" || took > ackWait*2/3 {
			t.Errorf("the worker sent %q after %v: want +WPI after a third of %v", m.Data, took,
				ackWait)
		}

		close(finish)
		stop()
		ok(t, <-done)
	})
}

// The token of a lease is a key: it is in no error, and in nothing that the connection's error
// handler gets, whatever becomes of an acknowledgement.
func TestErrorsHideTokens(t *testing.T) {
	const secret = "AQAABmDC4gd9-J1RAQBh"
	const subject = "jobs.ack." + secret

	heard := make(chan error, 1)
	e := testenv.New(t, testenv.Options{NATS: func(o *server.Options) {
		may := denyPublish("pq." + subject)
		o.Users = []*server.User{
			{Username: "all", Password: "all"},
			{Username: "me", Password: "me", Permissions: &may},
		}

		o.NoAuthUser = "all"
	}})

	nc := e.Connect(nats.UserInfo("me", "me"),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { heard <- err }))
	c := client.New(nc)
	listen(t, e.Conn, "silent."+subject, func(*nats.Msg) {})

	away := client.New(e.Connect(), client.WithTimeout(time.Millisecond)) // gets no answer
	closed := e.Connect()
	afterwards := client.New(closed)
	closed.Close()

	for what, err := range map[string]error{
		"refused":   c.Delivery("pq." + subject).Ack(t.Context()),
		"no bridge": c.Delivery("other." + subject).Ack(t.Context()),
		"no answer": away.Delivery("silent." + subject).Ack(t.Context()),
		"closed":    afterwards.Delivery("pq." + subject).Ack(t.Context()),
		"handler":   <-heard,
	} {
		text := fmt.Sprint(err)
		if !strings.Contains(text, "jobs.ack.AQAA...") || strings.Contains(text, secret) {
			t.Errorf("%s: %s", what, text)
		}
		if what == "refused" && !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("%s is not a refusal: %v", what, err)
		}
	}
}
