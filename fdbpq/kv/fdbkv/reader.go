//go:build fdb

package fdbkv

import (
	"math"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// reader reads from a transaction or from its snapshot.
type reader struct {
	t    *transaction
	from fdb.ReadTransaction
}

func (r reader) Get(key []byte) kv.Future[[]byte] {
	if err := r.t.usable(); err != nil {
		return kv.Ready[[]byte](nil, err)
	}
	if err := r.t.seesAll(kv.SingleKey(key)); err != nil {
		return kv.Ready[[]byte](nil, err)
	}
	value := r.from.Get(fdb.Key(key))
	return readFuture(r.t, value.Get)
}

func (r reader) GetRange(span kv.Range, o kv.RangeOptions) kv.Future[[]kv.KeyValue] {
	if err := r.t.usable(); err != nil || span.Empty() {
		return kv.Ready[[]kv.KeyValue](nil, err)
	}
	if !r.t.own.Any() {
		return r.getRange(span, o)
	}

	// Only what it had to examine counts: a pop sees all that it needs although the transaction
	// adds items further back.
	span = span.Clone()
	read := r.getRange(span, o)
	return &future[[]kv.KeyValue]{wait: func() ([]kv.KeyValue, error) {
		pairs, err := read.Get()
		if err == nil {
			err = r.t.seesAll(o.Examined(span, pairs))
		}
		return pairs, err
	}}
}

func (r reader) getRange(span kv.Range, o kv.RangeOptions) kv.Future[[]kv.KeyValue] {
	if o.Bytes > 0 {
		return r.getBytes(span, o)
	}

	// In this mode the client library starts reading the whole range now, so the read does not see
	// later writes. In other modes the binding reads the rest only when the result is used.
	options := fdb.RangeOptions{Limit: o.Limit, Mode: fdb.StreamingModeExact, Reverse: o.Reverse}
	if o.Limit == 0 {
		options.Limit = math.MaxInt32
	}

	result := r.from.GetRange(keyRange(span), options)
	return readFuture(r.t, func() ([]kv.KeyValue, error) {
		pairs, err := result.GetSliceWithError()
		if err != nil {
			return nil, err
		}

		out := make([]kv.KeyValue, len(pairs))
		for i, pair := range pairs {
			out[i] = kv.KeyValue{Key: pair.Key, Value: pair.Value}
		}

		return out, nil
	})
}

// getBytes is GetRange with a bound in bytes. The client library reads pieces of about 80,000
// bytes.
func (r reader) getBytes(span kv.Range, o kv.RangeOptions) kv.Future[[]kv.KeyValue] {
	// Most of the reading happens after the call, when the caller may have changed its bytes.
	span = span.Clone()

	// The transaction would conflict with writes anywhere in the last piece. So all pieces are read
	// from the snapshot, and the conflict range covers the pairs returned.
	options := fdb.RangeOptions{Limit: o.Limit, Mode: fdb.StreamingModeSerial, Reverse: o.Reverse}
	pieces := r.from.Snapshot().GetRange(keyRange(span), options).Iterator()
	return readFuture(r.t, func() ([]kv.KeyValue, error) {
		var pairs []kv.KeyValue
		more := func() bool { return o.Limit == 0 || len(pairs) < o.Limit }
		for size := 0; size < o.Bytes && more() && pieces.Advance(); {
			pair, err := pieces.Get()
			if err != nil {
				return nil, err
			}
			pairs = append(pairs, kv.KeyValue{Key: pair.Key, Value: pair.Value})
			size += len(pair.Value)
		}

		if tr, conflicts := r.from.(fdb.Transaction); conflicts {
			return pairs, tr.AddReadConflictRange(keyRange(o.Examined(span, pairs)))
		}

		return pairs, nil
	})
}

// readFuture returns the future of a read; get waits for it.
func readFuture[T any](t *transaction, get func() (T, error)) kv.Future[T] {
	return &future[T]{wait: func() (T, error) {
		value, err := get()
		if err != nil {
			err = t.readError(err)
		}
		return value, err
	}}
}

// future waits once and remembers the result.
type future[T any] struct {
	wait  func() (T, error)
	value T
	err   error
}

func (f *future[T]) Get() (T, error) {
	if f.wait != nil {
		f.value, f.err = f.wait()
		f.wait = nil
	}
	return f.value, f.err
}

// keyRange converts a range that is not empty. FoundationDB refuses a range whose begin is above
// its end.
func keyRange(r kv.Range) fdb.KeyRange {
	return fdb.KeyRange{Begin: fdb.Key(r.Begin), End: fdb.Key(r.End)}
}
