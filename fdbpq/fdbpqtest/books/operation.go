// Package books keeps the accounts of items: who pushed them, who had them with which fence until
// when, and what became of them. It knows what queues promise, and neither stores nor NATS, so
// tests of every level use it.
package books

import (
	"fmt"
	"math"
	"strings"
)

// Kind is what an operation does.
type Kind string

// The operations, as in the subjects of priority queues. A FIFO queue has only a front, which
// PopMin, PeekMin and LeaseMin take from.
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

	// Rerun is a redrive of one job, which is done or a dead letter, and Result asks what became of
	// a job. They are only for queues that are traced.
	Rerun  Kind = "rerun"
	Result Kind = "result"
)

func (k Kind) Pops() bool  { return k == PopMin || k == PopMax }
func (k Kind) Peeks() bool { return k == PeekMin || k == PeekMax }

// Leases reports whether the operation leases items.
func (k Kind) Leases() bool { return k == LeaseMin || k == LeaseMax || k.Nexts() }
func (k Kind) Nexts() bool  { return k == NextMin || k == NextMax }

// Acks reports whether the operation removes the item of a token.
func (k Kind) Acks() bool { return k == Ack || k.Nexts() }

// Settles reports whether the operation uses a token.
func (k Kind) Settles() bool { return k.Acks() || k == Nak || k == Extend || k == Term }

// Takes reports whether the operation takes items that are not its own yet.
func (k Kind) Takes() bool { return k.Pops() || k.Leases() }

// Serves reports whether the operation returns items.
func (k Kind) Serves() bool { return k.Pops() || k.Peeks() || k.Leases() }

// Back reports whether it returns those from the back.
func (k Kind) Back() bool { return k == PopMax || k == PeekMax || k == LeaseMax || k == NextMax }

// Outcome is what a client was told.
type Outcome string

// The outcomes.
const (
	// Done: the request did what it asked for.
	Done Outcome = "done"
	// Empty: the answer says that there is no item. NextMin and NextMax have acknowledged
	// theirs then.
	Empty Outcome = "empty"
	// TooLarge: the answer says that the next item exceeds MaxBytes (413). It stays, but NextMin
	// and NextMax have acknowledged theirs.
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
	// Gone: nobody was there to receive the answer, and nothing was broken meanwhile. So popped
	// items come back at once, and leased items when the lease is over.
	Gone Outcome = "gone"
)

