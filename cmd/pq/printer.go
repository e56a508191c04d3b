package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/strictjson"
	"github.com/pqbridge/pqbridge/subjects/trail"
)

// itemJSON is the help of the flag --json of commands that print items.
const itemJSON = "print it as JSON; value_base64 if it is not UTF-8"

// item is an item as --json prints it. Value is set if the bytes are UTF-8,
// Base64 otherwise.
type item struct {
	Line     int         `json:"line,omitempty"` // of pq push --lines, from 1
	Kind     string      `json:"kind,omitempty"` // of the queue, of pq find
	Queue    string      `json:"queue"`
	ID       string      `json:"id,omitempty"`
	Place    string      `json:"place,omitempty"` // if it is not the ID
	Priority *int64      `json:"priority,omitempty"`
	PushedAt string      `json:"pushed_at,omitempty"`
	Group    string      `json:"group,omitempty"`
	Headers  nats.Header `json:"headers,omitempty"`
	Value    *string     `json:"value,omitempty"`
	Base64   []byte      `json:"value_base64,omitempty"`

	Duplicate  bool         `json:"duplicate,omitempty"` // of pq push
	State      client.State `json:"state,omitempty"`     // of pq get and pq result
	DeadLetter *deadLetter  `json:"dead_letter,omitempty"`
	Deliveries int64        `json:"deliveries,omitempty"`

	// These are of joiners and members.
	Join   string         `json:"join,omitempty"` // how long it waits at most, while it does
	Joiner string         `json:"joiner,omitempty"`
	Joined *client.Joined `json:"joined,omitempty"`

	// These are of pq lease.
	Receipt    string `json:"receipt,omitempty"`
	LeaseUntil string `json:"lease_until,omitempty"`

	// These are of items where they stand.
	Due      string `json:"due,omitempty"`
	Holder   string `json:"holder,omitempty"`
	LeasedAt string `json:"leased_at,omitempty"`
	Expires  string `json:"expires,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Size     *int   `json:"size,omitempty"`
	ValueCut bool   `json:"value_cut,omitempty"`

	// These are of jobs that are done, but Progress is of those under way.
	FinishedAt   string   `json:"finished_at,omitempty"`
	Took         *float64 `json:"took_s,omitempty"`
	Result       *string  `json:"result,omitempty"`
	ResultBase64 []byte   `json:"result_base64,omitempty"`
	ResultCut    bool     `json:"result_cut,omitempty"`
	ContentType  string   `json:"content_type,omitempty"`
	Progress     string   `json:"progress,omitempty"`

	// These are the trail of a job.
	Attempts       []trail.Attempt `json:"attempts,omitempty"`
	Parent         *trail.Job      `json:"parent,omitempty"`
	Successors     []trail.Job     `json:"successors,omitempty"`
	MoreSuccessors int             `json:"more_successors,omitempty"`
	subjects.Failure

	bytes  []byte // the value
	unique string // the unique key
}

// deadLetter is how an item came into a dead-letter queue, as --json prints it.
type deadLetter struct {
	Queue      string `json:"queue"`
	Reason     string `json:"reason"`
	Error      string `json:"error,omitempty"`
	Deliveries int64  `json:"deliveries"`
	At         string `json:"at"`
}

// why says why it died.
func (d *deadLetter) why() string {
	deliveries := "1 delivery"
	if d.Deliveries != 1 {
		deliveries = terminal.Grouped(d.Deliveries) + " deliveries"
	}
	return fmt.Sprintf("%s (after %s)", d.Reason, deliveries)
}

// String says it for people.
func (d *deadLetter) String() string {
	text := fmt.Sprintf("a dead letter of %s: %s", d.Queue, d.why())
	if d.Error != "" {
		text += ": " + d.Error
	}
	return text
}

// standing says how far a job is, or how long it took, and who has it or had it.
func (it *item) standing() string {
	text := string(it.State)
	if it.Join != "" {
		text = "waiting for its members"
		if it.Due != "" {
			text += ", until " + it.Due + " at the latest"
		}
	}
	if it.Holder != "" {
		text += " by " + it.Holder
	}
	if it.Took != nil {
		text += " in " + terminal.InWords(time.Duration(*it.Took*float64(time.Second)))
	}
	if it.Progress != "" {
		text += ": " + it.Progress
	}
	return text
}

// addTimes adds when the lease of a job began, and when the job was done.
func (it *item) addTimes(leased, finished time.Time) {
	it.LeasedAt, it.FinishedAt = timeText(leased), timeText(finished)
	if !leased.IsZero() && !finished.IsZero() {
		took := finished.Sub(leased).Seconds()
		it.Took = &took
	}
}

// printItem prints an item in a single write. A newline follows a value unless it is the only one
// and is not printed on a terminal, which gets control characters escaped.
func (q *queue) printItem(it *item, only bool) error {
	out := q.cmd.OutOrStdout()
	if q.json {
		return json.NewEncoder(out).Encode(it)
	}

	if terminal.Is(out) { // programs ask for --json
		switch {
		case it.DeadLetter != nil:
			q.say("%s", terminal.Plain(it.DeadLetter.String()))
		case it.State == client.Done:
			q.say("%s: pq result prints what it returned", terminal.Plain(it.standing()))
		case it.State == client.Leased, it.Join != "":
			q.say("%s", terminal.Plain(it.standing()))
		}
	}

	line := it.bytes
	if it.Receipt != "" {
		line = append([]byte(it.Receipt+"\n"), line...)
	}

	if !only || terminal.Is(out) {
		line = append(line, '\n')
	}

	if terminal.Is(out) {
		line = controls.ReplaceAllFunc(line, func(c []byte) []byte {
			return []byte(strings.Trim(strconv.Quote(string(c)), `"`))
		})
	}

	_, err := out.Write(line)
	return err
}

