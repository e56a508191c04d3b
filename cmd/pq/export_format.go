package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects"
)

// exportVersion is the version of the format that pq export writes and pq import reads, which
// docs/pq.md describes: a line with an exportHead, one for each exportedItem, and an exportLast.
// Nothing else prints these structs, so that no other command changes the format. An import refuses
// members that it does not know, so a new one needs another version.
const exportVersion = 1

// exportHead begins an export. Its settings and schedules are in the form of the protocol.
type exportHead struct {
	Version   int               `json:"pq_export"`
	Kind      string            `json:"kind"`
	Queue     string            `json:"queue"`
	At        time.Time         `json:"exported_at"`
	Settings  json.RawMessage   `json:"settings"` // without a source
	Schedules []client.Schedule `json:"schedules"`
}

// exportedItem is an item, with the headers of a push among its headers.
type exportedItem struct {
	ID       string       `json:"id"`
	State    client.State `json:"state"` // Ready or Delayed
	Due      time.Time    `json:"due,omitzero"`
	Expires  time.Time    `json:"expires,omitzero"`
	Priority *int64       `json:"priority,omitzero"` // nil in a FIFO queue
	Headers  nats.Header  `json:"headers,omitempty"`
	// Block has the headers, as in a message of NATS, if they are not UTF-8.
	Block []byte `json:"headers_base64,omitempty"`
	// Base64 is the value if it is not UTF-8.
	Value  *string `json:"value,omitzero"`
	Base64 []byte  `json:"value_base64,omitempty"`

	// An import leaves these out. The last one is as pq get prints it, whatever that may become.
	PushedAt   string          `json:"pushed_at,omitzero"`
	Deliveries int64           `json:"deliveries,omitzero"`
	Reason     string          `json:"reason,omitzero"`
	DeadLetter json.RawMessage `json:"dead_letter,omitzero"`
}

// exportLast is the last line of an export.
type exportLast struct {
	End *exportEnd `json:"end"`
}

// exportEnd sums up an export.
type exportEnd struct {
	Items     int64 `json:"items"`
	Schedules int   `json:"schedules"`
	// Digest is the SHA-256 of all lines before this one, with their line ends, in hexadecimal.
	Digest string `json:"digest"`
	// NotImported counts what the new queue does not have.
	NotImported map[string]int64 `json:"not_imported"`
}

// What NotImported counts.
const (
	exportedIDs        = "ids"
	exportedTokens     = "tokens of leases"
	exportedDeliveries = "deliveries"
	exportedFinished   = "finished jobs"
	exportedCauses     = "causes of dead letters"
	exportedJoins      = "outcomes of joins"
	exportedSources    = "sources"
	exportedExpired    = "items that have expired"
	exportedDamaged    = "items that cannot be read"
)

// String says it for people.
func (e *exportEnd) String() string {
	text := fmt.Sprintf("%s and %s, digest %s\nleft out by an import:", items(e.Items, ""),
		terminal.Plural(e.Schedules, "schedule"), e.Digest)
	for _, what := range slices.Sorted(maps.Keys(e.NotImported)) {
		text += fmt.Sprintf(" %s %s,", terminal.Grouped(e.NotImported[what]), what)
	}
	return strings.TrimSuffix(text, ",")
}

// push returns what to push for an item, without an end of its time. It changes the headers of it.
func (it *exportedItem) push() (m client.PushItem, err error) {
	m.Priority, m.Headers = *cmp.Or(it.Priority, new(int64)), it.Headers
	m.Value = append(it.Base64, *cmp.Or(it.Value, new(string))...) // one of them is empty
	if it.Block != nil {
		if m.Headers, err = nats.DecodeHeadersMsg(it.Block); err != nil {
			return m, fmt.Errorf("headers_base64: %w", err)
		}
	}

	maps.DeleteFunc(m.Headers, func(name string, values []string) bool {
		return subjects.IsReserved(name) && !slices.Contains(subjects.PushHeaders[:], name) ||
			strings.EqualFold(name, subjects.HeaderMsgID) ||
			strings.EqualFold(name, subjects.HeaderTTL) && !it.Expires.IsZero() ||
			subjects.HeaderFate(name, values) != subjects.Kept
	})
	if !it.Due.IsZero() {
		m.Message = m.With(client.At(it.Due))
	}
	return m, nil
}
