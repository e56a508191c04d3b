// Package proof checks what clients saw of the queues against what queues
// promise. Its tests put load on whole systems, break parts of them meanwhile,
// and hand what every client asked and was told to [History.Check].
//
// # What is checked
//
// Accounting: no item is popped twice, none comes out that nobody pushed or
// whose push was refused, and each item of an acknowledged push comes out, but
// for as many as there are pops whose outcome nobody knows.
//
// Linearizability, by porcupine, for each queue by itself: there is one order of
// all operations, in which none comes before it was asked or after it was
// answered, and in which each gives what a queue done one by one would give. A queue
// is the set of its items in the order of their ids (priority, count, random).
// An item that is pushed after another of the same priority was acknowledged
// comes after it.
//
// # Operations of unknown outcome
//
// A push without an answer may have happened at any time after it was asked for,
// or never. A pop without an answer likewise; what it took went to nobody, and
// may come back later or never: to its old place if the store left it open
// whether the pop was done, under a new id behind the others of its priority if
// the answer could not be sent (see package bridge). Peeks and lens without an
// answer say nothing, and so do requests that were refused.
package proof

import (
	"encoding/json"
	"fmt"
	"os"
)

// Kind is what an operation does.
type Kind string

// The operations, as in the subjects of priority queues. On a FIFO queue Push
// enqueues, PopMin dequeues, PeekMin peeks.
const (
	Push    Kind = "push"
	PopMin  Kind = "pop.min"
	PopMax  Kind = "pop.max"
	PeekMin Kind = "peek.min"
	PeekMax Kind = "peek.max"
	Len     Kind = "len"
)

func (k Kind) pops() bool  { return k == PopMin || k == PopMax }
func (k Kind) peeks() bool { return k == PeekMin || k == PeekMax }

// Outcome is what a client was told.
type Outcome string

// The outcomes.
const (
	// Done: the answer has what was asked for.
	Done Outcome = "done"
	// Empty: the answer is that there is no item.
	Empty Outcome = "empty"
	// Refused: the answer is an error that promises that nothing happened.
	Refused Outcome = "refused"
	// Unknown: the answer is that the store did not say whether it happened.
	Unknown Outcome = "unknown"
	// Lost: no answer was received.
	Lost Outcome = "lost"
)

// Operation is one request and what became of it.
type Operation struct {
	Client int    `json:"client"`
	Queue  string `json:"queue"`
	Kind   Kind   `json:"kind"`
	// Priority is that of a push.
	Priority int64 `json:"priority,omitempty"`
	// Value is what is pushed, popped or seen. The values of all pushes differ.
	Value string `json:"value,omitempty"`
	// ID is that of the item, if Outcome is Done.
	ID      string  `json:"id,omitempty"`
	Len     int64   `json:"len,omitempty"`
	Outcome Outcome `json:"outcome"`
	// Text is the error, for those who read the file.
	Text string `json:"text,omitempty"`
	// Call and Return are when the request was sent and answered, or given
	// up, in nanoseconds by one clock.
	Call   int64 `json:"call"`
	Return int64 `json:"return"`
}

// open reports whether the operation may take place at any time from Call on.
func (o *Operation) open() bool { return o.Outcome == Unknown || o.Outcome == Lost }

// History is all operations on some queues that were empty at first. It ends
// with pops of each queue until there is no item.
type History struct {
	// Name says where it is from, Again is the command that makes one like it.
	Name  string `json:"name"`
	Again string `json:"again"`
	// OneByOne: one bridge at a time serves the queues, in batches that follow
	// each other. So an item is pushed after all items of its priority that
	// are there. With several bridges that holds only for items whose push
	// was acknowledged before the later one was asked for.
	OneByOne bool `json:"one_by_one"`
	// Mortal: a process can end before it has put back what a pop of unknown
	// outcome took, or its answer can come too late, and then that item is
	// lost. Otherwise only a pop whose outcome is Lost can lose an item.
	Mortal     bool        `json:"mortal"`
	Operations []Operation `json:"operations"`
}

// Write writes the history to a file that Read reads.
func (h *History) Write(path string) error {
	data, err := json.MarshalIndent(h, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
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
