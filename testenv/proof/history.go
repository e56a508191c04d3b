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
// after that one, unless it has a group, and the other is of another or of none.
//
// Leases are part of that model. An item that is leased, or waits out a delay, keeps its
// place in the order, but is served to nobody before it is due, and to whoever asks after
// that. A token is good for one delivery, which its fence names: an acknowledgement counts
// exactly if nobody got the item since. Deliveries are counted right.
//
// An item that expires may be gone for whoever asks after that, and is served to nobody who does.
// Whoever has leased it may acknowledge it. No other item may be gone.
//
// # Sizes
//
// An answer may say that the next item is too large: for what a request limits itself to, or, after some items of a
// lease, for the room that is left in the transaction. Then there must be a next item, and in the first case one that is
// too large. Nothing else excuses that there are fewer items than were asked for.
//
// # Clocks
//
// Due times go by the clocks of the bridges, which differ from that of the clients by
// [History.Skew] at most. So a lease may be over by that much too early or too late, and the
// end of a delay, which no answer tells, is known to twice that. A request sent before an
// item is due may miss it, however late its answer comes.
//
// # Operations of unknown outcome
//
// A push without an answer may have happened at any time after its request, or never.
// The same holds for a pop. Nobody got what such a pop took, and that may come back
// later or never: to its old place if the store did not say whether the pop was done,
// or under a new id behind the others of its priority if the reply could not be sent
// (see package bridge). Peeks and lens without an answer say nothing, and neither do
// requests that were refused.
//
// A lease without an answer may have taken an item at any time, which comes back when the
// lease is over. An acknowledgement without an answer may or may not count.
package proof

import (
	"encoding/json"
	"fmt"
	"os"
)

// Kind is what an operation does.
type Kind string

// The operations, as in the subjects of priority queues. On a FIFO queue Push
// enqueues, PopMin dequeues, PeekMin peeks, LeaseMin leases.
const (
	Push    Kind = "push"
	PopMin  Kind = "pop.min"
	PopMax  Kind = "pop.max"
	PeekMin Kind = "peek.min"
	PeekMax Kind = "peek.max"
	Len     Kind = "len"

	LeaseMin Kind = "lease.min"
	LeaseMax Kind = "lease.max"
	Ack      Kind = "ack"
	Nak      Kind = "nak"
	Extend   Kind = "extend" // +WPI
	// Term moves the item to the dead-letter queue.
	Term Kind = "term"
	// NextMin and NextMax are +NXT of a lease from that end.
	NextMin Kind = "next.min"
	NextMax Kind = "next.max"

	// Only [Books] know these: they manage items by their ids, and queues.
	Remove  Kind = "remove"
	Move    Kind = "move"
	Purge   Kind = "purge"
	Redrive Kind = "redrive"
)

func (k Kind) pops() bool  { return k == PopMin || k == PopMax }
func (k Kind) peeks() bool { return k == PeekMin || k == PeekMax }

// leases reports whether the operation leases items.
func (k Kind) leases() bool { return k == LeaseMin || k == LeaseMax || k.nexts() }
func (k Kind) nexts() bool  { return k == NextMin || k == NextMax }

// acks reports whether the operation removes the item of a token.
func (k Kind) acks() bool { return k == Ack || k.nexts() }

// settles reports whether the operation uses a token.
func (k Kind) settles() bool { return k.acks() || k == Nak || k == Extend || k == Term }

// serves reports whether the operation returns items.
func (k Kind) serves() bool { return k.pops() || k.peeks() || k.leases() }

// back reports whether it returns those from the back.
func (k Kind) back() bool { return k == PopMax || k == PeekMax || k == LeaseMax || k == NextMax }

// Outcome is what a client was told.
type Outcome string

// The outcomes.
const (
	// Done: the request did what it asked for.
	Done Outcome = "done"
	// Empty: the answer says that there is no item. NextMin and NextMax have acknowledged
	// theirs then.
	Empty Outcome = "empty"
	// TooLarge: the answer says that the next item exceeds MaxBytes (413). It stays, but NextMin and NextMax have
	// acknowledged theirs.
	TooLarge Outcome = "too large"
	// Stale: the answer says that the token is not good any more, or that the item of a Move is
	// leased (409).
	Stale Outcome = "stale"
	// Duplicate: another item with the key of the push is there, and ID names it.
	Duplicate Outcome = "duplicate"
	// Refused: the answer is an error that promises that nothing happened.
	Refused Outcome = "refused"
	// Unknown: the answer says that the store did not tell whether it happened.
	Unknown Outcome = "unknown"
	// Lost: no answer was received.
	Lost Outcome = "lost"
	// Gone: nobody was there to receive the answer, and nothing was broken meanwhile. So the
	// items of a pop come back at once, and those of a lease when it is over.
	Gone Outcome = "gone"
)

