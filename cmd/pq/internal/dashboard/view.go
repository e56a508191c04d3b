package dashboard

import (
	"net/url"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

const (
	// A page asks for itself every refreshTime, or every soonTime while what it shows is
	// incomplete.
	refreshTime = 2 * time.Second
	soonTime    = 500 * time.Millisecond
	// All requests of a page together may take pageTime. With refreshTime, that is how late an open
	// page says that nothing answers.
	pageTime = 7 * time.Second
)

// The structs of this file and of pages.go are what the templates show. They hold raw numbers,
// times and bytes, which the templates format. A nil pointer means that a number is not known, and
// is shown as a dash.

// shell is what every page has besides its view.
type shell struct {
	// Title is the name of the page, such as a queue. Nav is the page marked in the
	// navigation: "queues", "dead", "busy", "schedules", "bridges", or "" for none.
	Title, Nav string
	// Now is when the view was made; ages are relative to it. AsOf is the time of what it shows.
	Now, AsOf time.Time
	// Refresh is how long until the page asks for itself again, 0 if it does not.
	Refresh time.Duration
	// User is who the NATS user or the proxy says is there, "" if that is not known.
	User string
	// Server is the NATS server, as shown: without credentials.
	Server string
	// Job is the id of a job that was asked for, "" if none was.
	Job string
	// LogOut offers to end the session of the token.
	LogOut bool
	// HideValues says that values and headers of items are not shown, and Value fields are nil.
	HideValues bool
	Status     status
	// V is the view.
	V any
}

// with returns the shell of another view.
func (s shell) with(view any) shell {
	s.V = view
	return s
}

// status is how the dashboard is connected: State is "connected", "away" (no NATS, or no bridge
// answers) or "denied", and Text says why, in the words of the client.
type status struct{ State, Text string }

// Says reports whether the top of the page says this already.
func (s status) Says(why string) bool { return strings.HasPrefix(s.Text, why) }

// queueRef is a queue.
type queueRef struct {
	Kind string // see subjects.Kind.Short
	Name string
}

// refOf returns a queue that a request names. Its figures are kept by its name, which must not keep
// the request or the form that it is a part of.
func refOf(kind, name string) queueRef {
	return queueRef{strings.Clone(kind), strings.Clone(name)}
}

// refTo returns the queue of that kind and name.
func refTo(fifo bool, name string) queueRef {
	if fifo {
		return queueRef{subjects.FIFO.Short(), name}
	}
	return queueRef{subjects.Priority.Short(), name}
}

// Path is the address of its page.
func (q queueRef) Path() string {
	return "/queue/" + url.PathEscape(q.Kind) + "/" + url.PathEscape(q.Name)
}

// Items is the address of its items in a state, "" for all.
func (q queueRef) Items(state string) string {
	if state == "" {
		return q.Path() + "/items"
	}
	return q.Path() + "/items?state=" + url.QueryEscape(state)
}

// Cause is the address of its dead letters of a cause.
func (q queueRef) Cause(cause string) string {
	return q.Path() + "/items?cause=" + url.QueryEscape(cause)
}

// Group is the address of its items of a group.
func (q queueRef) Group(group string) string {
	return q.Path() + "/items?header=" + url.QueryEscape(subjects.HeaderGroup+": "+group)
}

// navOf is the page marked in the navigation on the pages of a queue.
func navOf(q queueRef) string {
	if strings.HasSuffix(q.Name, settings.DeadSuffix) {
		return "dead"
	}
	return "queues"
}

// Named is another queue of the same kind.
func (q queueRef) Named(name string) queueRef { return queueRef{q.Kind, name} }

// Item is the address of one of its items.
func (q queueRef) Item(id string) string { return q.Path() + "/item/" + url.PathEscape(id) }

// ElementID is the id of its row in a page.
func (q queueRef) ElementID() string { return q.Kind + "." + q.Name }

// FIFO reports whether its items have no priorities.
func (q queueRef) FIFO() bool { return q.Kind == subjects.FIFO.Short() }

// can is what the NATS user may do to a queue. The zero value may look.
type can struct {
	Push, Config, Purge, Remove, Move, Redrive, Release, Schedule, Unschedule bool
}

// Any reports whether there is any action on items.
func (c can) Any() bool { return c.Remove || c.Move || c.Redrive || c.Release }

// counts are the figures of a queue, or of several together.
type counts struct {
	// Known is false while nobody has said how many items there are. Pages show IfKnown.
	Known                  bool
	Ready, Leased, Delayed int64
	// Dead is how many items are in its dead-letter queue.
	Dead *int64
	// Oldest is the age of the oldest ready item, nil if there is none.
	Oldest *time.Duration
	traffic
	// Line is how many items were ready lately, at even intervals, oldest first, up to 60 numbers.
	Line []float64
}

// IfKnown returns one of the numbers of items, nil while they are not known.
func (c *counts) IfKnown(n int64) *int64 {
	if !c.Known {
		return nil
	}
	return &n
}

// All is how many items are in the queue.
func (c *counts) All() int64 { return c.Ready + c.Leased + c.Delayed }

// pager links to the parts of a long table. "" is no link.
type pager struct {
	First, Prev, Next string
	// From and To are the places of the rows shown, from 1; 0 if they are not known.
	From, To int64
}

// traffic is what bridges say of a queue, or of all together.
type traffic struct {
	// In, Out and Failed are pushes, pops and failed deliveries a second.
	In, Out, Failed *float64
	// Waiting is how many pops wait for items.
	Waiting *int64
}

// past is what bridges have counted of a queue, or of all together.
type past struct {
	Counted *subjects.Windows
	// Since is from when on nothing is missing: the latest of what these bridges say.
	Since time.Time
	// Denied says why the bridges cannot be asked.
	Denied string
}

func shorten(text string) string {
	if len(text) > 100 {
		text = strings.ToValidUTF8(text[:100], "") + "..."
	}
	return text
}
