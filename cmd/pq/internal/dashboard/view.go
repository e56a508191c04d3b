package dashboard

import (
	"cmp"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// The structs of this file are what the templates show. They hold raw numbers, times and bytes,
// which the templates format. A nil pointer means that a number is not known, and is shown as a
// dash.

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

// Page "queues".
type queuesView struct {
	// Filter is what names must contain, Kind "pq", "q" or "" for both.
	Filter, Kind string
	// Sort is a column: "name", "ready", "leased", "delayed", "dead", "oldest", "in" or "out".
	Sort string
	Desc bool
	// Total counts all queues except dead-letter queues, Matching the queues that match the filter.
	Total, Matching int
	// More says that there may be more, because as many as can be are listed.
	More bool
	// Sum is of all queues.
	Sum counts
	// InLine, OutLine and FailedLine are rates of all queues, as counts.Line, and Past is of all.
	InLine, OutLine, FailedLine []float64
	Past                        past
	Rows                        []queueRow // at most 100
	Pager                       pager
	// Denied says why the queues cannot be listed.
	Denied string

	asOf time.Time
}

// queueRow is a queue of the list.
type queueRow struct {
	queueRef
	counts
	// DeadQueue is its dead-letter queue, if that has items. IsDead says that it is one itself.
	DeadQueue *queueRef
	IsDead    bool
	// Paused says that pops are paused, PausedUntil the end of that. PausedGroups is how many
	// groups are.
	Paused       bool
	PausedUntil  time.Time
	PausedGroups int
}

// Page "queue".
type queueView struct {
	queueRow
	Can  can
	Past past
	// Exists is false for a queue without items, settings and consumers. Denied says why it cannot
	// be read, and Err why nothing is known of it.
	Exists bool
	Denied string
	Err    error
	// Info is what the bridge says, nil if it did not.
	Info *client.QueueInfo
	// CountsChart has ready, leased and delayed items, RatesChart pushes and pops.
	CountsChart, RatesChart series
	details
	// DetailsUnknown says that no bridge has said them now.
	DetailsUnknown bool
	// Push has the fields value, priority, delay, ttl, headers (lines of "Name: value"), group,
	// msg_id and unique, Pause has for and group, and Config a field for each setting.
	Push, Pause, Config form
	// Settings is the editor of settings: see settingsOf.
	Settings map[string][]settingRow

	asOf time.Time
}

// series is a chart. It is the JSON of the attribute data-series.
type series struct {
	ID    string       `json:"id"`    // "counts" or "rates"
	At    []int64      `json:"at"`    // in seconds since 1970
	Names []string     `json:"names"` // of the lines
	Lines [][]*float64 `json:"lines"` // as many numbers as At; nil is a gap
}

// settingRow is a setting. Its input has its name, and a hidden one with beforePrefix the value
// when it was rendered. If a change failed, the form has both.
type settingRow struct {
	*settings.Setting
	// Value is the text as pq config reads it, "" if it is not set. Without is the default, "" for
	// none.
	Value, Without string
}

// itemsFilter is what the form above a list of items asks for.
type itemsFilter struct {
	State subjects.State // "" for all
	End   string         // "min" or "max"
	Match string
	// Header is "Name: value", as typed.
	Header string
	// Cause selects the dead letters of a cause, "" any items.
	Cause string
	// Slowest selects the slowest of the newest finished jobs.
	Slowest bool
	// Error is a mistake in one of them, in the bridge's words.
	Error string
}

// Text is what it looks for.
func (f itemsFilter) Text() string {
	return strings.TrimSpace(strings.Join([]string{f.Match, f.Header, f.Cause}, " "))
}

// IsSearch reports whether the items have to be searched for.
func (f itemsFilter) IsSearch() bool { return f.Text() != "" }

// Page "items".
type itemsView struct {
	Queue  queueRef
	Can    can
	IsDead bool // the items are dead letters
	// Counts are the figures of the queue, and DeadQueue is where its dead letters are, if it has
	// any.
	Counts    counts
	Finished  *int64 // jobs that are kept, nil while that is not known
	KeepsNone bool   // the queue keeps no job unless its push asks for it
	DeadQueue *queueRef
	Filter    itemsFilter
	Rows      []itemRow
	Pager     pager
	// Search is the search whose matches are shown, nil for a plain look.
	Search *searchView
	// Durations says how long the newest finished jobs took, nil if that is not known.
	Durations *durations
	// Err is why there are no items, such as that the user may not look at them.
	Err error
}

// itemRow is an item of a queue. Dead is set for a dead letter, and Can where the row has actions.
type itemRow struct {
	Queue queueRef
	Can   can
	subjects.StoredItem
	Dead *subjects.DeadLetter
	// Type is its header of that name, "" without one and where values are hidden.
	Type string
}

// Tries is how many deliveries it has had, a dead letter before it died.
func (r itemRow) Tries() int64 {
	if r.Dead != nil {
		return r.Dead.Deliveries
	}
	return r.Deliveries
}

// Cause is the cause of a dead letter, as the page of all dead letters has it.
func (r itemRow) Cause() string { return target.Fold(cmp.Or(r.Dead.Error, r.Dead.Reason)) }

// IsDead reports whether it is a dead letter.
func (r itemRow) IsDead() bool { return r.Dead != nil }

// Why is why it is a dead letter or, if it is none, the last reason that anybody gave.
func (r itemRow) Why() string {
	switch {
	case r.Dead == nil:
		return r.Reason
	case r.Dead.Error == "" || r.Dead.Error == r.Dead.Reason:
		return r.Dead.Reason
	case r.Dead.Reason == "max_deliver": // as most of them
		return r.Dead.Error
	}
	return r.Dead.Reason + ": " + r.Dead.Error
}

// searchView is a search and how far it is.
type searchView struct {
	ID string
	// Scanned of about Total items were looked at, and Found match.
	Scanned, Total, Found int64
	// Running, or else Stopped by somebody, Full because it found as much as is kept, or done.
	Running, Stopped, Full bool
	Error                  string
}

// Page "item".
type itemView struct {
	itemRow
	// Gone says, in the words of the bridge, why the item cannot be shown, such as that it is not
	// in the queue.
	Gone string
	// Rank is how many items would be served before it, nil unless it is ready.
	Rank *int64
	// As is how the value is shown: "text", "json", "hex", or "" for the best.
	As string
	// Search is the search that led here, "" without one.
	Search string
}

// Page "bridges".
type bridgesView struct {
	Rows []bridgeRow
	// Denied says why the bridges cannot be asked.
	Denied string
}

// bridgeRow is a bridge, in its own words and as it was seen.
type bridgeRow struct {
	micro.Stats
	subjects.BridgeStats
	Host      string    // "" if it did not say it
	Seen      time.Time // when it last answered
	Gone      bool      // it no longer answers
	PerSecond *float64  // requests
	// Requests and Errors are those since it started.
	Requests, Errors int64
	LastError        string
}

// Pages "confirm" and "done", or dialogs: an action on items that waits for a yes after a dry run,
// and then its result.
type actionView struct {
	// Action is the last part of the address to post to: remove, move, redrive, release or purge.
	Action string
	Queue  queueRef
	// IDs or Search or State (of a purge) say which items; they are posted back, without dry. Count
	// is how many they are, and Sample has some of them.
	IDs    []string
	Search string
	State  subjects.State
	Count  int64
	Sample []itemRow
	// Back is the page to go to then, "" for the list of the items.
	Back string
	// Priority of a move, and Name of the queue to purge, are as typed. Least is the smallest
	// priority of a ready item, nil if there is none.
	Priority, Name string
	Least          *int64
	// Error is a mistake in the input or, once the action ran, why it ended early.
	Error string

	// Done is how many items it was done to. Failures are the ids of the others, by what the bridge
	// says, and Homes is how many dead letters went to each queue.
	Done     int64
	Failures map[string][]string
	Homes    map[string]int64

	found string // what was searched for or purged, for the log
}
