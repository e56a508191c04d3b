package fdbpq_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// releases has three files for each release: a folder with an embedded store that the release has
// made, all keys of a Keyspace that it has made in FoundationDB, and a text that describes what is
// in both, and what becomes of it. To make them:
//
//	PQ_TEST_FDB=1 go test -tags fdb ./fdbpq -run StoresOfReleases -new-release 1.2.3
const releases = "testdata/releases"

var newRelease = flag.String("new-release", "", "make the stores of the release with this name")

// released is the time in the stores of all releases.
var released = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)

// Every version reads the stores of all releases, and goes on with them: items, states, settings
// and order, tokens of leases, ids of jobs, and all that falls due. The stores of a release that is
// not out yet have keys and settings of every kind.
func TestStoresOfReleases(t *testing.T) {
	if *newRelease != "" {
		makeRelease(t, *newRelease)
	}

	changes := string(must(os.ReadFile("../CHANGELOG.md")))
	heading := regexp.MustCompile(`(?m)^## \[([0-9.]+)\](.*)`)
	for _, match := range heading.FindAllStringSubmatch(changes, -1) {
		name, isNext := match[1], strings.Contains(match[2], "unreleased")
		t.Run(name+"/embedded", func(t *testing.T) {
			files := vfs.NewMem()
			found, err := vfs.Clone(vfs.Default, files, filepath.Join(releases, name), "db")
			if !found {
				t.Fatalf("no store of the release: see -new-release: %v", err)
			}
			testRelease(t, openPebble(t, files), name, isNext)
		})

		// All stores take the keys of FoundationDB, and the one in memory works as it does.
		for _, e := range engines() {
			t.Run(name+"/keyspace/"+e.name, func(t *testing.T) {
				db := e.open(t)
				err := kv.UpdateIdempotent(t.Context(), db, func(tx kv.Transaction) error {
					return loadKeys(filepath.Join(releases, name+".keys.gz"), tx.Set)
				})
				wantError(t, err, nil)
				testRelease(t, db, name, isNext)
			})
		}
	}
}

// testRelease tests the store of a release.
func testRelease(t *testing.T, db kv.Database, name string, isNext bool) {
	f := newFixtureIn(t, db, "pq", "q", fdbpq.RawValues)
	f.batcher.SetNow(func() time.Time { return released.Add(time.Second) })

	s, err := f.open(f.Keyspace, fdbpq.StoreOptions{Exclusive: true})
	if err != nil || s.New {
		t.Fatalf("opened %+v, %v: while the release is not out, make its stores again "+
			"with -new-release %s", s, err, name)
	}

	missing := append(f.check().Missing, f.unset()...)
	if isNext && len(missing) > 0 {
		t.Errorf("no keys and settings of the kinds %q: have fillRelease make some", missing)
	}

	want := string(must(os.ReadFile(filepath.Join(releases, name+".txt"))))
	if got := f.describe() + f.use(); got != want {
		t.Errorf("the store has\n%s\nwant\n%s", got, want)
	}
}

