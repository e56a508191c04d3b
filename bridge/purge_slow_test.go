package bridge_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// slowCommits is a store whose commits take a while, once it is told so.
type slowCommits struct {
	kv.Database
	delay atomic.Int64
}

func (s *slowCommits) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	tx, err := s.Database.Begin(ctx, o)
	return slowTransaction{tx, s}, err
}

type slowTransaction struct {
	kv.Transaction
	s *slowCommits
}

func (tx slowTransaction) Commit() kv.Future[struct{}] {
	<-time.After(time.Duration(tx.s.delay.Load()))
	return tx.Transaction.Commit()
}

// A purge that takes longer than a request may says how much is done, and goes on when it is asked again.
func TestPurgeTakesLong(t *testing.T) {
	store := &slowCommits{}
	e := testenv.New(t, testenv.Options{
		Wrap:   func(db kv.Database) kv.Database { store.Database = db; return store },
		Bridge: func(o *bridge.Options) { o.RequestTimeout = time.Second },
	})
	const n = 10_000
	q, err := e.Keyspace.PriorityQueue("jobs")
	if err != nil {
		t.Fatal(err)
	}
	batcher := fdbpq.NewBatcher(e.DB, e.Keyspace) // not by requests, which take long where the machine is slow
	push := fdbpq.Op{Kind: fdbpq.OpPush, Queue: q}
	for range n / 1000 {
		if _, err := batcher.Apply(t.Context(), slices.Repeat([]fdbpq.Op{push}, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	store.delay.Store(int64(350 * time.Millisecond))
	purged := 0
	for refusals := 0; ; refusals++ {
		reply := e.Request("pq.jobs.purge", nil, nil)
		err := bridge.ErrorFromHeaders(reply.Header)
		if err == nil {
			if refusals == 0 {
				t.Error("all was purged at once")
			}
			last, err := subjects.ParseReply[subjects.Purged](reply.Data)
			if purged += int(last.Purged); err != nil || purged != n {
				t.Errorf("purged %d in all, %v: want %d", purged, err, n)
			}
			break
		}
		var done int
		wire := isError(t, 503, "purge", reply)
		before, after, _ := strings.Cut(wire.Text, "; ")
		if _, err := fmt.Sscanf(after, "%d items are done, ask again for the rest", &done); err != nil || before == "" || refusals > n {
			t.Fatalf("%v: %v", wire, err)
		}
		purged += done
	}
	wantQueued(t, e, 0)
}
