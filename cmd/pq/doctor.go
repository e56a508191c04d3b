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
	"github.com/pqbridge/pqbridge/cmd/internal/buildinfo"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/discovery"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects"
)

// diagnosis is the command line of pq doctor, and what it has found.
type diagnosis struct {
	queue  // its name is "" unless one is named
	failed int
	err    error // of printing
}

func newDoctor(a *app) *cobra.Command {
	d := &diagnosis{queue: queue{app: a}}
	cmd := d.command(&cobra.Command{
		Use:   "doctor [QUEUE]",
		Short: "Look for what is wrong, and say what to do",
		Long: `Check everything that a request needs: the NATS server and the login, the
permissions, the bridges, their versions, stores and clocks, and whether the
store answers. Say what to do about each problem. Nothing is changed. The exit
code is 1 if something is wrong. With QUEUE, check the permissions for this
queue, and whether this queue answers.`,
		Example: "  pq doctor jobs --json",
	}, func([]string) error {
		if d.fifo && d.name == "" {
			return exit.Usagef("--fifo says what QUEUE is: name a queue, or leave out --fifo")
		}
		return d.run(d.cmd.Context())
	})
	d.addJSON("print a line of JSON for each check")
	return cmd
}

func (d *diagnosis) run(ctx context.Context) error {
	s, err := d.open(ctx)
	if err != nil {
		if ctx.Err() != nil || errors.As(err, new(exit.Error)) {
			return err
		}
		d.report(wrong, "nats", err.Error(), "")
		return d.verdict()
	}

	defer s.nc.Close()
	last := d.checkStore
	if d.name != "" {
		last = d.checkQueue
	}

	checks := []func(context.Context, *session){
		d.checkServer, d.checkPermissions, d.checkBridges, last,
	}
	for _, check := range checks {
		if check(ctx, s); ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if d.err != nil {
			break
		}
	}

	return d.verdict()
}

