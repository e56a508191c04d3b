package dashboard

import (
	"cmp"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/subjects"
)

// The structs of this file are what the templates show. They hold raw numbers, times and bytes,
// which the templates format. A nil pointer means that a number is not known, and is shown as a
// dash.

// shell is what every page has besides its view.
type shell struct {
	// Title is the name of the page, such as that of a queue. Nav is the page marked in the
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
	// LogOut offers to end the session of the token.
	LogOut bool
	// HideValues says that values and headers of items are not shown, and Value fields are nil.
	HideValues bool
	Status     status
}

// status is how the dashboard is connected: State is "connected", "away" (no NATS, or no bridge
// answers) or "denied", and Text says why, in the words of the client.
type status struct{ State, Text string }

// queueRef is a queue.
type queueRef struct {
	Kind string // see subjects.Kind.Short
	Name string
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
	Ready, Leased, Delayed int64
	// Dead is how many items are in its dead-letter queue.
	Dead *int64
	// Oldest is the age of the oldest ready item, nil if there is none.
	Oldest *time.Duration
	// In and Out are pushes and pops a second.
	In, Out *float64
	// Line is how many items were ready lately, at even intervals, oldest first, up to 60 numbers.
	Line []int64
}

// All is how many items are in the queue.
func (c *counts) All() int64 { return c.Ready + c.Leased + c.Delayed }

// pager links to the parts of a long table. "" is no link.
type pager struct {
	First, Prev, Next string
	// From and To are the places of the rows shown, from 1; 0 if they are not known.
	From, To int64
}

// field is an input of a form: what was typed, and what is wrong with that.
type field struct{ Value, Error string }

// form is what was typed into a form, by the names of its inputs, and the answer to that.
type form struct {
	Fields map[string]field
	// Error is what is wrong, where that concerns no single field.
	Error string
	// Done says that it has worked, such as "pushed FQEU…".
	Done string
}

// Field returns an input, empty if nothing was typed.
func (f form) Field(name string) field { return f.Fields[name] }

// Page "queues".
type queuesView struct {
	// Filter is what names must contain, Kind "pq", "q" or "" for both.
	Filter, Kind string
	// Sort is a column: "name", "ready", "leased", "delayed", "dead", "oldest", "in" or "out".
	Sort string
	Desc bool
	// Total counts all queues but those of dead letters, Matching those that match the filter.
	Total, Matching int
	// Sum is of all queues.
	Sum counts
	// InLine and OutLine are rates of all queues, as counts.Line.
	InLine, OutLine []int64
	Rows            []queueRow // at most 100
	Pager           pager
	// Denied says why the queues cannot be listed.
	Denied string
}

// queueRow is a queue of the list.
type queueRow struct {
	queueRef
	counts
	// DeadQueue is its dead-letter queue, if that has items. IsDead says that it is one itself.
	DeadQueue *queueRef
	IsDead    bool
	// Paused says that pops are paused, PausedUntil the end of that. PausedGroups are
	// the groups that are.
	Paused       bool
	PausedUntil  time.Time
	PausedGroups []string
}

// Page "queue".
type queueView struct {
	queueRow
	Can can
	// Exists is false for a queue without items, settings and consumers. Denied says why it cannot
	// be read, and Err why nothing is known of it.
	Exists bool
	Denied string
	Err    error
	// Info is what the bridge says, nil if it did not.
	Info *client.QueueInfo
	// CountsChart has ready, leased and delayed items, RatesChart pushes and pops.
	CountsChart, RatesChart series
	// Head has the first items but those of paused groups, at most 5; nil if the user may not look
	// at them.
	Head []itemRow
	// Schedules are those of the queue; nil if the user may not list them.
	Schedules []scheduleRow
	// HeadUnknown and SchedulesUnknown say that no bridge has said them now.
	HeadUnknown, SchedulesUnknown bool
	// Push has the fields value, priority, delay, ttl, headers (lines of "Name: value"), group,
	// msg_id and unique, and Pause has for and group.
	Settings    settingsForm
	Push, Pause form

	asOf time.Time
}

