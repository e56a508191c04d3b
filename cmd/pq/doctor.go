package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/discovery"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects"
)

// diagnosis is the command line of pq doctor, and what it has found.
type diagnosis struct {
	*app
	findings
	queue queue // its name is "" unless one is named
}

func newDoctor(a *app) *cobra.Command {
	d := &diagnosis{app: a, queue: queue{app: a}}
	cmd := d.queue.command(&cobra.Command{
		Use:   "doctor [QUEUE]",
		Short: "Look for what is wrong, and say what to do",
		Long: `Look at everything that a request needs: the NATS server and the login, the
permissions, the bridges, their versions, stores and clocks, and whether the
store answers. Say for each what to do. Nothing is changed. The exit code is 1
if something is wrong. With QUEUE, the permissions are those for this queue, and
it is the queue that is asked for something.`,
		Example: "  pq doctor jobs --json",
	}, func([]string) error {
		if d.queue.fifo && d.queue.name == "" {
			return exit.Usagef("--fifo says what QUEUE is: name one, or leave it out")
		}
		d.out = d.queue.cmd.OutOrStdout()
		return d.run(d.queue.cmd.Context())
	})
	cmd.Flags().BoolVar(&d.json, "json", false, "print a line of JSON for each check")
	return cmd
}

func (d *diagnosis) run(ctx context.Context) error {
	s, err := d.open(ctx)
	if err != nil {
		if ctx.Err() != nil || errors.As(err, new(exit.InputError)) {
			return err
		}
		d.report(wrong, "nats", err.Error(), "")
		return d.verdict()
	}

	defer s.close()
	defer context.AfterFunc(ctx, func() { s.end(context.Cause(ctx)) })()

	last := d.checkStore
	if d.queue.name != "" {
		last = d.checkQueue
	}

	checks := []func(*session){d.checkServer, d.checkPermissions, d.checkBridges, last}
	for _, check := range checks {
		if check(s); ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if d.err != nil {
			break
		}
		s.renew("") // the server may have refused something
	}

	return d.verdict()
}

func (d *diagnosis) checkServer(s *session) {
	took, err := s.nc.RTT()
	if err != nil {
		d.report(wrong, "nats", "the server does not answer: "+err.Error(),
			"look at the network between here and "+d.Server)
		return
	}
	d.report(fine, "nats", fmt.Sprintf("NATS %s at %s answers in %v", s.nc.ConnectedServerVersion(),
		s.nc.ConnectedUrlRedacted(), took.Round(time.Microsecond)), "")
}

// checkPermissions finds out what the server would refuse. A user with few permissions may be meant
// to have few.
func (d *diagnosis) checkPermissions(s *session) {
	user, err := discovery.LoggedIn(s.usable, s.nc)
	if err != nil {
		d.report(notable, "permissions", "they cannot be looked up: "+err.Error(),
			"allow "+discovery.UserSubject+" to see them here")
		return
	}

	var refused []string
	for _, e := range s.grammar.Endpoints() {
		subject := strings.Replace(e.Subject, "*", cmp.Or(d.queue.name, "QUEUE"), 1)
		if d.concerns(e) && !user.Permissions.Publish.Allows(subject) {
			refused = append(refused, subject)
		}
	}

	// Without a login the user has no name, which would leave two blanks.
	who := fmt.Sprintf("user %s of account %s", user.User, user.Account)
	who = strings.Join(strings.Fields(who), " ")
	if len(refused) > 0 {
		d.report(notable, "permissions", who+" may not publish to "+strings.Join(refused, ", "),
			"allow those that are needed")
		return
	}

	d.report(fine, "permissions", who+" may make all requests", "")
}

// concerns reports whether requests on an endpoint are for the queue that is named, if one is: to
// work on that, nobody needs the list.
func (d *diagnosis) concerns(e subjects.Endpoint) bool {
	return d.queue.name == "" || e.Kind == d.queue.kind() && e.Verb != subjects.List
}

func (d *diagnosis) checkBridges(s *session) {
	all, err := discovery.Bridges(s.usable, s.nc)
	switch {
	case errors.Is(err, client.ErrNoBridge):
		d.report(wrong, "bridges", "no bridge is there",
			"start pqbridge, or log in to the account that it uses (pq help connection)")
		return
	case errors.Is(err, nats.ErrPermissionViolation):
		d.report(notable, "bridges", "they cannot be looked for: "+err.Error(),
			"allow $SRV.INFO.pqbridge to see them here")
		return
	case err != nil:
		d.report(wrong, "bridges", "they cannot be looked for: "+err.Error(),
			"look at the log of pqbridge")
		return
	}

	d.report(fine, "bridges", terminal.Plural(len(all), "bridge")+" found", "")
	for i := range all {
		d.checkBridge(s, &all[i])
	}

	for _, same := range []struct {
		result           result
		check, say, toDo string
		of               func(discovery.Bridge) string
	}{
		{notable, "versions", "the versions differ",
			"upgrade all bridges before you use what is new",
			func(b discovery.Bridge) string { return b.Version }},
		{wrong, "stores", "they differ: each bridge has only some of the items",
			"let the bridges share one FoundationDB, or give them different subject prefixes",
			func(b discovery.Bridge) string { return b.Metadata[subjects.MetadataStore] }},
		{wrong, "groups", "the queue groups differ: each request would be run more than once",
			"set the same PQ_QUEUE_GROUP everywhere",
			func(b discovery.Bridge) string { return b.QueueGroup() }},
	} {
		if values := distinct(all, same.of); len(values) > 1 {
			d.report(same.result, same.check, same.say+": "+strings.Join(values, ", "), same.toDo)
		}
	}
}

