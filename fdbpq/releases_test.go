package fdbpq_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
	"github.com/pqbridge/pqbridge/subjects/schedule"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// releases has a folder for each release, which is a store that the release has made, and a text
// beside it that describes the store.
const releases = "testdata/releases"

var newRelease = flag.String("new-release", "", "make the store of the release with this name")

// released is the time in the stores of all releases.
var released = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)

// Every version reads the stores of all releases: items, states, settings and order.
func TestStoresOfReleases(t *testing.T) {
	if *newRelease != "" {
		makeRelease(t, *newRelease)
	}

	changes := must(os.ReadFile("../CHANGELOG.md"))
	for _, match := range regexp.MustCompile(`(?m)^## \[([0-9.]+)\]`).FindAllSubmatch(changes, -1) {
		name := string(match[1])
		t.Run(name, func(t *testing.T) {
			files := vfs.NewMem()
			found, err := vfs.Clone(vfs.Default, files, filepath.Join(releases, name), "db")
			if !found {
				t.Fatalf("no store of the release: make one with -new-release %s: %v", name, err)
			}

			f := newFixtureIn(t, openPebble(t, files), "pq", "q", fdbpq.RawValues)
			f.batcher.SetNow(func() time.Time { return released.Add(time.Second) })

			s, err := f.open(f.Keyspace, fdbpq.StoreOptions{Exclusive: true})

			if err != nil || s.New {
				t.Fatalf("opened %+v, %v: while the release is not out, make its store again "+
					"with -new-release %s", s, err, name)
			}
			f.check()

			want := string(must(os.ReadFile(filepath.Join(releases, name+".txt"))))
			if got := f.describe(); got != want {
				t.Errorf("the store has\n%s\nwant\n%s", got, want)
			}

			again := opPush(f.queue("jobs"), 0, "again")
			again.Message.MsgID = "id"
			if r := f.apply(again)[0]; !r.Duplicate {
				t.Errorf("the message id is not known: %+v", r)
			}
		})
	}
}

// makeRelease makes a store with something of everything that stores have.
func makeRelease(t *testing.T, name string) {
	dir := filepath.Join(t.TempDir(), "store")
	options := pebblekv.Options{Logger: slog.New(slog.DiscardHandler)}
	db := must(pebblekv.Open(dir, options))
	f := newFixtureIn(t, db, "pq", "q", fdbpq.RawValues)
	f.batcher.SetNow(func() time.Time { return released })
	must(f.open(f.Keyspace, fdbpq.StoreOptions{}))

	f.fillRelease()

	// A backup has no logs, which are large.
	dest := filepath.Join(releases, name)
	wantError(t, os.RemoveAll(dest), nil)
	wantError(t, os.MkdirAll(releases, 0o755), nil)
	wantError(t, db.Backup(f.ctx, dest), nil)

	text := []byte(f.describe())
	wantError(t, os.WriteFile(dest+".txt", text, 0o644), nil)
}

// fillRelease makes queues of both kinds, with items in every state.
func (f *fixture) fillRelease() {
	jobs, line := f.queue("jobs"), f.fifoQueue("line")
	f.configure(jobs, func(s *fdbpq.Settings) {
		s.MaxDeliver, s.Backoff, s.DuplicateWindow = 5, []time.Duration{time.Minute}, time.Hour
		s.MaxBytes, s.MaxItems, s.Rate = 1<<20, 100, "1000/1m"
		s.PausedGroups, s.MaxLeasedPerGroup = []string{"paused"}, 2
	})

	f.configure(line, func(s *fdbpq.Settings) { s.Source = `{"stream":"ORDERS"}` })
	f.setConsumer(line, "reader", `{"position":1}`)
	hourly := schedule.Schedule{ID: "tick", Every: schedule.Duration(time.Hour)}
	f.setSchedule(jobs, hourly, released)

	full := opPush(jobs, -1, strings.Repeat("0123456789", 9_100))
	full.Message.Headers = map[string][]string{"Trace": {"1", "2"}, "Empty": {""}}
	full.Message.MsgID, full.Message.Unique, full.TTL = "id", "key", time.Hour
	f.apply(full, opPush(jobs, 1<<40, "rare"), opPush(line, 0, "first"), opPush(line, 0, "second"))

	for i := range 6 {
		f.apply(opPush(jobs, 0, fmt.Sprint("plain", i)))
	}

	f.apply(withDelay(opPush(jobs, 2, "delayed"), time.Hour))
	for _, group := range []string{"acme", "acme", "paused", "globex"} {
		f.apply(inGroup(opPush(jobs, 3, "of "+group), group))
	}

	// The full item stays leased with a holder. Of the next, one comes back later, one dies, and
	// one is ready at once.
	lease := func(holder string) fdbpq.Token {
		op := fdbpq.Op{Kind: fdbpq.OpLease, Queue: jobs, Lease: time.Hour, Holder: holder}
		r := f.apply(op)[0]
		wantError(f.T, r.Err, nil)
		return r.Lease.Token
	}

	lease("me")
	for _, settle := range []fdbpq.Op{
		{Kind: fdbpq.OpNak, Queue: jobs, Reason: "later", Delay: time.Hour},
		{Kind: fdbpq.OpTerm, Queue: jobs, Reason: "never"},
		{Kind: fdbpq.OpNak, Queue: jobs, Reason: "again"},
	} {
		settle.Token = lease("")
		wantError(f.T, f.apply(settle)[0].Err, nil)
	}

	f.leave(jobs, released, fdbpq.Back)
}

