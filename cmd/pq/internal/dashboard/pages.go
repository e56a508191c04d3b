package dashboard

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
	"github.com/pqbridge/pqbridge/subjects/trail"
)

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
	// Hour has the queues of which most has failed in the last hour, at most 10, and Most the
	// largest of their numbers.
	Hour  []hourRow
	Most  subjects.Traffic
	Rows  []queueRow // at most 100
	Pager pager
	// Denied says why the queues cannot be listed.
	Denied string

	asOf time.Time
}

// hourRow is what became of the items of a queue in the last hour.
type hourRow struct {
	queueRef
	subjects.Traffic
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
	// Durations says how long the newest finished jobs took, nil if that is not known.
	Durations *durations
	// Push has the fields value, priority, delay, ttl, headers (lines of "Name: value"), group,
	// msg_id and unique, Pause has for and group, and Config a field for each setting.
	Push, Pause, Config form
	// Settings is the editor of settings: see settingsOf.
	Settings map[string][]settingRow

	asOf time.Time
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
	// Parent is the job that has pushed it, nil if that is not known.
	Parent *trail.Job
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

// Ref names it in a form: target.Ref.
func (r itemRow) Ref() string { return target.Ref(&r.StoredItem) }

// IsDone reports whether it lists finished jobs.
func (v *itemsView) IsDone() bool { return v.Filter.State == subjects.StateDone }

// IsDone reports whether it is a finished job.
func (r itemRow) IsDone() bool { return r.State == subjects.StateDone }

// IsLeased reports whether it lists leased items, which nothing can move.
func (v *itemsView) IsLeased() bool { return v.Filter.State == subjects.StateLeased }

// IsLeased reports whether it is leased.
func (r itemRow) IsLeased() bool { return r.State == subjects.StateLeased }

// Took is how long the last lease of a finished job was, nil if that is not known.
func (r itemRow) Took() *time.Duration { return target.Took(&r.StoredItem) }

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
	// Chain has the jobs that have pushed it, and what it has pushed: see target.Chain.
	Chain []chainRow
}

// chainRow is a job of the chain of another one.
type chainRow struct {
	Queue queueRef // that it was pushed to
	ID    string
	// Indent is how far below the first of the chain it is, and More how many of the jobs that it
	// has pushed are not in the chain.
	Indent, More int
	// Standing is what target.Kin.Standing says.
	Standing string
	// IsSelf says that it is the job of the page, and IsOpen that the chain waits for it.
	IsSelf, IsOpen bool
}

// lifeMark is a part of the line of time of a job: an attempt, or the begin of a life. X and Width
// are in percent.
type lifeMark struct {
	X, Width float64
	Class    string
}

