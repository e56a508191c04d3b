package due

import (
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
	// SweepPage is the same for the queues of OpSweeps, together. A request that comes
	// meanwhile waits for it, which takes some 30 ms.
	SweepPage = 2048
	// HeldBytes is about the most bytes of held items that it returns to all of its queues, beside
	// a push of MaxMessageSize, and MostHeldBytes where there is room for that.
	HeldBytes     = 500_000
	MostHeldBytes = 1_000_000
	// ExpiredBytes and MostExpiredBytes are the same for state.ExpiredSize of the expired items
	// that it removes.
	ExpiredBytes     = 250_000
	MostExpiredBytes = 4_000_000

	// firstReturn is how many values a transaction reads first of what it brings back, and each
	// later step reads returnGrowth times as many: nobody knows how large they are before.
	firstReturn  = 8
	returnGrowth = 8
)

// Due is what has fallen due in one queue.
type Due struct {
	Ledger  *state.Ledger
	Dead    *Burials
	Page    int                      // entries to handle; 0 means the constant
	Entries kv.Future[[]kv.KeyValue] // nil before ReadIndex

	expired  *state.Expiries // what of that is ready items; nil if nothing is
	Handled  bool
	Done     bool      // it has brought back or removed something
	Returned bool      // items came back, or expired
	Next     time.Time // when the first of those that a backoff holds back is due
	More     bool      // there may be more than the transaction has room for
	Err      error     // ErrCorrupt if something that is due cannot be read
}

// New returns what is due in the queue of a ledger. Dead letters go to dead; page is how many
// entries to handle, 0 means Page.
func New(ledger *state.Ledger, dead *Burials, page int) Due {
	return Due{Ledger: ledger, Dead: dead, Page: page}
}

// ReadIndex starts to read what is due, the first time it is called: see Ledger.ReadDue.
func (d *Due) ReadIndex() {
	if d.Entries == nil {
		d.Entries = d.Ledger.ReadDue(d.limit())
	}
}

// Again has what is due then handled once more.
func (d *Due) Again() { d.Handled, d.Entries, d.expired, d.More = false, nil, nil, false }

func (d *Due) limit() int { return cmp.Or(d.Page, Page) }

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

// Room is the room that one transaction has for what is due.
type Room struct {
	Bytes   int // about; what is left of it
	Expired int // the same for expired items, which only have to be removed
	// Fits, unless nil, reports whether a dead letter that exceeds Bytes has room nevertheless, and
	// takes it.
	Fits func(size int) bool
}

// Behind reports whether another transaction may bring back more. It does not while
// something cannot be read, which would come first again.
func (d *Due) Behind() bool { return d.More && d.Err == nil }

// noteUnreadable records what cannot be read, and returns any other error.
func (d *Due) noteUnreadable(err error) error {
	if !errors.Is(err, codec.ErrCorrupt) {
		return err
	}
	d.Err = err
	return nil
}