// series is a chart. It is the JSON of the attribute data-series.
type series struct {
	ID    string       `json:"id"`    // "counts" or "rates"
	At    []int64      `json:"at"`    // in seconds since 1970
	Names []string     `json:"names"` // of the lines
	Lines [][]*float64 `json:"lines"` // as many numbers as At; nil is a gap
}

// settingsForm is the editor of settings.
type settingsForm struct {
	Rows []settingRow
	form
}

// settingRow is a setting. Its input has its name, and a hidden one with beforePrefix what was set
// when it was rendered. If a change failed, Fields has both.
type settingRow struct {
	*settings.Setting
	// Value is what is set, as pq config reads it, Without what is in force without; "" is none.
	Value, Without string
}

// itemsFilter is what the form above a list of items asks for.
type itemsFilter struct {
	State subjects.State // "" for all
	End   string         // "min" or "max"
	Match string
	// Header is "Name: value", as typed.
	Header string
	// Cause is that of the dead letters that were looked for, "" for any items.
	Cause string
	// Error is what is wrong with one of them: the text of the bridge.
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
	// Counts are those of the queue, and DeadQueue is where its dead letters are, if it has any.
	Counts    counts
	DeadQueue *queueRef
	Filter    itemsFilter
	Rows      []itemRow
	Pager     pager
	// Search is the search whose matches are shown, nil for a plain look.
	Search *searchView
	// Err is why there are no items, such as that the user may not look at them.
	Err error
}

// itemRow is an item of a queue. Dead is set for a dead letter.
type itemRow struct {
	Queue queueRef
	subjects.StoredItem
	Dead *subjects.DeadLetter
}

// Tries is how many deliveries it has had, a dead letter before it died.
func (r itemRow) Tries() int64 {
	if r.Dead != nil {
		return r.Dead.Deliveries
	}
	return r.Deliveries
}

// Cause is that of a dead letter, as the page of all dead letters has it.
func (r itemRow) Cause() string { return target.Fold(cmp.Or(r.Dead.Error, r.Dead.Reason)) }

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

// searchView is a search, with what was found so far.
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
	Can can
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
	Seen      time.Time // when it last answered
	PerSecond *float64  // requests
	// Requests and Errors are those since it started.
	Requests, Errors int64
	LastError        string
}

// Page "login". Next is where to go then.
type loginView struct{ Next, Error string }

// Page "error": something else than what was asked for.
type errorView struct{ Title, Text string }

// actionView is an action on items of a queue.
type actionView struct {
	// Action is the last part of the address to post to: remove, move, redrive, release or purge.
	Action string
	Queue  queueRef
	// Count is how many items it concerns.
	Count int64
	// Search is what found them, "" if nothing did.
	Search string
	// Back is the page to go to then, "" for the list of the items.
	Back string
	// Priority of a move is as typed.
	Priority string
	// Error is what is wrong with what was typed or, once it ran, why it ended early.
	Error string
}

// Page "confirm", or a dialog: an action that waits for a yes, after a dry run.
type confirmView struct {
	actionView
	// IDs or Search or State (of a purge) say which ones; they are posted back, without dry.
	IDs   []string
	State subjects.State
	// Name of the queue to purge is as typed. Least is the smallest priority of a ready item, nil
	// if there is none.
	Name  string
	Least *int64
	// Sample has some of the items.
	Sample []itemRow
}

// Page "done", or a dialog: the result of an action.
type doneView struct {
	actionView
	Done int64
	// found is what was searched for or purged, for the log.
	found string
	// Failures are the ids of the others, by what the bridge says.
	Failures map[string][]string
	// Homes is how many dead letters went to each queue.
	Homes map[string]int64
}