// describe returns the contents of the queues, without what differs each time. A field that is not
// set has no place in it, so that later versions describe old stores alike.
func (f *fixture) describe() string {
	var b strings.Builder
	for _, queue := range f.listed() {
		r := f.read(
			fdbpq.Op{Kind: fdbpq.OpInfo, Queue: queue},
			fdbpq.Op{Kind: fdbpq.OpSettings, Queue: queue},
			fdbpq.Op{Kind: fdbpq.OpConsumers, Queue: queue},
			fdbpq.Op{Kind: fdbpq.OpSchedules, Queue: queue},
		)

		info := r[0].Info
		fmt.Fprintf(&b, "%s: %d ready, %d leased, %d delayed, %d groups\n", queue.Layout().Name(),
			info.Ready, info.Leased, info.Delayed, info.GroupCount)

		for row := range settings.All() {
			if row.IsSet(r[1].Settings) {
				value := reflect.ValueOf(row.Field(r[1].Settings)).Elem()
				fmt.Fprintf(&b, "\t%s = %v\n", row.Name, value)
			}
		}

		for _, record := range append(r[2].Records, r[3].Records...) {
			fmt.Fprintf(&b, "\trecord %s: %s\n", record.Name, record.Value)
		}

		if len(r[1].Source) > 0 {
			fmt.Fprintf(&b, "\tsource %s\n", r[1].Source)
		}

		items, _ := f.walk(fdbpq.Browse{}, queue, released.Add(time.Second))
		for i := range items {
			fmt.Fprintf(&b, "\titem %s\n", describeItem(&items[i]))
		}
	}

	return b.String()
}

func describeItem(i *fdbpq.Browsed) string {
	said := must(json.Marshal(struct {
		Value             string
		Bytes             int
		Priority, Count   int64
		State             string
		Headers           map[string][]string `json:",omitempty"`
		MsgID, Unique     string              `json:",omitzero"`
		PushedAt, Expires time.Time           `json:",omitzero"`
		Due, LeasedSince  time.Time           `json:",omitzero"`
		Deliveries        int64               `json:",omitzero"`
		Holder, Reason    string              `json:",omitzero"`
		DeadLetter        *fdbpq.DeadLetter   `json:",omitempty"`
		Err               error               `json:",omitempty"`
	}{
		fmt.Sprintf("%.20s", i.Value), len(i.Value), i.ID.Priority, i.ID.Count, i.State.String(),
		i.Headers, i.MsgID, i.Unique, i.PushedAt, i.Expires, i.Due, i.LeasedSince, i.Deliveries,
		i.Holder, i.Reason, i.DeadLetter, i.Err,
	}))
	return string(said)
}

// listed returns all queues of the Keyspace.
func (f *fixture) listed() (queues []fdbpq.Target) {
	names, err := kv.ReadTransact(f.ctx, f.db, func(r kv.Reader) ([]string, error) {
		return f.PriorityQueues(r, "", 100).Get()
	})
	wantError(f.T, err, nil)

	for _, name := range names {
		queues = append(queues, f.queue(name))
	}

	names, err = kv.ReadTransact(f.ctx, f.db, func(r kv.Reader) ([]string, error) {
		return f.Queues(r, "", 100).Get()
	})
	wantError(f.T, err, nil)

	for _, name := range names {
		queues = append(queues, f.fifoQueue(name))
	}

	return queues
}
