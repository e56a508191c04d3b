package state

import (
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// Facts about the time index go by the wall clock: the monotonic one stands still while the machine
// sleeps.
func TestKnownDueByWallClock(t *testing.T) {
	queues := NewQueueCache(MaxQueueCache)
	g := &Ledger{cache: &cachedQueue{cache: queues, quietUntil: codec.Forever}}
	g.NoteDue(time.Now().Add(time.Minute))

	for _, at := range []time.Time{g.Upcoming.Due, g.cache.quietUntil} {
		if at != at.Round(0) {
			t.Errorf("%v has a reading of the monotonic clock", at)
		}
	}
}

// The leases of 128 workers with 100 items each can be remembered, however large the items are.
func TestKnownLeasesFit(t *testing.T) {
	cache := NewQueueCache(MaxQueueCache)
	cache.turn = 1
	l := codec.NewLayout(tuple.NewSubspace(tuple.Tuple{"jobs"}), codec.RawValues, false)
	c := cache.queue(l)
	before := c.size
	value := make([]byte, 10_000)

	leased := func(i int) *codec.Record {
		return &codec.Record{
			ID:      codec.ID{Priority: 5, Count: int64(i)},
			State:   codec.Leased,
			Value:   value,
			Message: &codec.Message{Value: value},
		}
	}

	const leases = 12_800
	for i := range leases {
		c.knowLeased(l, leased(i))
	}
	if c.size >= MaxQueueCache/2 {
		t.Errorf("%d leases take %d bytes: want less than %d", leases, c.size, MaxQueueCache/2)
	}

	if h := c.leased[leased(0).ID]; h.Value != nil || h.Message != nil || h.Dropped != len(value) {
		t.Errorf("known is a value of %d bytes, a message %v, and that %d bytes were dropped",
			len(h.Value), h.Message, h.Dropped)
	}

	for i := range leases {
		c.forgetLeased(&leased(i).ID)
	}
	if len(c.leased) != 0 || c.size != before {
		t.Errorf("%d leases of %d bytes are known, and none is left", len(c.leased), c.size-before)
	}
}

// Items that stay known share no memory with what was read beside them, which may be much more.
func TestKnownItemsHaveTheirMemory(t *testing.T) {
	cache := NewQueueCache(MaxQueueCache)
	cache.turn = 1
	l := codec.NewLayout(tuple.NewSubspace(tuple.Tuple{"jobs"}), codec.RawValues, false)
	c, block := cache.queue(l), []byte("keyvalue")

	read := oneItem{{Key: block[:3], Value: block[3:]}}
	if _, err := c.page(l, read, kv.RangeOptions{Limit: 1, Bytes: 1}); err != nil {
		t.Fatal(err)
	}
	clear(block)
	if p := c.readAhead.items[0]; string(p.Key) != "key" || string(p.Value) != "value" {
		t.Errorf("known is %q, %q", p.Key, p.Value)
	}
}

// oneItem is a store that finds the same in every range.
type oneItem []kv.KeyValue

func (o oneItem) Get([]byte) kv.Future[[]byte] { return kv.Ready[[]byte](nil, nil) }

func (o oneItem) GetRange(kv.Range, kv.RangeOptions) kv.Future[[]kv.KeyValue] {
	return kv.Ready[[]kv.KeyValue](o, nil)
}
