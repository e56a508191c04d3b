package due

import (
	"bytes"
	"cmp"
	"errors"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

const (
	// Page is the most entries of one queue that a transaction handles, unless it sweeps the queue.
	Page = 256
	// SweepPage is the most entries of all queues that a transaction sweeps, together. A request
	// that comes meanwhile waits for it, which takes some 30 ms.
	SweepPage = 2048

	// HeldBytes is about the most bytes of held items that a transaction brings back to all of its
	// queues, beside a push of MaxMessageSize, and MostHeldBytes where there is room for that.
	HeldBytes     = 500_000
	MostHeldBytes = 1_000_000
	// ExpiredBytes and MostExpiredBytes are the same for the expired items that it removes,
	// measured by state.ExpiredSize.
	ExpiredBytes     = 250_000
	MostExpiredBytes = 4_000_000

	// firstReturn is how many values a transaction reads first of what it brings back, because
	// nobody knows how large they are. Each later step reads returnGrowth times as many.
	firstReturn  = 8
	returnGrowth = 8
)

// Due is what has fallen due in one queue.
type Due struct {
	Ledger   *state.Ledger
	Outgoing *Outgoing
	Page     int                      // entries to handle; 0 means the constant
	Entries  kv.Future[[]kv.KeyValue] // nil before ReadIndex

	expired  *state.Expiries // ready items among what is due; nil if there are none
	Handled  bool
	Done     bool      // something came back, or was removed
	Returned bool      // items came back, or expired
	Next     time.Time // when the first item that a backoff holds back is due
	More     bool      // there may be more than the transaction has room for
	Err      error     // ErrCorrupt if something that is due cannot be read
}

// ReadIndex starts to read the due entries, unless that has begun: see Ledger.ReadDue.
func (d *Due) ReadIndex() {
	if d.Entries == nil {
		d.Entries = d.Ledger.ReadDue(d.limit())
	}
}

// Again makes the next Find read the due entries once more.
func (d *Due) Again() { d.Handled, d.Entries, d.expired, d.More = false, nil, nil, false }

// limit is the most entries to handle.
func (d *Due) limit() int { return cmp.Or(d.Page, Page) }

// Behind reports whether another transaction may bring back more. It may not while something cannot
// be read, because that would come first again.
func (d *Due) Behind() bool { return d.More && d.Err == nil }

// noteUnreadable records an ErrCorrupt, and returns any other error.
func (d *Due) noteUnreadable(err error) error {
	if !errors.Is(err, codec.ErrCorrupt) {
		return err
	}
	d.Err = err
	return nil
}

// Budget is how much due work fits into one transaction.
type Budget struct {
	Bytes   int // about how many are left for items that move
	Expired int // the same for expired items, which are only removed
	// Fits reports whether a dead letter of size bytes fits although it exceeds Bytes, and reserves
	// what it takes. nil means that none does.
	Fits func(size int) bool
}

// dueRecord is a key that is due, and its entry.
type dueRecord struct {
	key, entry []byte
	says       []byte // the value of the entry
}

// remove removes both.
func (r *dueRecord) remove(tx kv.Transaction) {
	tx.Clear(r.key)
	tx.Clear(r.entry)
}

// expiringKey is a key that is removed when it is due: the row of a rate that allows a full burst
// again (see state.Bucket), or a consumer that nobody uses.
type expiringKey struct {
	dueRecord
	due      *Due
	value    kv.Future[[]byte]
	until    func(value []byte) time.Time // when it falls due
	consumer string                       // its name; "" for a row
}

// expire removes the key with its entry, unless it is a consumer that gets a last term. If the key
// has another time by now, only the entry goes.
func (k *expiringKey) expire() error {
	value, err := k.value.Get()
	if err != nil {
		return err
	}

	g := k.due.Ledger
	g.Tx.Clear(k.entry)
	k.due.Done = true
	switch {
	case value == nil || !bytes.Equal(g.L.DueKey(k.until(value), k.key), k.entry):
	case k.consumer != "":
		last := codec.LastTerm(value, g.Now)
		before, next := codec.ConsumerExpires(value), codec.ConsumerExpires(last)
		g.SetRecord(codec.ConsumerRecord, k.consumer, last, before, next)
	default:
		g.Tx.Clear(k.key)
	}
	return nil
}
