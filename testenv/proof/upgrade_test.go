package proof_test

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// Accounts are right while bridges of this version are replaced by bridges of the version before,
// one after the other, and back. On FoundationDB both serve at the same time; a folder is served by
// one at a time. PQ_TEST_BEFORE is the revision of the version before. This version comes first,
// because it knows all settings; the other one leaves attempts of jobs that it ends.
func TestUpgrade(t *testing.T) {
	harness.OnlyNightly(t)
	programs := buildVersions(t, cmp.Or(os.Getenv("PQ_TEST_BEFORE"), "HEAD~1"))
	slices.Reverse(programs[:])

	embedded := system{"embedded-upgrade", func(r *rig) {
		r.oneByOne = true
		folder := r.t.TempDir()
		r.startVersions(programs, 1, serviceConfig{Folder: folder}, func() kv.Database {
			db := openFolder(r.t, folder, vfs.Default)
			r.t.Cleanup(func() { _ = db.Close() })
			return db
		})
	}, 1}

	testAccounts(t, append(upgradedFDB(programs), embedded), func(b *bank) {
		allKinds(b)
		b.joined = nil // the version before need not know joins
		b.clearAttempts()
		b.useOthers()
		b.between = int64(flags.ops) / 20
		b.toCome.Store(12) // each of two bridges there and back, ended and killed
	})
}

// clearAttempts removes the attempts that the version before has left of jobs that it ended, before
// the store is looked at: it need not know attempts.
func (b *bank) clearAttempts() {
	stop := b.stop
	b.stop = func() kv.Database {
		db := stop()
		for _, name := range b.mortal {
			b.apply(b.t.Context(), db, name, time.Now(), fdbpq.Op{
				Kind:      fdbpq.OpConfigure,
				Configure: func(s *fdbpq.Settings) { s.Trail = 0 },
			})
		}
		return db
	}
}

// A version that does not know joins refuses them and, where one is there already, ends no member
// and serves no joiner: once this version is back, all of them end as if it had not been away.
func TestRollBackOfJoins(t *testing.T) {
	harness.OnlyNightly(t)
	programs := buildVersions(t, cmp.Or(os.Getenv("PQ_TEST_BEFORE"), "HEAD~1"))
	e := testenv.New(t, testenv.Options{Stopped: true})
	e.NATS.Start()
	jobs := client.New(e.Connect(), client.WithTimeout(patience)).PriorityQueue("jobs")
	ctx := t.Context()

	s := &service{
		t:       t,
		program: programs[0],
		config: serviceConfig{
			NATS: e.NATS.URL(), Folder: t.TempDir(), RequestTimeout: patience,
		},
	}
	s.begin()
	serve := func(program string) {
		s.stop()
		s.program = program
		s.start()
	}
	lease := func() *client.Delivery {
		return sure(jobs.Lease(ctx, client.AckWait(time.Hour)))
	}
	push := func() ([]client.PushAck, error) {
		item := func(priority int64, value string) client.PushItem {
			m := client.Message{Value: []byte(value)}
			return client.PushItem{Priority: priority, Message: m}
		}
		joiner, members, err := jobs.All(ctx, item(9, "joiner"), item(1, "a"), item(2, "b"),
			item(3, "c"))
		return append(members, joiner), err
	}

	if _, err := push(); err == nil {
		t.Skip("PQ_TEST_BEFORE has to name a version that does not know joins, as 27a70031")
	} else if !errors.Is(err, client.ErrBadRequest) {
		t.Errorf("the version before answered %v, want 400", err)
	}
	if left := sure(jobs.Len(ctx)); left != 0 {
		t.Errorf("%d items after a request that was refused", left)
	}

	serve(programs[1])
	ids := sure(push())
	must(t, lease().Ack(ctx))
	held := lease()

	serve(programs[0])
	_, popped := jobs.Pop(ctx)
	_, leased := jobs.Lease(ctx)
	for what, err := range map[string]error{
		"pop": popped, "lease": leased, "ack": held.Ack(ctx), "term": held.Term(ctx, ""),
		"remove of a leased member": jobs.Remove(ctx, ids[1].ID),
		"remove of a ready member":  jobs.Remove(ctx, ids[2].ID),
		"remove of the joiner":      jobs.Remove(ctx, ids[3].ID),
	} {
		if !errors.Is(err, client.ErrInternal) {
			t.Errorf("%s of the version before: %v, want 500", what, err)
		}
	}

	serve(programs[1])
	must(t, held.Ack(ctx))
	must(t, lease().Term(ctx, "no"))
	joiner := sure(jobs.Lease(ctx, client.Expires(patience)))
	if joiner.ID != ids[3].ID || *joiner.Joined != (client.Joined{Done: 2, Dead: 1}) {
		t.Errorf("%s, %+v: want the joiner after two members that are done, and a dead one",
			joiner.Value, joiner.Joined)
	}
	s.stop()
}