// use does what clients do once a newer version serves the store, and returns what they see.
func (f *fixture) use() string {
	var b strings.Builder
	var notes []note
	remembered := f.done(op(opPopMin, f.fifoQueue("notes"))).Item.Value
	wantError(f.T, json.Unmarshal(remembered, &notes), nil)

	at := func(after time.Duration) {
		now := released.Add(after)
		f.batcher.SetNow(func() time.Time { return now })
		fmt.Fprintf(&b, "after %v\n", after)
		for _, q := range f.listed() {
			for f.done(fdbpq.Op{Kind: fdbpq.OpSweep, Queue: q}).Swept.More {
			}
		}

		for _, n := range notes {
			q := f.queueOf(n.FIFO, n.Queue)
			if n.Job == "" {
				continue
			}
			r := f.apply(named(fdbpq.OpGet, q, must(fdbpq.ParseID(n.Job))))[0]
			said := "gone"
			if !errors.Is(r.Err, fdbpq.ErrNotFound) {
				wantError(f.T, r.Err, nil)
				said = describeItem(r.Found)
			}
			fmt.Fprintf(&b, "\tjob of %s: %s\n", n.Queue, said)
		}
	}

	// A push that was made before is a duplicate.
	at(time.Second)
	again, letter := opPush(f.queue("jobs"), 0, "again"), opPush(f.queue("mail"), 0, "again")
	again.Message.MsgID, letter.Message.Unique = "id", "letter"
	for _, r := range f.apply(again, letter) {
		wantEqual(f.T, "duplicate", r.Duplicate, true)
	}

	// Tokens of leases are good as long as the lease, once.
	for _, n := range notes {
		if n.Token != "" {
			q, want := f.queueOf(n.FIFO, n.Queue), error(nil)
			ack := ackWith(q, must(fdbpq.ParseToken(n.Token)), "result of now")
			if n.Lost {
				want = fdbpq.ErrLeaseLost
			}
			wantError(f.T, f.apply(ack)[0].Err, want)
			wantError(f.T, f.apply(ack)[0].Err, fdbpq.ErrLeaseLost)
		}
	}

	// What was held comes back in order, what has expired does not, and schedules fire.
	at(2 * time.Hour)
	for _, q := range f.listed() {
		walked, _ := f.walk(fdbpq.Browse{}, q, released.Add(2*time.Hour))
		for _, i := range walked {
			if i.DeadLetter != nil {
				fmt.Fprintf(&b, "\t%s: back to %s\n", i.Value,
					f.done(named(fdbpq.OpRedriveItem, q, i.ID)).Home)
			}
		}
	}
	for _, lifted := range []bool{false, true} {
		for _, q := range f.listed() {
			if lifted {
				f.configure(q, func(s *fdbpq.Settings) { s.PausedGroups, s.RatePerGroup = nil, "" })
			}
			for r := f.apply(op(opPopMin, q))[0]; r.Err == nil; r = f.apply(op(opPopMin, q))[0] {
				fmt.Fprintf(&b, "\t%s: popped %.20s at %d\n",
					q.Layout().Name(), r.Item.Value, r.Item.ID.Priority)
			}
		}
	}
	wantEqual(f.T, "items left", f.check().Items, 0)

	// Nothing is kept any longer.
	at(48 * time.Hour)
	f.check()
	return b.String()
}

// unset returns the names of settings that no queue has.
func (f *fixture) unset() (names []string) {
	for row := range settings.All() {
		if !slices.ContainsFunc(f.listed(), func(q fdbpq.Target) bool {
			return row.IsSet(f.read(fdbpq.Op{Kind: fdbpq.OpSettings, Queue: q})[0].Settings)
		}) {
			names = append(names, row.Name)
		}
	}
	return names
}

// queueOf returns a queue of either kind.
func (f *fixture) queueOf(fifo bool, name string) fdbpq.Target {
	if fifo {
		return f.fifoQueue(name)
	}
	return f.queue(name)
}

// describe returns the contents of the queues, without what differs each time. A field that is not
// set has no place in it, so that later versions describe old stores alike.
func (f *fixture) describe() string {
	var b strings.Builder
	for _, queue := range f.listed() {
		if queue.Layout().Name() == "notes" { // they have random parts
			continue
		}
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
	result := ""
	if i.Finished != nil {
		result = string(i.Finished.Result)
	}
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
		Progress, Result  string              `json:",omitzero"`
		DeadLetter        *fdbpq.DeadLetter   `json:",omitempty"`
		Err               error               `json:",omitempty"`
	}{
		fmt.Sprintf("%.20s", i.Value), len(i.Value), i.ID.Priority, i.ID.Count, i.State.String(),
		i.Headers, i.MsgID, i.Unique, i.PushedAt, i.Expires, i.Due, i.LeasedSince, i.Deliveries,
		i.Holder, i.Reason, string(i.Progress), result, i.DeadLetter, i.Err,
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
