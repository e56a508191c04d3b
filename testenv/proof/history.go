// Package proof checks what clients saw of the queues against what queues promise. Its
// tests put load on whole systems, break parts of them meanwhile, and pass every
// client's requests and their outcomes to [History.Check].
//
// # What is checked
//
// Accounting: no item is popped twice, and none comes out that nobody pushed or whose
// push was refused. Each item of an acknowledged push comes out, except for at most one
// for each pop of unknown outcome.
//
// Linearizability, checked with porcupine for each queue separately: there is one order
// of all operations in which each takes place between its request and its answer, and
// returns what it would on a queue that runs one operation at a time. A queue is the
// set of its items in the order of their ids (priority, count, random). An item that
// was pushed after the push of another one of the same priority was acknowledged comes
// after that one.
//
// # Operations of unknown outcome
//
// A push without an answer may have happened at any time after its request, or never.
// The same holds for a pop. Nobody got what such a pop took, and that may come back
// later or never: to its old place if the store did not say whether the pop was done,
// or under a new id behind the others of its priority if the reply could not be sent
// (see package bridge). Peeks and lens without an answer say nothing, and neither do
// requests that were refused.
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
	// Done: the request did what it asked for.
	Done Outcome = "done"
	// Empty: the answer says that there is no item.
	Empty Outcome = "empty"
	// Refused: the answer is an error that promises that nothing happened.
	Refused Outcome = "refused"
	// Unknown: the answer says that the store did not tell whether it happened.
	Unknown Outcome = "unknown"
	// Lost: no answer was received.
	Lost Outcome = "lost"
)

// Operation is one request and what became of it.
type Operation struct {
	Client int    `json:"client"`
	Queue  string `json:"queue"`
	Kind   Kind   `json:"kind"`
	// Priority is the priority of a push.
	Priority int64 `json:"priority,omitempty"`
	// Value is what was pushed, popped or seen. No two pushes have the same value.
	Value string `json:"value,omitempty"`
	// ID is the id of the item, if Outcome is Done.
	ID      string  `json:"id,omitempty"`
	Len     int64   `json:"len,omitempty"`
	Outcome Outcome `json:"outcome"`
	// Text is the error, for people who read the file.
	Text string `json:"text,omitempty"`
	// Call and Return are when the request was sent, and when it was answered or given
	// up, in nanoseconds of one clock.
	Call   int64 `json:"call"`
	Return int64 `json:"return"`
}

// open reports whether the operation may take place at any time from Call on.
func (o *Operation) open() bool { return o.Outcome == Unknown || o.Outcome == Lost }

// History has all operations on some queues that were empty at first. It ends with pops
// of each queue until it is empty.
type History struct {
	// Name says where the history is from, Again is the command that makes a similar
	// one.
	Name  string `json:"name"`
	Again string `json:"again"`
	// OneByOne: only one bridge at a time serves the queues, in batches that follow
	// each other. So an item is pushed behind all items of its priority that are there.
	// With several bridges that holds only for items whose push was acknowledged before
	// the request for the later one.
	OneByOne bool `json:"one_by_one"`
	// Mortal: a process can end before it has put back what a pop of unknown outcome
	// took, or its answer can come too late; then that item is lost. Otherwise only a
	// pop whose outcome is Lost can lose an item.
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
