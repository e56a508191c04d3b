package codec

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// Errors of package fdbpq, which says when they are returned and has more of its own.
var (
	ErrEmpty        = errors.New("fdbpq: the queue is empty")
	ErrPaused       = errors.New("fdbpq: the queue is paused")
	ErrFull         = errors.New("fdbpq: the queue is full")
	ErrFullBytes    = fmt.Errorf("%w: it has reached max_bytes", ErrFull)
	ErrKeyspace     = errors.New("fdbpq: invalid key prefixes")
	ErrQueueName    = errors.New("fdbpq: invalid queue name")
	ErrID           = errors.New("fdbpq: invalid item id")
	ErrToken        = errors.New("fdbpq: invalid lease token")
	ErrItemTooLarge = errors.New("fdbpq: the item is too large")
	ErrNoRoom       = errors.New("fdbpq: one transaction has no room for all that comes with it: " +
		"try again")
	ErrExists    = errors.New("fdbpq: the item is in the queue already")
	ErrNotFound  = errors.New("fdbpq: no such item")
	ErrManyRates = errors.New("fdbpq: too many groups have a rate in use to purge all at once: " +
		"purge the states one by one")
	ErrJoins     = errors.New("fdbpq: jobs wait for others")
	ErrManyJoins = fmt.Errorf("%w: the items are members of too many joins to purge all at once: "+
		"purge the states one by one", ErrJoins)
	ErrSettings = errors.New("fdbpq: invalid settings")
	ErrOp       = errors.New("fdbpq: invalid operation")
	ErrCorrupt  = errors.New("fdbpq: stored data cannot be read")
)

// UnlessCorrupt returns nil for ErrCorrupt, and any other error.
func UnlessCorrupt(err error) error {
	if errors.Is(err, ErrCorrupt) {
		return nil
	}
	return err
}

// element stores an element of a tuple in to, if it has the right type.
func element[T any](from any, to *T) bool {
	value, ok := from.(T)
	*to = value
	return ok
}

// appendInts appends elements of a tuple.
func appendInts(b []byte, fields ...int64) []byte {
	for _, field := range fields {
		b = tuple.AppendInt(b, field)
	}
	return b
}

// appendTime appends a time in microseconds since 1970; the zero time is 0.
func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return tuple.AppendInt(b, 0)
	}
	return tuple.AppendInt(b, t.UnixMicro())
}

// decoder reads the elements of a tuple one after the other. err is the first error; after it all
// elements are zero.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) int() (v int64) {
	if d.err == nil {
		v, d.rest, d.err = tuple.DecodeInt(d.rest)
	}
	return v
}

// bytes returns memory that may be shared with the data.
func (d *decoder) bytes() (v []byte) {
	if d.err == nil {
		v, d.rest, d.err = tuple.DecodeBytes(d.rest, nil)
	}
	return v
}

func (d *decoder) text() (v string) {
	if d.err == nil {
		v, d.rest, d.err = tuple.DecodeString(d.rest)
	}
	return v
}

// start enters a nested tuple.
func (d *decoder) start() {
	if d.err == nil {
		d.rest, d.err = tuple.DecodeStart(d.rest)
	}
}

// ended leaves a nested tuple if it has no more elements. With an error it has none.
func (d *decoder) ended() (ended bool) {
	if d.err == nil {
		d.rest, ended = tuple.DecodeEnd(d.rest)
	}
	return ended || d.err != nil
}

// skip passes over an element.
func (d *decoder) skip() {
	if d.err == nil {
		_, d.rest, d.err = tuple.Decode(d.rest)
	}
}

// close leaves a nested tuple, which must have no more elements.
func (d *decoder) close() {
	if !d.ended() {
		d.err = errMore
	}
}

// encodedID reads what EncodeID has made.
func (d *decoder) encodedID() ID {
	place := decoder{rest: d.bytes()}
	id := place.id()
	d.err = cmp.Or(d.err, place.end())
	return id
}

// duration reads microseconds.
func (d *decoder) duration() time.Duration { return time.Duration(d.int()) * time.Microsecond }

// time reads microseconds since 1970.
func (d *decoder) time() time.Time { return time.UnixMicro(d.int()).UTC() }

// timeOrNone reads what appendTime wrote.
func (d *decoder) timeOrNone() time.Time {
	if micros := d.int(); micros != 0 {
		return time.UnixMicro(micros).UTC()
	}
	return time.Time{}
}

var errMore = errors.New("more bytes follow")

// more reports whether there are more elements.
func (d *decoder) more() bool { return d.err == nil && len(d.rest) > 0 }

// end returns err, or an error if there are more elements.
func (d *decoder) end() error {
	if d.more() {
		return errMore
	}
	return d.err
}

// finish returns what d has read of data, or an error that wraps ErrCorrupt, says what data is, and
// is about the first element that could not be read, or about more that follows.
func finish[T any](d *decoder, v T, what string, data []byte) (T, error) {
	if err := d.end(); err != nil {
		var none T
		return none, fmt.Errorf("%w: %s %.200x: %w", ErrCorrupt, what, data, err)
	}
	return v, nil
}

// MaxNakReason is how many bytes of the reason of a negative acknowledgement are kept.
const MaxNakReason = 1024

// textSize is the length of a header name or value in a tuple, where a zero byte takes two.
func textSize(text string) int { return len(text) + strings.Count(text, "\x00") + 2 }

// Forever is later than all times that are stored.
var Forever = time.UnixMicro(1<<62 - 1)

// Earliest returns the earlier of two times; a zero time is none.
func Earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Micros returns a time as it is stored: in UTC, to the microsecond.
func Micros(t time.Time) time.Time { return time.UnixMicro(t.UnixMicro()).UTC() }

// CheckLease returns an error that wraps ErrOp if a lease cannot have this length; 0 is the default
// length.
func CheckLease(d time.Duration) error {
	if err := settings.CheckBounds(d, settings.MinLease, settings.MaxLease); err != nil {
		return fmt.Errorf("%w: a lease of %w", ErrOp, err)
	}
	return nil
}