// controls are the characters that a terminal can take for commands.
var controls = regexp.MustCompile(`[^\P{Cc}\n\t]`)

func newItem(q *queue, from *client.Item) *item {
	it := &item{
		Queue: cmp.Or(from.FoundIn, q.name), ID: from.ID, Place: from.Place, Group: from.Group,
		PushedAt: timeText(from.PushedAt), Headers: from.Headers, bytes: from.Value,
		unique: from.Unique,
		Joined: from.Joined, Parent: from.Parent, Attempts: from.Attempts,
		Successors: from.Successors, MoreSuccessors: from.MoreSuccessors,
	}

	if from.Join > 0 {
		it.Join = strictjson.DurationText(from.Join)
	}
	if from.Joiner != nil {
		it.Joiner = from.Joiner.String()
	}

	if hasPriority(q, from) {
		it.Priority = &from.Priority
	}

	if utf8.Valid(from.Value) {
		value := string(from.Value)
		it.Value = &value
	} else {
		it.Base64 = from.Value
	}

	if d := from.DeadLetter; d != nil {
		it.DeadLetter = &deadLetter{d.Queue, d.Reason, d.Error, d.Deliveries, timeText(d.At)}
	}

	return it
}

// newStored is newItem for an item in the queue, whose value may be cut.
func newStored(q *queue, from *client.StoredItem) *item {
	info, _ := subjects.ParseItemHeaders(from.Headers) // else it has no DeadLetter
	info.ID, info.Place = from.ID, from.Place
	info.Priority, info.PushedAt = from.Priority, timeOf(from.PushedAt)

	headers := nats.Header{}
	maps.Copy(headers, from.Headers)
	maps.DeleteFunc(headers, func(name string, _ []string) bool { return !subjects.OfItem(name) })
	value := from.Value
	if from.ValueCut {
		value = terminal.WholeRunes(value)
	}

	message := client.Message{Value: value, Headers: headers}
	it := newItem(q, &client.Item{
		ItemInfo: info.ItemInfo, Message: message, Attempts: from.Attempts,
		Successors: from.Successors, MoreSuccessors: from.MoreSuccessors,
	})
	it.State, it.Deliveries, it.Reason = from.State, from.Deliveries, from.Reason
	it.ValueCut, it.Failure = from.ValueCut, from.Failure
	if it.Code == 0 {
		it.Size = &from.Size
	}

	it.Due, it.Expires = timeText(timeOf(from.Due)), timeText(timeOf(from.Expires))
	it.Holder, it.Progress = from.Holder, string(from.Progress)
	it.addTimes(timeOf(from.LeasedAt), time.Time{})
	if done := from.Done; done != nil {
		it.ResultCut = done.ResultCut
		it.addTimes(timeOf(from.LeasedAt), done.FinishedAt)
		if done.ResultCut {
			done.Result = terminal.WholeRunes(done.Result)
		}
		if done.ResultSize != nil {
			it.addResult(done.Result, done.ContentType)
		}
	}
	return it
}

// timeOf returns the zero time for nil.
func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// timeText writes a time as replies do, and "" if there is none.
func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(subjects.TimeLayout)
}

// hasPriority reports whether the item's priority is known. The reply to the pop of
// a very large item has no room for it.
func hasPriority(q *queue, it *client.Item) bool { return !q.fifo && it.ID != "" }

// items writes a number of items, perhaps in a state: 1 item, 1,000 leased items.
func items(n int64, state string) string {
	return terminal.Plural(n, strings.TrimSpace(state+" item"))
}