// Operation is one request and what became of it.
type Operation struct {
	Client int    `json:"client"`
	Queue  string `json:"queue"`
	Kind   Kind   `json:"kind"`
	// Priority is the priority of a push.
	Priority int64 `json:"priority,omitempty"`
	// Value is the value that was pushed, popped or seen, or of the item of the token. No two
	// pushes have the same value.
	Value string `json:"value,omitempty"`
	// ID is the place of the item if Outcome is Done, otherwise the place in the token. A Remove
	// and a Move may have the id of the job, and a Duplicate has that.
	ID string `json:"id,omitempty"`
	// Batch is how many items pops and leases ask for; 0 means one. Items has those that were
	// leased, or that came out of a pop with a Batch, in order, even if the reply broke off after
	// them. If Outcome is Done and there are fewer than Batch, the queue was empty then, unless
	// Cut. A push with a Batch pushes Items at once. It is also the most items of a Redrive.
	Batch int    `json:"batch,omitempty"`
	Items []Item `json:"items,omitempty"`
	// MaxBytes is the most bytes of items that pops and leases ask for; 0 is no limit.
	MaxBytes int64 `json:"max_bytes,omitempty"`
	// Cut says that there were more items than Items, and the next one exceeded MaxBytes or, if it
	// was to be leased, had no room in the transaction.
	Cut bool `json:"cut,omitempty"`
	// Size is how many bytes the value of a Push has, or of what a pop without a Batch returned.
	Size int64 `json:"size,omitempty"`
	// Expires is how long a pop or lease waits for items.
	Expires int64 `json:"expires,omitempty"`
	// Fence is the fence in the token.
	Fence int64 `json:"fence,omitempty"`
	// Also are the items, with fences, of further leases that an Ack, NextMin or NextMax names. If
	// the Outcome is Stale, Lost says which leases are lost, counted as in the header.
	Also []Item `json:"also,omitempty"`
	Lost []int  `json:"lost,omitempty"`
	// Wait is the length of the leases that are asked for, or of that which is extended.
	Wait int64 `json:"wait,omitempty"`
	// Delay is for Push and Nak, Snooze for Nak.
	Delay  int64 `json:"delay,omitempty"`
	Snooze bool  `json:"snooze,omitempty"`
	// JetStream says that the operation went through the JetStream face: a pull, or an
	// acknowledgement there. Consumer is for pulls. See consumers.go.
	JetStream bool   `json:"jetstream,omitempty"`
	Consumer  string `json:"consumer,omitempty"`
	// Spread says that a pull may have got its items in several transactions.
	Spread bool `json:"spread,omitempty"`
	// Backoff says that a Nak names no delay, but Retry, its retry delay; 0 for none. Delay is what
	// comes of it: see RetryAfter.
	Backoff bool  `json:"backoff,omitempty"`
	Retry   int64 `json:"retry,omitempty"`
	// TTL is after how long the item of a Push expires; 0 is never.
	TTL int64 `json:"ttl,omitempty"`
	// Unique is the unique key of a Push, or of the item that a pop without a Batch returned.
	Unique string `json:"unique,omitempty"`
	// Join is for how long the first item of a Push with a Batch waits for the others, its members;
	// Joiner is the joiner of the item of another Push, or of the token: its queue and its id, as
	// in the header.
	Join   int64  `json:"join,omitempty"`
	Joiner string `json:"joiner,omitempty"`
	// Group is the group of a Push, or of the item that a pop without a Batch returned; "" for
	// none.
	Group string `json:"group,omitempty"`
	// Moved is the place that a Move or Rerun gave its item.
	Moved string `json:"moved,omitempty"`
	// Result is what an acknowledgement says, or what a Result was told; "" for none. State is
	// where the job is then, and Job its id; for a Remove it is StateDone or "".
	Result string `json:"result,omitempty"`
	State  State  `json:"state,omitempty"`
	Job    string `json:"job,omitempty"`
	// Next is what an acknowledgement pushes.
	Next []Successor `json:"next,omitempty"`
	// Acked and NotKept are the numbers of leases that the answer to an acknowledgement says: those
	// that had acknowledged their jobs before, and those whose results are not kept.
	Acked   []int `json:"acked,omitempty"`
	NotKept []int `json:"not_kept,omitempty"`
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

// Open reports whether the operation may take place at any time from Call on.
func (o *Operation) Open() bool { return o.Outcome == Unknown || o.Outcome == Lost }

// Counts reports whether the answer says that what the operation did with its lease is done, even
// if it has then found no item.
func (o *Operation) Counts() bool {
	return o.Outcome == Done || o.Outcome == Empty || o.Outcome == TooLarge
}

// gaveUp reports whether a request was told too early that there is nothing more to wait for.
func (o *Operation) gaveUp() bool {
	few := o.Outcome == Empty || o.Outcome == Done && len(o.Got()) < o.Asked() && !o.Cut
	return few && o.Kind.Takes() && o.Expires > 0 && o.Return-o.Call < o.Expires-ClockSlack
}

// Asked returns how many items the operation asks for.
func (o *Operation) Asked() int { return max(1, o.Batch) }

// Got returns the items that the client got.
func (o *Operation) Got() []Item {
	if o.Kind == Push {
		return nil
	}
	if o.Outcome == Done && len(o.Items) == 0 && (o.Kind.Pops() || o.Kind.Peeks()) {
		return []Item{{Value: o.Value, ID: o.ID, Unique: o.Unique, Group: o.Group, Size: o.Size}}
	}
	return o.Items
}

// Untold returns how many items the operation may have taken that the client did not get.
func (o *Operation) Untold() int {
	if o.Outcome == Gone && o.Kind.Leases() {
		return o.Asked()
	}
	if !o.Open() || !o.Kind.Pops() && !o.Kind.Leases() {
		return 0
	}
	return o.Asked() - len(o.Items)
}

// untoldFences returns how many fences the operation may have used that no client knows. A bridge
// ends leases that nobody received, or that it answered for before the store did, which takes one
// more.
func (o *Operation) untoldFences() int {
	n := o.Untold() + o.returned()
	if o.Kind.Leases() {
		n *= 2
	}
	return n
}

// Item is one of the items that an operation returned. Leased items have a fence.
type Item struct {
	Value      string `json:"value"`
	ID         string `json:"id"`            // its place
	Job        string `json:"job,omitempty"` // the id of its job, if the client was told
	Unique     string `json:"unique,omitempty"`
	Group      string `json:"group,omitempty"`
	Size       int64  `json:"size,omitempty"`
	Fence      int64  `json:"fence,omitempty"`
	Deliveries int64  `json:"deliveries,omitempty"`
	// Until is when the lease is over, by the clock of the bridge that gave it.
	Until int64 `json:"until,omitempty"`
	// Joiner is the joiner that the item is a member of, as in an Operation; "" for none. Joined is
	// what a joiner says of its members, nil if it says nothing.
	Joiner string  `json:"joiner,omitempty"`
	Joined *Joined `json:"joined,omitempty"`
	// Result is what an acknowledgement of several leases says of this one.
	Result string `json:"result,omitempty"`
}

// Joined is how many members of a joiner are done, dead letters, gone in another way, and open.
type Joined struct {
	Done, Dead, Gone, Open int64
}

// Successor is an item that an acknowledgement pushes.
type Successor struct {
	Queue string `json:"queue"`
	Value string `json:"value"`
	Size  int64  `json:"size"` // of the value, as in an Operation
	// Join is for how long it waits for its members, and Joiner its joiner, as in an Operation, or
	// the number of a successor of the same acknowledgement.
	Join   int64  `json:"join,omitempty"`
	Joiner string `json:"joiner,omitempty"`
}

// IsCut reports whether the answer said that the next item was too large.
func (o *Operation) IsCut() bool { return o.Cut || o.Outcome == TooLarge }

// LeftOfMaxBytes returns what the items have left of MaxBytes, at most.
func (o *Operation) LeftOfMaxBytes() int64 {
	if o.MaxBytes == 0 {
		return math.MaxInt64
	}
	left := o.MaxBytes
	for _, item := range o.Got() {
		left -= item.Size
	}
	return left
}

// wrongSize describes wrong sizes of the items, or a wrong answer that says they are too large.
func (o *Operation) wrongSize() string {
	switch {
	case o.LeftOfMaxBytes() < 0:
		return "more bytes than asked for"
	case o.Outcome == TooLarge && o.MaxBytes == 0:
		return "too large, and not limited"
	}
	return ""
}

// String is the operation and its outcome.
func (op *Operation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", op.Kind)
	switch {
	case op.Kind == Push:
		fmt.Fprintf(&b, "(%d, %s)", op.Priority, op.Value)
	case op.Kind.Settles():
		fmt.Fprintf(&b, "(%s, fence %d", op.Value, op.Fence)
		for _, also := range op.Also {
			fmt.Fprintf(&b, "; %s, fence %d", also.Value, also.Fence)
		}
		b.WriteString(")")
	}

	switch {
	case op.Cut:
		b.WriteString(" → cut off after")
	case op.Outcome != Done:
		fmt.Fprintf(&b, " → %s", op.Outcome)
		if len(op.Lost) > 0 {
			fmt.Fprintf(&b, " %v", op.Lost)
		}
	case op.Kind == Len:
		fmt.Fprintf(&b, " → %d", op.Len)
	}

	for _, item := range op.Got() {
		fmt.Fprintf(&b, " → %s", item.Value)
		if item.Fence > 0 {
			fmt.Fprintf(&b, " (fence %d)", item.Fence)
		}
	}

	return b.String()
}
