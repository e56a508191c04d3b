// Package proof checks what clients saw of the queues against what queues promise. Its tests put
// load on whole systems, break parts of them meanwhile, and pass the requests of every client, with
// their outcomes, to [History.Check].
//
// # Checks
//
// Accounting, by package books: no item is popped twice, and none comes out that nobody pushed or
// whose push was refused. Each item of an acknowledged push comes out, except for at most one for
// each pop of unknown outcome.
//
// Linearizability, checked with porcupine for each queue separately: there is one order of all
// operations in which each takes place between its request and its answer, and returns what it
// would on a queue that runs one operation at a time. A queue is the set of its items in the order
// of their ids (priority, count, random). If an item was pushed after the push of another one of
// the same priority was acknowledged, it comes after that one. The exception is an item of a group:
// it only follows the items of its own group.
//
// Leases are part of that model. An item that is leased, or waits out a delay, keeps its place in
// the order. It is served to nobody before it is due, and to requests sent after that. A token is
// good for one delivery, which its fence names: an acknowledgement counts exactly if nobody has got
// the item since. Deliveries are counted right.
//
// An item that has expired may be gone, and is not served any more. A client that has leased it may
// still acknowledge it. No other item may be gone.
//
// # Sizes
//
// An answer may say that the next item is too large: for the limit of the request, or, after some
// items of a lease, for the room that is left in the transaction. Then there must be a next item,
// and in the first case one that is too large. Nothing else excuses fewer items than were asked
// for.
//
// # Clocks
//
// Due times go by the clocks of the bridges. These differ from the clock of the clients by
// [History.Skew] at most. So a lease may be over too early or too late by that much. The end of a
// delay, which no answer tells, is known to twice that. A request sent before an item is due may
// miss it, however late its answer comes.
//
// # Operations of unknown outcome
//
// A push without an answer may have happened at any time after its request, or never. The same
// holds for a pop. Nobody got what such a pop took, and that may come back later or never: to its
// old place if the store did not say whether the pop was done, or under a new id behind the others
// of its priority if the reply could not be sent (see package bridge). Peeks and lens without an
// answer say nothing, and neither do requests that were refused.
//
// A lease without an answer may have taken an item at any time. The item comes back when the lease
// is over. An acknowledgement without an answer may or may not count.
package proof

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
)

// History has all operations on some queues that were empty at first. It ends with pops of each
// queue until it is empty.
type History struct {
	// Name says where the history is from. Again is the command that makes a similar one.
	Name  string `json:"name"`
	Again string `json:"again"`

	// OneByOne: only one bridge at a time serves the queues, in batches that follow each other. So
	// an item is pushed behind all items of its priority that are there. With several bridges this
	// holds only for items whose push was acknowledged before the request for the later one.
	OneByOne bool `json:"one_by_one"`

	// Mortal: a process can end before it has put back what a pop of unknown outcome took, or its
	// answer can come too late. Then that item is lost. Otherwise only a pop whose outcome is Lost
	// can lose an item.
	Mortal bool `json:"mortal"`

	// Skew is by how many nanoseconds, at most, the clock of a bridge may differ from the
	// history's.
	Skew int64 `json:"skew"`

	// MaxLeased is max_leased_per_group of the queues that have it.
	MaxLeased  map[string]int    `json:"max_leased_per_group,omitempty"`
	Operations []books.Operation `json:"operations"`
}

// Write writes the history to a file that Read reads.
func (h *History) Write(path string) error {
	data, err := json.MarshalIndent(h, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

// Keep adds the history to a file as one line, in the form that docs/histories.md describes.
func (h *History) Keep(path string) error {
	data, err := json.Marshal(h)
	if err != nil {
		return err
	}

	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))

	return errors.Join(err, f.Close())
}

// Read reads a history from a file.
func Read(path string) (*History, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}

	h := &History{}
	if err := json.Unmarshal(data, h); err != nil {
		return nil, fmt.Errorf("history %s: %w", path, err)
	}

	return h, nil
}
