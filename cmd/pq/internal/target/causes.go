package target

import (
	"cmp"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

// Bounds of Causes, for all queues together.
const (
	MaxLetters = 100_000
	MaxCauses  = 1_000
)

// Cause is dead letters in one queue that died of the same, as far as Fold tells. Its JSON is what
// pq prints.
type Cause struct {
	FIFO   bool      `json:"-"`
	Queue  string    `json:"queue"`          // that they are in
	Home   string    `json:"home,omitempty"` // queue that they come from, "" for several
	Text   string    `json:"cause"`          // folded
	Count  int       `json:"count"`
	Newest time.Time `json:"newest"`
	Oldest time.Time `json:"oldest"`
	Refs   []string  `json:"-"` // of all of them, in the order of the queue

	// ExampleID and Example are the id of the newest and its error as it stands.
	ExampleID string `json:"id"`
	Example   string `json:"error"`
}

// Causes groups dead letters by their causes. The zero value has none. It is not safe for
// concurrent use.
type Causes struct {
	After    time.Time // leaves out what died earlier, or nobody knows when; zero for nothing
	Letters  int       // that were added
	Unlisted int       // of these, the ones of causes beyond the first MaxCauses
	list     []*Cause
	byKey    map[causeKey]*Cause
}

type causeKey struct {
	fifo        bool
	queue, text string
}

// Add adds the dead letters among items of a queue, as far as there is room, and reports whether
// there was.
func (c *Causes) Add(fifo bool, queue string, items []client.StoredItem) (more bool) {
	for i := range items {
		letter := DeadLetter(&items[i])
		counts := letter != nil && !letter.At.Before(c.After)
		if counts && !c.add(fifo, queue, &items[i], letter) {
			return false
		}
	}
	return true
}

func (c *Causes) add(
	fifo bool, queue string, it *client.StoredItem, letter *subjects.DeadLetter,
) (more bool) {
	id, text := it.ID, causeOf(letter)
	key := causeKey{fifo, queue, Fold(text)}
	group := c.byKey[key]
	if c.Letters == MaxLetters {
		return false
	}

	c.Letters++
	if group == nil && len(c.list) == MaxCauses {
		c.Unlisted++
		return true
	}
	if group == nil {
		if c.byKey == nil {
			c.byKey = map[causeKey]*Cause{}
		}
		group = &Cause{FIFO: fifo, Queue: queue, Text: key.text, ExampleID: id, Example: text}
		c.byKey[key] = group
		c.list = append(c.list, group)
	}

	group.Count++
	group.Refs = append(group.Refs, Ref(it))
	if letter.Queue == "" { // its headers had no room in the reply
		return true
	}

	switch {
	case group.Oldest.IsZero():
		group.Home, group.Oldest = letter.Queue, letter.At
	case group.Home != letter.Queue:
		group.Home = ""
	}

	if letter.At.Before(group.Oldest) {
		group.Oldest = letter.At
	}

	if letter.At.After(group.Newest) {
		group.Newest, group.ExampleID, group.Example = letter.At, id, text
	}

	return true
}

// List returns the causes, those with the most letters first. They still belong to c.
func (c *Causes) List() []*Cause {
	slices.SortStableFunc(c.list, func(a, b *Cause) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), b.Newest.Compare(a.Newest))
	})
	return c.list
}

// DeadLetter returns why an item is a dead letter, nil if it is none. Of one whose headers had no
// room in the reply, only the reason is known.
func DeadLetter(it *client.StoredItem) *subjects.DeadLetter {
	info, _ := subjects.ParseItemHeaders(it.Headers) // what cannot be read counts as absent
	if info.DeadLetter == nil && it.HeadersCut {
		return &subjects.DeadLetter{Reason: it.Reason}
	}
	return info.DeadLetter
}

// causeOf returns the last error of a dead letter or, without one, why it was moved.
func causeOf(d *subjects.DeadLetter) string { return cmp.Or(d.Error, d.Reason) }

// DiedOf reports whether the cause of a dead letter is text, as it stands or folded.
func DiedOf(d *subjects.DeadLetter, text string) bool {
	cause := causeOf(d)
	return cause == text || Fold(cause) == text
}