// maxSkew is how far clocks may be apart.
const maxSkew = time.Second

// checkBridge checks what a bridge says about itself: that it knows all requests of this pq, its
// clock, and that it is connected for JetStream's programs if it is to serve them.
func (d *diagnosis) checkBridge(s *session, b *discovery.Bridge) {
	var unknown []string
	for _, e := range s.grammar.Endpoints() {
		if d.concerns(e) && !b.Serves(e.Subject) {
			unknown = append(unknown, e.Subject)
		}
	}

	who, failed := fmt.Sprintf("bridge %s, version %s", b.ID, b.Version), d.failed
	if len(unknown) > 0 {
		d.report(wrong, "subjects", who+", does not serve "+firstOf(unknown, 200, false),
			"upgrade it, or name its prefixes with --prefix and --fifo-prefix")
	}

	at, err := time.Parse(subjects.TimeLayout, b.Metadata[subjects.MetadataTime])
	if ahead := skew(at, b.Asked, b.Arrived); err == nil && ahead.Abs() > maxSkew {
		d.report(wrong, "clocks", fmt.Sprintf("%s, is %v ahead of the clock here", who,
			ahead.Round(time.Millisecond)), "let NTP set the clocks of the bridges and of this "+
			"machine: leases, delays and expiry go by those of the bridges")
	}

	jetStream := b.Metadata[subjects.MetadataJetStream]
	if jetStream != "" && jetStream != subjects.MetadataConnected {
		d.report(wrong, "jetstream", who+", does not serve JetStream's programs: "+jetStream,
			"look at PQ_JETSTREAM_LEAF_URL, at the leafnodes block of the NATS server, "+
				"and at the logs of both")
	}

	if d.failed == failed {
		text := who + ", its clock less than a second off"
		if jetStream != "" {
			text += ", connected for JetStream's programs"
		}
		d.report(fine, "bridge", text, "")
	}
}

// skew returns how far a clock is ahead, at least: it was read at some time between two others.
func skew(at, asked, arrived time.Time) time.Duration {
	return max(at.Sub(arrived), 0) + min(at.Sub(asked), 0)
}

func (d *diagnosis) checkStore(s *session) {
	began := time.Now()
	if _, err := s.client.ListPriorityQueues(s.usable, "", 0); err != nil {
		list := subjects.Request{Kind: subjects.Priority, Verb: subjects.List}
		d.reportUnanswered("store", list, err)
		return
	}
	took := time.Since(began).Round(10 * time.Microsecond)
	d.report(fine, "store", fmt.Sprintf("it answers in %v", took), "")
}

// checkQueue asks a queue harmless questions. A user who may only push to it may ask none.
func (d *diagnosis) checkQueue(s *session) {
	q := &d.queue
	s.use(q)
	began := time.Now()
	n, err := s.queue.Len(s.usable)
	took := time.Since(began).Round(10 * time.Microsecond)
	if err == nil {
		d.report(fine, "queue",
			fmt.Sprintf("%s answers in %v: %s", q.name, took, items(n, "ready")), "")
		if info, err := s.queue.Info(s.usable); err == nil && info.Source != nil {
			r, toDo := fine, ""
			if info.Source.Stopped+info.Source.Waiting != "" {
				r, toDo = wrong, "see the guide to sources, and pq config"
			}
			d.report(r, "source", info.Source.String(), toDo)
		}
		if text := s.suggest(s.usable); text != "" {
			d.report(notable, "queue", text, "push something, if the name is right")
		}
		return
	}

	length := subjects.Request{Kind: q.kind(), Verb: subjects.Len, Queue: q.name}
	d.reportUnanswered("queue", length, err)
}

// reportUnanswered reports that a request failed.
func (d *diagnosis) reportUnanswered(check string, request subjects.Request, err error) {
	subject, _ := d.grammar.Build(request) // whose name has been checked
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		d.report(notable, check, "it cannot be tried: "+err.Error(),
			"allow "+subject+" to see it here")
	case errors.Is(err, client.ErrNoBridge):
		d.report(wrong, check, "no bridge takes requests on "+subject,
			"see above; one that waits for its store or for another bridge "+
				"says so in its log and at /readyz")
	default:
		d.report(wrong, check, err.Error(), "look at the log of pqbridge, and at /readyz")
	}
}

// distinct returns the different values, sorted.
func distinct(all []discovery.Bridge, value func(discovery.Bridge) string) []string {
	var values []string
	for _, b := range all {
		values = append(values, value(b))
	}
	slices.Sort(values)
	return slices.Compact(values)
}
