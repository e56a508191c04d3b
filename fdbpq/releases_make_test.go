package fdbpq_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/subjects/schedule"
	"github.com/pqbridge/pqbridge/subjects/settings"
	"github.com/pqbridge/pqbridge/testenv"
)

// makeRelease makes stores with something of everything that stores have.
func makeRelease(t *testing.T, name string) {
	dir := filepath.Join(t.TempDir(), "store")
	options := pebblekv.Options{Logger: slog.New(slog.DiscardHandler)}
	embedded := must(pebblekv.Open(dir, options))
	dest := filepath.Join(releases, name)
	var keys bytes.Buffer
	zipped := gzip.NewWriter(&keys)

	for _, db := range []kv.Database{testenv.FDB(t), embedded} {
		f := newFixtureIn(t, db, "pq", "q", fdbpq.RawValues)
		f.batcher.SetNow(func() time.Time { return released })
		must(f.open(f.Keyspace, fdbpq.StoreOptions{}))
		f.fillRelease()

		if db == embedded { // A backup has no logs, which are large.
			wantError(t, os.RemoveAll(dest), nil)
			wantError(t, os.MkdirAll(releases, 0o755), nil)
			wantError(t, embedded.Backup(f.ctx, dest), nil)

			text := []byte(f.describe() + f.use())
			wantError(t, os.WriteFile(dest+".txt", text, 0o644), nil)
			continue
		}

		for _, pair := range f.pairs() {
			for _, text := range [][]byte{pair.Key, pair.Value} {
				must(zipped.Write(append(binary.AppendUvarint(nil, uint64(len(text))), text...)))
			}
		}
	}

	wantError(t, zipped.Close(), nil)
	wantError(t, os.WriteFile(dest+".keys.gz", keys.Bytes(), 0o644), nil)
}

// loadKeys calls set for each pair of a file that makeRelease has made: the lengths of key and
// value as varints, each before its bytes.
func loadKeys(path string, set func(key, value []byte)) error {
	zipped, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(zipped))
	if err != nil {
		return err
	}
	rest, err := io.ReadAll(unzipped)
	if err != nil {
		return err
	}

	next := func() []byte {
		length, n := binary.Uvarint(rest)
		text := rest[n : n+int(length)]
		rest = rest[n+int(length):]
		return text
	}
	for len(rest) > 0 {
		key := next()
		set(key, next())
	}
	return nil
}

// note is what a client remembers: a token of a lease, or the id of a job. The queue "notes" has
// them.
type note struct {
	Queue      string
	FIFO       bool
	Token, Job string `json:",omitzero"`
	Lost       bool   `json:",omitzero"` // the lease has ended
}

