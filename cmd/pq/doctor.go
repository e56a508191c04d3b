package main

import (
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
	cmd := &cobra.Command{
		Use:   "doctor [QUEUE]",
		Short: "Look for what is wrong, and say what to do",
		Long: `Look at everything that a request needs: the NATS server and the login, the
permissions, the bridges, their versions, stores and clocks, and whether the
store answers. Say for each what to do. Nothing is changed. The exit code is 1
if something is wrong. With QUEUE, the permissions are those for this queue, and
it is the queue that is asked for something.`,
		Example: `  pq doctor
  pq doctor jobs --json`,
		Args: arguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				d.queue.name = args[0]
				if err := d.queue.check(); err != nil {
					return err
				}
			} else if d.queue.fifo {
				return exit.Usagef("--fifo says what QUEUE is: name one, or leave it out")
			}
			d.out = cmd.OutOrStdout()
			return d.run(cmd.Context())
		},
	}

	d.queue.addFlags(cmd)
	cmd.Flags().BoolVar(&d.json, "json", false, "print a line of JSON for each check")
	return cmd
}

func (d *diagnosis) run(ctx context.Context) error {
	if _, err := d.grammar(); err != nil {
		return err
	}

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
		s.renew() // the server may have refused something
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
		subject := e.Subject
		if d.queue.name != "" {
			// To work on one queue, nobody needs the list.
			if e.Kind != d.queue.kind() || e.Verb == subjects.List {
				continue
			}
			subject = strings.Replace(subject, "*", d.queue.name, 1)
		}
		if !user.Permissions.Publish.Allows(subject) {
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

	versions := distinct(all, func(b discovery.Bridge) string { return b.Version })
	d.report(fine, "bridges", fmt.Sprintf("%s found, version %s",
		terminal.Plural(len(all), "bridge"), strings.Join(versions, ", ")), "")
	if len(versions) > 1 {
		d.report(notable, "versions", "they differ",
			"upgrade all bridges before you use what is new")
	}

	for i := range all {
		d.checkSubjects(s, &all[i])
	}

	d.checkTogether(all)
	d.checkClocks(all)
	d.checkJetStream(all)
}

// checkJetStream checks that bridges which serve JetStream's programs are connected for that.
func (d *diagnosis) checkJetStream(all []discovery.Bridge) {
	connected := 0
	failed := false
	for _, b := range all {
		switch said := b.Metadata[subjects.MetadataJetStream]; said {
		case "":
		case subjects.MetadataConnected:
			connected++
		default:
			failed = true
			d.report(wrong, "jetstream",
				fmt.Sprintf("bridge %s does not serve JetStream's programs: %s", b.ID, said),
				"look at PQ_JETSTREAM_LEAF_URL, at the leafnodes block of the NATS server, "+
					"and at the logs of both")
		}
	}

	if connected > 0 && !failed {
		d.report(fine, "jetstream",
			terminal.Plural(connected, "bridge")+" connected for JetStream's programs", "")
	}
}

// checkSubjects checks that a bridge knows all requests of this pq, for the kind of the queue or
// for both kinds.
func (d *diagnosis) checkSubjects(s *session, b *discovery.Bridge) {
	var unknown []string
	for _, kind := range []subjects.Kind{subjects.Priority, subjects.FIFO} {
		if d.queue.name != "" && kind != d.queue.kind() {
			continue
		}

		var missing []string
		known := false
		for _, e := range s.grammar.Endpoints() {
			switch {
			case e.Kind != kind:
			case b.Serves(e.Subject):
				known = true
			default:
				missing = append(missing, e.Subject)
			}
		}

		if known {
			unknown = append(unknown, missing...)
		} else {
			d.report(wrong, "subjects", fmt.Sprintf("bridge %s serves nothing like %s", b.ID,
				missing[0]), "name its prefixes with --prefix and --fifo-prefix")
		}
	}

	if len(unknown) > 0 {
		d.report(wrong, "versions", fmt.Sprintf("bridge %s, version %s, does not know %s", b.ID,
			b.Version, strings.Join(unknown, ", ")), "upgrade it")
	}
}

// checkTogether checks that the bridges can serve the same subjects.
func (d *diagnosis) checkTogether(all []discovery.Bridge) {
	unknown := 0
	stores := distinct(all, func(b discovery.Bridge) string {
		if b.Metadata[subjects.MetadataStore] == "" {
			unknown++
		}
		return b.Metadata[subjects.MetadataStore]
	})

	groups := distinct(all, func(b discovery.Bridge) string {
		if len(b.Endpoints) == 0 {
			return ""
		}
		return b.Endpoints[0].QueueGroup
	})

	switch {
	case unknown > 0:
		d.report(notable, "stores",
			terminal.Plural(unknown, "bridge")+" of an earlier version: the store is unknown",
			"upgrade all bridges")
	case len(stores) > 1:
		d.report(wrong, "stores",
			fmt.Sprintf("%d stores: each bridge has only some of the items", len(stores)),
			"let the bridges share one FoundationDB, or give them different subject prefixes")
	default:
		d.report(fine, "stores", "one store", "")
	}

	if len(groups) > 1 {
		d.report(wrong, "groups",
			"queue groups "+strings.Join(groups, ", ")+": each request would be run more than once",
			"set the same PQ_QUEUE_GROUP everywhere")
	}
}

// maxSkew is how far clocks may be apart.
const maxSkew = time.Second

// checkClocks compares the clocks of the bridges with the one here, and so with each other.
func (d *diagnosis) checkClocks(all []discovery.Bridge) {
	var least, most time.Duration
	known := 0
	for _, b := range all {
		at, err := time.Parse(subjects.TimeLayout, b.Metadata[subjects.MetadataTime])
		if err != nil {
			continue
		}
		ahead := skew(at, b.Asked, b.Arrived)
		if known++; known == 1 {
			least, most = ahead, ahead
		}
		least, most = min(least, ahead), max(most, ahead)
	}

	const toDo = "let NTP set the clocks: leases, delays and expiry go by those of the bridges"
	switch {
	case known == 0:
		d.report(notable, "clocks", "no bridge says what its clock says", "upgrade the bridges")
	case most-least > maxSkew:
		d.report(wrong, "clocks", fmt.Sprintf("those of the bridges are %v apart",
			(most-least).Round(time.Millisecond)), toDo)
	case max(most, -least) > maxSkew:
		d.report(notable, "clocks", fmt.Sprintf("the bridges are %v ahead of the clock here",
			most.Round(time.Millisecond)), toDo)
	default:
		d.report(fine, "clocks", "less than a second apart", "")
	}
}

// skew returns how far a clock is ahead, at least: it was read at some time between two others.
func skew(at, asked, arrived time.Time) time.Duration {
	switch {
	case at.After(arrived):
		return at.Sub(arrived)
	case at.Before(asked):
		return at.Sub(asked)
	}
	return 0
}

func (d *diagnosis) checkStore(s *session) {
	began := time.Now()
	if _, err := s.client.ListPriorityQueues(s.usable, "", 0); err != nil {
		d.reportUnanswered(s, "store", s.endpoint(subjects.List, subjects.Priority), err)
		return
	}
	d.report(fine, "store", "it answers in "+roundTrip(began), "")
}

// checkQueue asks a queue harmless questions. A user who may only push to it may ask none.
func (d *diagnosis) checkQueue(s *session) {
	q := &d.queue
	s.use(q)
	began := time.Now()
	n, err := s.queue.Len(s.usable)
	if err == nil {
		d.report(fine, "queue",
			fmt.Sprintf("%s answers in %s: %s", q.name, roundTrip(began), items(n, "ready")), "")
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

	subject := strings.Replace(s.endpoint(subjects.Len, q.kind()), "*", q.name, 1)
	d.reportUnanswered(s, "queue", subject, err)
}

// roundTrip is the time since then.
func roundTrip(began time.Time) string {
	return time.Since(began).Round(10 * time.Microsecond).String()
}

// reportUnanswered reports that a request on a subject failed.
func (d *diagnosis) reportUnanswered(s *session, check, subject string, err error) {
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		d.report(notable, check, "it cannot be tried: "+err.Error(),
			"allow "+subject+" to see it here")
	case errors.Is(err, client.ErrNoBridge):
		d.report(wrong, check, "no bridge takes requests on "+subject,
			"see above; one that waits for its store or for another bridge "+
				"says so in its log and at /readyz")
	case errors.Is(err, client.ErrUnavailable):
		d.report(wrong, check, err.Error(), "look at the log of pqbridge, and at /readyz")
	default:
		d.report(wrong, check, err.Error(), "look at the log of pqbridge")
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
