package codec

import (
	"maps"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/subjects/settings"
	"github.com/pqbridge/pqbridge/subjects/trail"
)

// An attempt is a delivery of an item that has ended and counts. In a queue with Settings.Trail,
// the first attempt of each item and its newest ones are in
//
//	("A", priority, count, random, number) = (from, to, how, holder, reason)
//
// number is the count of deliveries that the attempt had. An end that does not count gives it back,
// and the next attempt writes over what is there; so does a late end of a lease that has run out.
// So each attempt stands here once, and nobody needs to read what is there.
//
// These keys are written where an attempt ends and the item stays in the queue, and removed where
// the item leaves it: one by one, since each of its numbers is known, from its count of deliveries.
// A program with the bare recipe, and an older version, leave them.
//
// An item that dies, or whose job is kept, takes its attempts along in the header trail.Header, and
// begins its next life with that.
const KindAttempt = "A"

// AttemptKey is the key of an attempt of an item.
func (l *Layout) AttemptKey(id *ID, number int64) []byte {
	return tuple.AppendInt(l.IDKey(KindAttempt, id), number)
}

// AttemptRange is the range of the attempts of an item.
func (l *Layout) AttemptRange(id *ID) kv.Range { return Within(l.IDKey(KindAttempt, id)) }

// AttemptsSize is about the most bytes that the attempts of an item have, in keys of their own or
// in a header.
const AttemptsSize = (settings.MaxTrail + 1) * (trail.MaxReason + settings.MaxHolder + 64)

// Attempts returns how many attempts of the item have ended: its deliveries, without one that still
// runs.
func (h *Record) Attempts() int64 {
	if h.State == Leased {
		return h.Deliveries - 1
	}
	return h.Deliveries
}

// Attempt returns the attempt that ends now with the lease of the item, or that has ended with it.
func (h *Record) Attempt(how trail.End, at time.Time, reason string) trail.Attempt {
	a := trail.Attempt{Number: h.Deliveries, To: Micros(at), How: how, Holder: h.Holder}
	a.Reason = trail.Clean(reason)
	if !h.Since.IsZero() {
		a.From = Micros(h.Since)
	}
	return a
}

// EncodeAttempt returns the value of an attempt's key.
func EncodeAttempt(a *trail.Attempt) []byte {
	b := tuple.AppendBytes(appendTime(appendTime(nil, a.From), a.To), []byte(a.How))
	return tuple.AppendBytes(tuple.AppendBytes(b, []byte(a.Holder)), []byte(a.Reason))
}

// ParseAttempt reads an attempt of an item. The error is ErrCorrupt.
func (l *Layout) ParseAttempt(id *ID, pair kv.KeyValue) (a trail.Attempt, err error) {
	number := decoder{rest: pair.Key[len(l.IDKey(KindAttempt, id)):]}
	a.Number = number.int()
	if a, err = finish(&number, a, "attempt: key", pair.Key); err != nil {
		return a, err
	}
	value, err := ParseAttemptValue(pair.Value)
	value.Number = a.Number
	return value, err
}

// ParseAttemptValue reads what EncodeAttempt wrote. The error is ErrCorrupt.
func ParseAttemptValue(value []byte) (a trail.Attempt, err error) {
	d := decoder{rest: value}
	a.From, a.To, a.How = d.timeOrNone(), d.time(), trail.End(d.bytes())
	a.Holder, a.Reason = string(d.bytes()), string(d.bytes())
	return finish(&d, a, "attempt: value", value)
}

// Trail returns the attempts that the message carries, and the number of the life after them.
func (m *Message) Trail() (past []trail.Attempt, life int64) {
	past = trail.Parse(m.Headers[trail.Header])
	if len(past) > 0 {
		life = past[len(past)-1].Life
	}
	return past, life + 1
}

// EndLife adds the attempts of this life, at most so many with those before.
func (m *Message) EndLife(attempts []trail.Attempt, most int64) {
	if len(attempts) > 0 {
		m.SetTrail(m.Attempts(attempts), most)
	}
}

// SetTrail makes the message carry attempts, at most so many: but always the last one, which knows
// the number of its life, and as many as the message has carried before. Where that would make it
// too large, it stays as it is.
func (m *Message) SetTrail(all []trail.Attempt, most int64) {
	if most > 0 && m.Size() <= MaxMessageSize-trail.MaxBytes {
		past := min(len(m.Headers[trail.Header]), settings.MaxTrail)
		m.SetHeader(trail.Header, trail.Values(all, max(int(most), past, 2)))
	}
}

// Attempts returns the attempts of the message's earlier lives, and those of this one.
func (m *Message) Attempts(attempts []trail.Attempt) []trail.Attempt {
	all, life := m.Trail()
	for _, a := range attempts {
		a.Life = life
		all = append(all, a)
	}
	return all
}

// done is the attempt that ended with the acknowledgement.
func (f *Finished) done() trail.Attempt {
	return trail.Attempt{
		Number: f.Deliveries, From: f.Since, To: f.At, How: trail.Done, Holder: f.Holder,
	}
}

// NoteTrail notes the attempts that a job had before it was done, at most so many with those of
// earlier lives. Of a job that was done at once, in its first life, the record says all without.
func (f *Finished) NoteTrail(attempts []trail.Attempt, most int64) {
	if len(attempts)+len(f.Headers[trail.Header]) > 0 {
		f.EndLife(append(attempts, f.done()), most)
	}
}

// Attempts returns all attempts of a job that is done.
func (f *Finished) Attempts() []trail.Attempt {
	all, _ := f.Trail()
	if n := len(all); n > 0 && all[n-1].How == trail.Done && all[n-1].To.Equal(f.At) {
		return all
	}
	return f.Message.Attempts([]trail.Attempt{f.done()})
}

// SetHeader sets a header, and leaves the map of before as it is.
func (m *Message) SetHeader(name string, values []string) {
	m.Headers = maps.Clone(m.Headers)
	if m.Headers == nil {
		m.Headers = map[string][]string{}
	}
	m.Headers[name] = values
}