// Line returns the line of time of the attempts. It begins with the first push or, if that is not
// known, with the first attempt.
func (v *itemView) Line() (marks []lifeMark) {
	all := v.Attempts
	if len(all) == 0 {
		return nil
	}
	begin, whole := target.FirstPush(v.ID), time.Duration(0)
	if begin.IsZero() {
		begin = cmp.Or(all[0].From, all[0].To)
	}
	for i := range all { // the clocks of bridges differ
		whole = max(whole, all[i].To.Sub(begin))
	}

	const least = 0.5 // percent, or nobody would see it
	place := func(t time.Time) float64 {
		return (100 - least) * float64(min(max(t.Sub(begin), 0), whole)) / float64(max(whole, 1))
	}
	for i := range all {
		a := &all[i]
		mark := lifeMark{X: place(a.To), Width: least, Class: string(a.How)}
		if target.Length(a) != nil {
			mark.X = place(a.From)
			mark.Width = max(place(a.To)-mark.X, least)
		}
		if i == 0 || a.Life != all[i-1].Life {
			marks = append(marks, lifeMark{X: mark.X, Width: least / 2, Class: "life"})
		}
		marks = append(marks, mark)
	}
	return marks
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

// Page "dead".
type deadView struct {
	// Queues is how many dead-letter queues there are, Total the number of their items.
	Queues int
	Total  int64
	// Counted is how many of them have the causes below, so far while it is Running.
	Counted int64
	// Denied says why some queues cannot be read.
	Denied string
	// Causes are those with the most letters, of the target.MaxLetters that a scan looks at, and
	// Recent the same of the letters of the last hour. IsRecent says that the page shows these.
	Causes, Recent []deadCause
	IsRecent       bool
	scanState
}

// deadCause is dead letters of one queue with one cause.
type deadCause struct {
	target.Cause
	Can can
}

// In is the dead-letter queue.
func (c *deadCause) In() queueRef { return refTo(c.FIFO, c.Queue) }

// From is the queue that they came from, or In if these are several.
func (c *deadCause) From() queueRef { return c.In().Named(cmp.Or(c.Home, c.Queue)) }

// ElementID is the id of its row in a page.
func (c *deadCause) ElementID() string {
	return fmt.Sprintf("d-%.8x", sha256.Sum256(fmt.Append(nil, c.In(), c.Text)))
}

// Page "busy".
type busyView struct {
	// Total is how many items are leased. Counted were looked at, so far while it is Running.
	Total, Counted int64
	// Rows are the items leased longest, at most 100.
	Rows []itemRow
	// Denied says why some queues cannot be read.
	Denied string
	// Waiting is how many pops wait for items.
	Waiting *int64
	scanState
}

// Page "schedules".
type schedulesView struct {
	Count int
	Rows  []scheduleRow // at most 100 of Count, those that fire next first
	Pager pager
	// More says that there are more than are kept, of queues that were not asked.
	More bool
	// Asked of Queues queues have said their schedules, so far while it is Running.
	Asked, Queues int64
	// Denied says why some queues cannot be asked. CanAdd offers to add a schedule.
	Denied string
	CanAdd bool
	scanState
}

// scheduleRow is a schedule of a queue, whose items wait if QueuePaused. It has no value and
// headers.
type scheduleRow struct {
	Queue       queueRef
	QueuePaused bool
	Can         can
	*client.ScheduleRecord
}

// Path is the address of its page.
func (r scheduleRow) Path() string {
	query := url.Values{"kind": {r.Queue.Kind}, "queue": {r.Queue.Name}, "id": {r.ID}}
	return "/schedule?" + query.Encode()
}

// Page "schedule": the form that sets one.
type scheduleView struct {
	Queue queueRef
	Can   can
	// Record is the schedule that there is, nil if it is not known.
	Record *client.ScheduleRecord
	// Before is what each input was when the form was made, in a hidden one with beforePrefix; nil
	// for a new schedule. It lacks inputs that are not shown: a value that is no text, and with
	// HideValues value, headers and group.
	Before map[string]string
	form
}

// KeepsValue reports whether the form leaves the value as it is, because it is no text.
func (v *scheduleView) KeepsValue() bool {
	_, isShown := v.Before["value"]
	return v.Before != nil && !isShown
}

// details are what the page of a queue shows besides its info: the first items, and the schedules,
// without any that the user may not look at.
type details struct {
	// Head has the first items outside paused groups, at most 5.
	Head []itemRow
	// Schedules fire next, at most 100, and SchedulesMore says that there are others.
	Schedules     []scheduleRow
	SchedulesMore bool
}

// durations say how long the newest finished jobs of a queue took.
type durations struct {
	target.Pace // of all
	// By has those of the slowest holders and types, by "holder" and "type".
	By map[string][]target.Pace
}

// scanState says how far to trust a result.
type scanState struct {
	Running bool  // and the result is only a part
	Err     error // of the last scan
	asOf    time.Time
}

// series is a chart. It is the JSON of the attribute data-series.
type series struct {
	ID    string       `json:"id"`    // "counts" or "rates"
	At    []int64      `json:"at"`    // in seconds since 1970
	Names []string     `json:"names"` // of the lines
	Lines [][]*float64 `json:"lines"` // as many numbers as At; nil is a gap
}