// fillRelease makes queues of both kinds, with items in every state, and keys of every kind.
func (f *fixture) fillRelease() {
	f.fixGroups() // so that the order of groups is the same in all stores
	jobs, kept, line := f.queue("jobs"), f.queue("kept"), f.fifoQueue("line")
	var notes []note
	lease := func(q fdbpq.Target, holder string, lost bool) fdbpq.Token {
		op := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Hour, Holder: holder}
		r := f.done(op)
		l, token := q.Layout(), r.Lease.Token
		notes = append(notes,
			note{Queue: l.Name(), FIFO: l.Fifo, Token: token.String(), Lost: lost},
			note{Queue: l.Name(), FIFO: l.Fifo, Job: r.Item.Job().String()})
		return token
	}

	f.configure(jobs, func(s *fdbpq.Settings) {
		s.MaxDeliver, s.Backoff, s.DuplicateWindow = 5, []time.Duration{time.Minute}, time.Hour
		s.MaxBytes, s.MaxItems, s.Rate = 1<<20, 100, "1000/1m"
		s.PausedGroups, s.MaxLeasedPerGroup, s.Trail = []string{"paused"}, 2, 8
	})
	f.configure(line, func(s *fdbpq.Settings) {
		s.Source, s.Keep, s.KeepItems = `{"stream":"ORDERS"}`, 24*time.Hour, 50
	})
	f.configure(kept, func(s *fdbpq.Settings) {
		s.Keep, s.AckWait, s.Next = 24*time.Hour, time.Hour, []string{"mail", "report"}
	})
	f.setConsumer(line, "reader", `{"position":1}`)
	hourly := schedule.Schedule{ID: "tick", Every: schedule.Duration(time.Hour)}
	f.setSchedule(jobs, hourly, released)

	full := opPush(jobs, -1, strings.Repeat("0123456789", 9_100))
	full.Message.Headers = map[string][]string{"Trace": {"1", "2"}, "Empty": {""}}
	full.Message.MsgID, full.Message.Unique, full.TTL = "id", "key", time.Hour
	f.apply(full, opPush(jobs, 1<<40, "rare"), opPush(line, 0, "first"), opPush(line, 0, "second"),
		opPush(line, 0, "third"))

	for i := range 6 {
		f.apply(opPush(jobs, 0, fmt.Sprint("plain", i)))
	}

	f.apply(withDelay(opPush(jobs, 2, "delayed"), time.Hour))
	for _, group := range []string{"acme", "acme", "paused", "globex"} {
		f.apply(inGroup(opPush(jobs, 3, "of "+group), group))
	}

	// The full item stays leased with a holder. Of the next, one comes back later, one dies, and
	// one is ready at once.
	lease(jobs, "me", false)
	for _, settle := range []fdbpq.Op{
		{Kind: fdbpq.OpNak, Queue: jobs, Reason: "later", Delay: time.Hour},
		{Kind: fdbpq.OpTerm, Queue: jobs, Reason: "never"},
		{Kind: fdbpq.OpNak, Queue: jobs, Reason: "again"},
	} {
		settle.Token = lease(jobs, "", true)
		f.done(settle)
	}

	// Jobs that have moved: one is done, one leased with progress, one ready. The one that is done
	// has a successor, in a queue that is paused, beside one that expires.
	for _, value := range []string{"done", "begun", "moved"} {
		f.moved(kept, opPush(kept, 1, value))
	}
	f.done(ackWith(line, lease(line, "", true), "result of first"))
	done := ackWith(kept, lease(kept, "me", true), "result of done")
	done.Report.Next = []fdbpq.Op{opPush(f.queue("mail"), 1, "successor")}
	f.done(done)
	f.done(fdbpq.Op{
		Kind: fdbpq.OpExtend, Queue: kept, Token: lease(kept, "you", false),
		Report: &fdbpq.Report{Progress: []byte("half")},
	})
	lease(line, "", false)

	mail, letter := f.queue("mail"), opPush(f.queue("mail"), 0, "letter")
	letter.Message.Unique, letter.TTL = "letter", time.Hour
	f.apply(letter)
	f.configure(mail, func(s *fdbpq.Settings) {
		s.MaxLeased, s.MaxItems, s.Discard, s.DeadLetter = 10, 100, settings.DiscardOld, "lost"
		s.TTL, s.PauseUntil = 3*time.Hour, released.Add(90*time.Minute)
	})

	// A joiner with a member in its queue and one in another.
	report := f.queue("report")
	waiting := f.done(joining(opPush(report, 1, "report"))).Item.ID
	f.done(memberOf(report, waiting, opPush(report, 0, "part")))
	f.done(memberOf(report, waiting, opPush(kept, 9, "part elsewhere")))

	// A group at its limits.
	turns := f.queue("turns")
	f.configure(turns, func(s *fdbpq.Settings) { s.MaxLeasedPerGroup, s.RatePerGroup = 1, "2/1h" })
	for _, group := range []string{"a", "a", "a", "b"} {
		f.apply(inGroup(opPush(turns, 0, "of "+group), group))
	}
	lease(turns, "", false)

	// What other programs leave: an item of the bare recipe, an answer that was not collected, a
	// claim, and a request of a staged pop that has ended.
	f.foreign(items(f.fifo, "line"), tuple.Tuple{int64(99)}, "foreign")
	f.leave(jobs, released, fdbpq.Back)
	write(f, func(tx kv.Transaction) {
		l, until, id := kept.Layout(), released.Add(answerLife), codec.ID{}.Random
		tx.Set(l.RequestKey(1, id), codec.EncodeRequest(fdbpq.Front, until))
		state.SetUntil(l, tx, until, l.PartKey(codec.PartClaim, id), codec.EncodeClaim(until, 1))
	})

	// A queue that is about to leave the list, and what a bridge writes to see that it can.
	idle := f.queue("idle")
	f.apply(opPush(idle, 0, "gone"))
	f.done(op(opPopMin, idle))
	f.retire("idle", []fdbpq.Target{idle}, fdbpq.NewMark(), "", fdbpq.Marked)
	wantError(f.T, fdbpq.Probe(f.ctx, f.db, f.Keyspace), nil)

	f.apply(opPush(f.fifoQueue("notes"), 0, string(must(json.Marshal(notes)))))
	wantEqual(f.T, "kinds without keys", f.check().Missing, nil)
}