// buildVersions builds pqbridge of a revision, and of this checkout.
func buildVersions(t *testing.T, revision string) [2]string {
	dir, root := t.TempDir(), filepath.Join("..", "..")
	programs := [2]string{filepath.Join(dir, "before"), filepath.Join(dir, "now")}
	for i, source := range []string{harness.Checkout(t, root, revision), root} {
		args := append([]string{"build"}, strings.Fields(tagFlags)...)
		harness.Do(t, source, "go", append(args, "-o", programs[i], "./cmd/pqbridge")...)
	}

	return programs
}

// startVersions starts bridges with the first program. Each fault gives the next bridge the other
// one: when all have the second, they get the first again.
func (r *rig) startVersions(
	programs [2]string, bridges int, config serviceConfig, open func() kv.Database,
) {
	r.mortal, r.skew, r.limits = true, 0, limits{} // the programs have no other clocks and limits
	config.NATS, config.Leaf = r.env.NATS.URL(), r.leafURL()
	config.RequestTimeout = r.requestTimeout(2 * time.Second)

	var services []*service
	for range bridges {
		s := &service{t: r.t, config: config, program: programs[0]}
		s.begin()
		services = append(services, s)
	}

	turn := 0
	replace := func(end func(*service)) func() {
		return func() {
			s := services[turn%bridges]
			turn++
			end(s)
			s.program = programs[(turn+bridges-1)/bridges%2]
			s.start()
		}
	}

	ended := fault{"bridge ended (SIGTERM), one of the other version started",
		replace(func(s *service) { s.stop() })}
	r.faults = []fault{ended, ended,
		{"bridge killed, one of the other version started", replace((*service).kill)}}
	r.stop = func() kv.Database {
		for _, s := range services {
			s.stop()
		}
		return open()
	}
}

// startProgram starts s.program, and returns when it is ready.
func (s *service) startProgram() {
	s.t.Helper()
	s.http = fmt.Sprint("127.0.0.1:", harness.Port(s.t))
	store := []string{"PQ_STORE=fdb", "PQ_FDB_CLUSTER_FILE=" + s.config.ClusterFile}
	if s.config.Folder != "" {
		store = []string{"PQ_DATA_DIR=" + s.config.Folder}
	}

	s.cmd = harness.Command(s.program)
	s.cmd.Env = append(append(os.Environ(), "PQ_NATS_URL="+s.config.NATS,
		"PQ_JETSTREAM_LEAF_URL="+s.config.Leaf, "PQ_HTTP_ADDR="+s.http, "PQ_LOG_LEVEL=error",
		fmt.Sprint("PQ_REQUEST_TIMEOUT=", s.config.RequestTimeout)), store...)
	s.cmd.Stderr = &s.stderr
	stdin, err := s.cmd.StdinPipe()
	must(s.t, err)
	s.stdin = stdin
	must(s.t, s.cmd.Start())

	testenv.Eventually(s.t, func() error {
		reply, err := http.Get("http://" + s.http + "/readyz")
		if err != nil {
			return err
		}
		defer http.DefaultClient.CloseIdleConnections()
		if err := reply.Body.Close(); err != nil || reply.StatusCode != http.StatusOK {
			return fmt.Errorf("not ready: %s, %w", reply.Status, err)
		}
		return nil
	})
}
