package target

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects/trail"
)

// MaxChain is how many jobs Chain looks at.
const MaxChain = 64

// Kin is a job of a chain, in which acknowledgements push the next jobs.
type Kin struct {
	trail.Job // with the queue that it was pushed to
	// Depth is 0 for the job that was asked for, -1 for its parent, and 1 for what it has pushed.
	Depth int
	// In is the queue that it is in. For a dead letter that is another one.
	In string
	// Item is what the queue has of it, without its value, unless there is an Err: ErrNotFound if
	// the job is gone.
	Item client.StoredItem
	Err  error
	// More is how many of the jobs that it has pushed are not in the chain.
	More int
}

// Chain returns a job among the jobs that it comes from, the first of them first, and those that
// came of it, each followed by what it has pushed itself. These are at most MaxChain. get reads a
// job, wherever it is by now.
func Chain(
	of trail.Job, get func(trail.Job) (in string, it client.StoredItem, err error),
) (all []*Kin, self *Kin) {
	read := func(job trail.Job, depth int) *Kin {
		k := &Kin{Job: job, Depth: depth}
		k.In, k.Item, k.Err = get(job)
		return k
	}

	self = read(of, 0)
	for up := self; up.Item.Parent() != nil && len(all) < MaxChain/2; all = append(all, up) {
		up = read(*up.Item.Parent(), up.Depth-1)
	}
	slices.Reverse(all)

	var add func(*Kin)
	add = func(k *Kin) {
		all = append(all, k)
		k.More = k.Item.MoreSuccessors + len(k.Item.Successors)
		for _, job := range k.Item.Successors {
			if len(all) < MaxChain {
				k.More--
				add(read(job, k.Depth+1))
			}
		}
	}
	add(self)
	return all, self
}

// IsOpen reports whether the chain waits for the job, as far as that is known: it is neither done
// nor gone.
func (k *Kin) IsOpen() bool { return k.Err == nil && k.Item.State != client.Done }

// Standing says how far the job is, and why it is no further.
func (k *Kin) Standing(now time.Time) string {
	since := func(t *time.Time) string {
		if t == nil {
			return "—"
		}
		return terminal.Short(now.Sub(*t))
	}

	it, letter := &k.Item, DeadLetter(&k.Item)
	by := ""
	if it.Holder != "" {
		by = " by " + it.Holder
	}
	text, why := string(it.State), it.Reason
	switch {
	case errors.Is(k.Err, client.ErrNotFound):
		return "gone: done and not kept, popped, removed, or expired"
	case k.Err != nil:
		return "not known: " + k.Err.Error()
	case it.Done != nil:
		text, why = "done "+since(&it.FinishedAt)+" ago"+by, ""
		if took := Took(it); took != nil {
			text += " in " + terminal.InWords(*took)
		}
	case letter != nil && (letter.Queue != "" || k.In != k.Queue):
		text = fmt.Sprintf("dead for %s: %s", since(&letter.At), letter.Reason)
		if why = letter.Error; why == letter.Reason {
			why = ""
		}
	case it.State == client.Leased:
		text = "leased" + by + " for " + since(it.LeasedAt)
	case it.State == client.Ready:
		text = "waits, pushed " + since(it.PushedAt) + " ago"
	}

	if it.Due != nil && it.Done == nil {
		unless := ""
		if it.State == client.Leased {
			unless = " unless renewed"
		}
		text += fmt.Sprintf(", ends in %s%s, at %s", terminal.Short(it.Due.Sub(now)), unless,
			it.Due.UTC().Format(time.DateTime))
	}
	if why != "" {
		text += "; last failure: " + why
	}
	return text
}

// Length returns how long an attempt was. It is nil if that is not known, or if the clock of one
// bridge was behind that of another.
func Length(a *trail.Attempt) *time.Duration {
	if a.From.IsZero() || a.To.Before(a.From) {
		return nil
	}
	d := a.To.Sub(a.From)
	return &d
}

// FirstPush returns when a job was pushed for the first time, which its id says. It is zero for an
// item that another program wrote to the store.
func FirstPush(id string) time.Time {
	const size, signature = 20, 0x9d51 // of the random part: see codec.RandomSize
	b, err := base64.RawURLEncoding.DecodeString(id)
	if err != nil || len(b) < size {
		return time.Time{}
	}
	b = b[len(b)-size:]
	if binary.BigEndian.Uint16(b[8:]) != signature {
		return time.Time{}
	}
	return time.UnixMicro(int64(binary.BigEndian.Uint64(b) & (1<<56 - 1))).UTC()
}