// Operation is one request and what became of it.
type Operation struct {
	Client int    `json:"client"`
	Queue  string `json:"queue"`
	Kind   Kind   `json:"kind"`
	// Priority is the priority of a push.
	Priority int64 `json:"priority,omitempty"`
	// Value is what was pushed, popped or seen, or of the item of the token. No two pushes
	// have the same value.
	Value string `json:"value,omitempty"`
	// ID is the id of the item, if Outcome is Done, or that of the token.
	ID string `json:"id,omitempty"`
	// Batch is how many items pops and leases ask for; 0 means one. Items has those that
	// were leased, or that came out of a pop with a Batch, in order, even if the reply broke
	// off after them. If Outcome is Done and there are fewer than Batch, the queue was empty
	// then, unless Cut. A push with a Batch pushes Items at once. It is also the most items of a Redrive.
	Batch int    `json:"batch,omitempty"`
	Items []Item `json:"items,omitempty"`
	// MaxBytes is the most bytes of items that pops and leases ask for; 0 is no limit.
	MaxBytes int64 `json:"max_bytes,omitempty"`
	// Cut says that there were more items than Items, and the next one exceeded MaxBytes or, if it was to be leased, had no
	// room in the transaction.
	Cut bool `json:"cut,omitempty"`
	// Size is how many bytes the value of a Push has, or of what a pop without a Batch returned.
	Size int64 `json:"size,omitempty"`
	// Expires is how long a pop or lease waits for items.
	Expires int64 `json:"expires,omitempty"`
	// Fence is that of the token.
	Fence int64 `json:"fence,omitempty"`
	// Also are the items, with fences, of further leases that an Ack, NextMin or NextMax names. If the Outcome is
	// Stale, Lost says which leases are lost, counted as in the header.
	Also []Item `json:"also,omitempty"`
	Lost []int  `json:"lost,omitempty"`
	// Wait is the length of the leases that are asked for, or of that which is extended.
	Wait int64 `json:"wait,omitempty"`
	// Delay is that of Push and Nak, Snooze that of Nak.
	Delay  int64 `json:"delay,omitempty"`
	Snooze bool  `json:"snooze,omitempty"`
	// JetStream says that the operation went through the JetStream face: a pull, or an acknowledgement there. Consumer is
	// that of a pull. See jetstream.go.
	JetStream bool   `json:"jetstream,omitempty"`
	Consumer  string `json:"consumer,omitempty"`
	// Spread says that a pull may have got its items in several transactions.
	Spread bool `json:"spread,omitempty"`
	// Backoff says that a Nak names no delay; Delay is what the settings of the queue say.
	Backoff bool `json:"backoff,omitempty"`
	// TTL is after how long the item of a Push expires; 0 is never.
	TTL int64 `json:"ttl,omitempty"`
	// Unique is the unique key of a Push, or that of the item of a pop without a Batch.
	Unique string `json:"unique,omitempty"`
	// Group is the group of a Push, or that of the item of a pop without a Batch, "" for none.
	Group string `json:"group,omitempty"`
	// Moved is the id that a Move gave its item.
	Moved string `json:"moved,omitempty"`
	// Until is the end of a lease according to the answer to Extend; 0 if that does not say.
	Until int64 `json:"until,omitempty"`
	// Len is the result of Len, and how many items Purge and Redrive have moved.
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

// gaveUp reports whether a request was told too early that there is nothing more to wait for.
func (o *Operation) gaveUp() bool {
	few := o.Outcome == Empty || o.Outcome == Done && len(o.items()) < o.asked() && !o.Cut
	return few && o.Expires > 0 && o.Return-o.Call < o.Expires-clockSlack
}

// asked returns how many items the operation asks for.
func (o *Operation) asked() int { return max(1, o.Batch) }

// items returns the items that the client got.
func (o *Operation) items() []Item {
	if o.Kind == Push {
		return nil
	}
	if o.Outcome == Done && len(o.Items) == 0 && (o.Kind.pops() || o.Kind.peeks()) {
		return []Item{{Value: o.Value, ID: o.ID, Unique: o.Unique, Group: o.Group, Size: o.Size}}
	}
	return o.Items
}

// Untold returns how many items the operation may have taken that the client did not get.
func (o *Operation) Untold() int {
	if o.Outcome == Gone && o.Kind.leases() {
		return o.asked()
	}
	if !o.open() || !o.Kind.pops() && !o.Kind.leases() {
		return 0
	}
	return o.asked() - len(o.Items)
}

// untoldFences returns how many fences the operation may have used that no client knows. A bridge ends leases that nobody
// received, or that it answered for before the store did, which takes one more.
func (o *Operation) untoldFences() int {
	n := o.Untold() + o.returned()
	if o.Kind.leases() {
		n *= 2
	}
	return n
}

// Item is one of the items that an operation returned. Those of leases have a fence.
type Item struct {
	Value      string `json:"value"`
	ID         string `json:"id"`
	Unique     string `json:"unique,omitempty"`
	Group      string `json:"group,omitempty"`
	Size       int64  `json:"size,omitempty"`
	Fence      int64  `json:"fence,omitempty"`
	Deliveries int64  `json:"deliveries,omitempty"`
	// Until is when the lease is over, by the clock of the bridge that gave it.
	Until int64 `json:"until,omitempty"`
}

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
	Mortal bool `json:"mortal"`
	// Skew is the most nanoseconds by which the clock of a bridge may be ahead of, or
	// behind, that of the history.
	Skew int64 `json:"skew"`
	// MaxLeased is max_leased_per_group of queues that have it.
	MaxLeased  map[string]int `json:"max_leased_per_group,omitempty"`
	Operations []Operation    `json:"operations"`
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