func (d *diagnosis) checkServer(_ context.Context, s *session) {
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
func (d *diagnosis) checkPermissions(ctx context.Context, s *session) {
	user, err := discovery.LoggedIn(ctx, s.nc)
	if err != nil {
		d.report(notable, "permissions", "they cannot be looked up: "+err.Error(),
			"allow "+discovery.UserSubject+" to see them here")
		return
	}

	var refused []string
	for _, e := range s.grammar.Endpoints() {
		subject := strings.Replace(e.Subject, "*", cmp.Or(d.name, "QUEUE"), 1)
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
	return d.name == "" || e.Kind == d.kind() && e.Verb != subjects.List
}

func (d *diagnosis) checkBridges(ctx context.Context, s *session) {
	all, err := discovery.Bridges(ctx, s.nc, s.grammar)
	if err != nil {
		d.reportUnanswered("bridges", "$SRV.INFO.pqbridge", err)
		return
	}

	d.report(fine, "bridges", terminal.Plural(len(all), "bridge")+" found", "")
	for _, b := range all {
		d.checkBridge(s, b)
	}

	for _, same := range []struct {
		result, check, say, toDo string
		of                       func(*discovery.Bridge) string
	}{
		{notable, "versions", "the versions differ",
			"upgrade all bridges before you use what is new",
			func(b *discovery.Bridge) string { return b.Version }},
		{wrong, "stores", "they differ: each bridge has only some of the items",
			"let the bridges share one FoundationDB, or give them different subject prefixes",
			func(b *discovery.Bridge) string { return b.Metadata[subjects.MetadataStore] }},
		{wrong, "groups", "the queue groups differ: each request would be run more than once",
			"set the same PQ_QUEUE_GROUP everywhere",
			func(b *discovery.Bridge) string { return b.QueueGroup() }},
	} {
		// A bridge that waits for its store does not know yet which one that is.
		values := slices.DeleteFunc(distinct(all, same.of), func(v string) bool { return v == "" })
		if len(values) > 1 {
			d.report(same.result, same.check, same.say+": "+strings.Join(values, ", "), same.toDo)
		}
	}
}

// maxSkew is how far clocks may be apart.
const maxSkew = time.Second

// checkBridge checks what a bridge says about itself: that it is ready, that it knows all requests
// of this pq, its clock, and that it is connected for JetStream's programs if it is to serve them.
func (d *diagnosis) checkBridge(s *session, b *discovery.Bridge) {
	var unknown []string
	for _, e := range s.grammar.Endpoints() {
		if d.concerns(e) && !b.Serves(e.Subject) {
			unknown = append(unknown, e.Subject)
		}
	}

	who, failed := describe(b), d.failed
	if len(unknown) > 0 {
		d.report(wrong, "subjects", who+", does not serve "+firstOf(unknown, 200, false),
			"upgrade it, or name its prefixes with --prefix and --fifo-prefix")
	}

	if mine := buildinfo.Number(version); buildinfo.IsOlder(b.Version, mine) {
		d.report(notable, "versions", who+", is older than this pq, version "+mine+
			`: it refuses what it does not know, with an error such as unknown member "holder"`,
			"upgrade it, or use the pq that came with it")
	}

	if why := b.Metadata[subjects.MetadataNotReady]; why != "" {
		toDo := "look at the log of that pqbridge, which begins with its id, and at its /readyz"
		if strings.Contains(why, "disk full") { // the reason is a text, for people
			toDo = "free space on the disk of its store. Workers go on meanwhile"
		}
		d.report(wrong, "ready", who+", is not ready: "+why, toDo)
	}

	at, err := time.Parse(subjects.TimeLayout, b.Metadata[subjects.MetadataTime])
	if ahead := skew(at, b.Asked, b.Arrived); err == nil && ahead.Abs() > maxSkew {
		side := "ahead of"
		if ahead < 0 {
			side = "behind"
		}
		what := fmt.Sprintf("%s, has a clock that is %v %s the one here", who,
			ahead.Abs().Round(time.Millisecond), side)
		d.report(wrong, "clocks", what, "let NTP set the clocks of the bridges and of this "+
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

// describe says which bridge it is, and where it runs.
func describe(b *discovery.Bridge) string {
	where := ""
	if host := b.Metadata[subjects.MetadataHost]; host != "" {
		where = " on " + host
	}
	if process := b.Metadata[subjects.MetadataProcess]; process != "" {
		where += ", process " + process
	}
	return fmt.Sprintf("bridge %s%s, version %s", b.ID, where, b.Version)
}

// skew returns how far a clock is ahead, at least: it was read at some time between two others.
func skew(at, asked, arrived time.Time) time.Duration {
	return max(at.Sub(arrived), 0) + min(at.Sub(asked), 0)
}

func (d *diagnosis) checkStore(ctx context.Context, s *session) {
	began := time.Now()
	if _, err := s.client.ListPriorityQueues(ctx, "", 0); err != nil {
		d.reportUnanswered("store", d.subject(subjects.Priority, subjects.List), err)
		return
	}
	d.report(fine, "store", "it answers in "+since(began), "")
}

// since is how long something took.
func since(began time.Time) string {
	return time.Since(began).Round(10 * time.Microsecond).String()
}

// subject returns the subject of a request, to the named queue if it is for a queue.
func (d *diagnosis) subject(kind subjects.Kind, verb subjects.Verb) string {
	subject, _ := d.grammar.Build(subjects.Request{Kind: kind, Verb: verb, Queue: d.name})
	return subject // the name has been checked
}

// checkQueue asks a queue harmless questions. A user who may only push to it may ask none.
func (d *diagnosis) checkQueue(ctx context.Context, s *session) {
	began := time.Now()
	n, err := s.queue.Len(ctx)
	if err != nil {
		d.reportUnanswered("queue", d.subject(d.kind(), subjects.Len), err)
		return
	}

	d.report(fine, "queue", fmt.Sprintf("%s answers in %s: %s", d.name, since(began),
		items(n, "ready")), "")
	if info, err := s.queue.Info(ctx); err == nil && info.Source != nil {
		r, toDo := fine, ""
		if info.Source.Stopped+info.Source.Waiting != "" {
			r, toDo = wrong, "see the guide to sources, and pq config"
		}
		d.report(r, "source", info.Source.String(), toDo)
	}
	if text := s.suggest(ctx, ""); text != "" {
		d.report(notable, "queue", text, "push something, if the name is right")
	}
}

// reportUnanswered reports that a request failed.
func (d *diagnosis) reportUnanswered(check, subject string, err error) {
	result, text, toDo := wrong, err.Error(), "look at the log of pqbridge, and at /readyz"
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		result, text = notable, "it cannot be tried: "+text
		toDo = "allow " + subject + " to see it here"
	case errors.Is(err, discovery.ErrOthers):
		toDo = "start pqbridge, or name its prefixes with --prefix and --fifo-prefix"
	case errors.Is(err, client.ErrNoBridge) && check == "bridges":
		text = "no bridge answers"
		toDo = "start pqbridge, or log in to the account that it uses (pq help connection)"
	case errors.Is(err, client.ErrNoBridge):
		text = "no bridge takes requests on " + subject
		toDo = "see above; one that waits for its store or for another bridge says so in its log " +
			"and at /readyz"
	}
	d.report(result, check, text, toDo)
}

// distinct returns the different values, sorted.
func distinct(all []*discovery.Bridge, value func(*discovery.Bridge) string) []string {
	var values []string
	for _, b := range all {
		values = append(values, value(b))
	}
	slices.Sort(values)
	return slices.Compact(values)
}
