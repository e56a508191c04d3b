package outbox

import (
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// nobody is what NATS says if nobody is subscribed.
func nobody(subject string) *nats.Msg {
	return &nats.Msg{
		Subject: subject,
		Header:  nats.Header{"Status": {"503"}, "Nats-Subject": {"inbox"}},
	}
}

// rememberGone remembers an item of that size, and returns its reply subject.
func (o *testOutbox) rememberGone(size int) (subject string) {
	o.mu.Lock()
	const random = 5
	number := o.mu.numbered
	subject = o.goneSubjectLocked(random)
	o.mu.Unlock()
	o.remember("elsewhere", size)
	o.mu.Lock()
	defer o.mu.Unlock()
	_, s := o.sentItemLocked(number)
	s.random = random

	return subject
}

// Each item has a subject of its own, which can be read.
func TestGoneSubjects(t *testing.T) {
	o := newTest(t)
	made := map[string]bool{}

	for _, number := range []uint64{0, 1, 35, 36, 1 << 40, 1<<64 - 1} {
		for _, random := range []uint64{0, 1, 1<<63 + 5, 1<<64 - 1} {
			for range 100 {
				o.mu.numbered = number
				subject := o.goneSubjectLocked(random)
				if gotNumber, gotRandom, ok := o.parseGone(subject); !ok || gotNumber != number ||
					gotRandom != random {
					t.Errorf("%q is read as %d, %d, %t: want %d, %d", subject, gotNumber, gotRandom,
						ok, number, random)
				}

				made[subject] = true
			}
		}
	}
	if len(made) != 24 { // those made later have not changed them
		t.Errorf("%d different subjects", len(made))
	}

	for _, subject := range []string{
		"", "_PQ.", o.inbox, o.inbox + "1", o.inbox + "-", o.inbox + "1-", o.inbox + "-1",
		o.inbox + "1-1-1", "_PQ.x.1-1", o.inbox + "+1-1", o.inbox + "1-_",
	} {
		if _, _, ok := o.parseGone(subject); ok {
			t.Errorf("%q can be read", subject)
		}
	}
}

// The number finds the item as long as it is unconfirmed, and once.
func TestGoneFindsTheItem(t *testing.T) {
	o := newTest(t)
	givenBack := func(want int64) {
		t.Helper()
		if got, _ := o.dispatcher.Pending(); got != want {
			t.Fatalf("%d items are given back, want %d", got, want)
		}
	}

	var subjects []string
	for range 40 { // in many chunks; the first are forgotten
		o.mu.Lock()
		o.addReplyLocked("elsewhere")
		o.mu.Unlock()
		subjects = append(subjects, o.rememberGone(1<<19))
	}

	left := 0
	for _, c := range o.mu.chunks {
		for i := range c.items {
			c.items[i].Popped[0].ID.Count = int64(c.first) + int64(i)
			left++
		}
	}

	for n, subject := range subjects {
		number, _, _ := o.parseGone(subject)
		_, s := o.sentItemLocked(number)

		forgotten := n < len(subjects)-left
		if (s == nil) != forgotten || s != nil && s.Popped[0].ID.Count != int64(n) {
			t.Errorf("item %d of %d, %d of them left, is %+v", n, len(subjects), left, s)
		}
	}

	o.hearGone(nobody(subjects[0]))                                    // forgotten
	o.hearGone(nobody(o.inbox + strconv.Itoa(len(subjects)+1) + "-0")) // never sent
	o.hearGone(nobody(subjects[39] + "1"))                             // not its random part
	o.hearGone(&nats.Msg{Subject: subjects[39]})                       // not from NATS
	o.hearGone(&nats.Msg{Subject: subjects[39], Data: []byte("x"), Header: nobody("").Header})
	givenBack(0)
	o.hearGone(nobody(subjects[39]))
	o.hearGone(nobody(subjects[39]))
	givenBack(1)
	o.forget()
	o.hearGone(nobody(subjects[38]))
	givenBack(1)
}

// A denial and "no responders" never give one item back twice, and the one leaves no doubt
// about the other.
func TestGoneBesideDenials(t *testing.T) {
	o := newTest(t)
	gone, _ := o.rememberGone(1), o.rememberGone(1) // to one subject
	o.NoteDenied("elsewhere")
	o.hearGone(nobody(gone))
	o.markAsked()
	o.confirm(true)

	if n, _ := o.dispatcher.Pending(); n != 2 || o.unconfirmed() > 0 {
		t.Errorf("%d items are given back, want 2; %d are left", n, o.unconfirmed())
	}

	again := o.rememberGone(1)
	o.hearGone(nobody(again))
	o.NoteDenied("elsewhere")
	o.markAsked()
	o.confirm(true)

	if n, _ := o.dispatcher.Pending(); n != 3 {
		t.Errorf("%d items are given back, want 3", n)
	}
}

// A leased item in a message of its own has no such subject, not even one with the random part that
// it has in memory.
func TestGoneLeaseHasNoSubject(t *testing.T) {
	o := newTest(t)
	subject := o.rememberGone(1)
	number, _, _ := o.parseGone(subject)
	_, s := o.sentItemLocked(number)
	s.Popped, s.Leased, s.random = nil, []fdbpq.Lease{{Token: fdbpq.Token{Fence: 7}}}, 0
	o.hearGone(nobody(o.inbox + strconv.FormatUint(number, 36) + "-0"))
	o.hearGone(nobody(subject))

	if n, _ := o.dispatcher.Pending(); n != 0 || s.subject == "" {
		t.Errorf("%d items are given back", n)
	}
}

// An item that nobody received counts as unconfirmed once, while it goes back as before.
func TestGoneCountsOnce(t *testing.T) {
	const size = 1 << 20
	o := newTest(t)
	subject := o.rememberGone(size)
	o.hearGone(nobody(subject))

	n, _ := o.dispatcher.Pending()
	if n != 1 || o.mu.bytes >= size || o.mu.chunks[0].bytes != o.mu.bytes {
		t.Errorf("%d items go back, and %d bytes besides, %d in the chunk", n, o.mu.bytes,
			o.mu.chunks[0].bytes)
	}

	o.forget()
	if o.mu.bytes != 0 {
		t.Errorf("%d bytes are left", o.mu.bytes)
	}
}
