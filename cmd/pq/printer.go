package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects"
)

// printer prints items.
type printer struct{ json bool }

func (p *printer) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&p.json, "json", false, "print it as JSON; value_base64 if it is not UTF-8")
}

// item is an item as --json prints it. Value is set if the bytes are UTF-8,
// Base64 otherwise.
type item struct {
	Queue    string      `json:"queue"`
	ID       string      `json:"id,omitempty"`
	Priority *int64      `json:"priority,omitempty"`
	PushedAt string      `json:"pushed_at,omitempty"`
	Headers  nats.Header `json:"headers,omitempty"`
	Value    *string     `json:"value,omitempty"`
	Base64   []byte      `json:"value_base64,omitempty"`

	State      client.State `json:"state,omitempty"` // of pq get
	DeadLetter *deadLetter  `json:"dead_letter,omitempty"`

	// These are of pq lease.
	Receipt    string `json:"receipt,omitempty"`
	Deliveries int64  `json:"deliveries,omitempty"`
	LeaseUntil string `json:"lease_until,omitempty"`

	bytes []byte // the value
}

// deadLetter is how an item came into a dead-letter queue, as --json prints it.
type deadLetter struct {
	Queue      string `json:"queue"`
	Reason     string `json:"reason"`
	Error      string `json:"error,omitempty"`
	Deliveries int64  `json:"deliveries"`
	At         string `json:"at"`
}

// String says it for people.
func (d *deadLetter) String() string {
	deliveries := "1 delivery"
	if d.Deliveries != 1 {
		deliveries = terminal.Grouped(d.Deliveries) + " deliveries"
	}
	text := fmt.Sprintf("a dead letter of %s: %s after %s", d.Queue, d.Reason, deliveries)
	if d.Error != "" {
		text += ": " + d.Error
	}
	return text
}

// print prints an item in a single write. A newline follows a value unless it is the only one and
// is not printed on a terminal.
func (p *printer) print(cmd *cobra.Command, it *item, only bool) error {
	out := cmd.OutOrStdout()
	if p.json {
		return json.NewEncoder(out).Encode(it)
	}

	if it.DeadLetter != nil && terminal.Is(out) {
		_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "pq:", it.DeadLetter) // programs ask for --json
	}

	line := it.bytes
	if it.Receipt != "" {
		line = append([]byte(it.Receipt+"\n"), line...)
	}
	if !only || terminal.Is(out) {
		line = append(line, '\n')
	}

	_, err := out.Write(line)
	return err
}

func newItem(q *queue, from *client.Item) *item {
	it := &item{Queue: q.name, ID: from.ID, Headers: from.Headers, PushedAt: timeText(from.PushedAt), bytes: from.Value}

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
		it.DeadLetter = &deadLetter{Queue: d.Queue, Reason: d.Reason, Error: d.Error, Deliveries: d.Deliveries, At: timeText(d.At)}
	}
	return it
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

// items names a number of items, of which all may be in a state: 1 item, 1,000 leased items.
func items(n int64, state string) string {
	return terminal.Plural(n, strings.TrimSpace(state+" item"))
}
