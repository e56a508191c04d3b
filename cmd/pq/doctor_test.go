package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/cmd/internal/buildinfo"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/discovery"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
	"github.com/pqbridge/pqbridge/testenv"
)

// findings runs pq doctor, and returns the findings by their checks.
func (c *cli) findings(code int, args ...string) map[string]finding {
	c.t.Helper()
	all, got := c.diagnose(args...)
	if got != code {
		c.t.Errorf("exit code %d, want %d: %+v", got, code, all)
	}

	return all
}

// findingsOf is findings of a run that has seen all bridges: on a busy machine one may answer late.
func (c *cli) findingsOf(bridges string, code int) (all map[string]finding) {
	c.t.Helper()
	testenv.Eventually(c.t, func() error {
		var got int
		if all, got = c.diagnose(); got != code || !strings.Contains(all["bridges"].Text, bridges) {
			return fmt.Errorf("exit code %d, want %d: %+v", got, code, all)
		}

		return nil
	})

	return all
}

func (c *cli) diagnose(args ...string) (all map[string]finding, code int) {
	c.t.Helper()
	testenv.Eventually(c.t, func() error { // on a busy machine bridges or NATS answer late
		var stdout string
		stdout, _, code = c.run("", append(append([]string{"doctor"}, args...), "--json")...)
		all = map[string]finding{}

		for line := range strings.Lines(stdout) {
			var f finding
			decode(c.t, line, &f)
			all[f.Check] = f

			for _, late := range []string{"nats: timeout", "deadline exceeded"} {
				// A bridge may give such a reason itself, which it does again if it is asked again.
				if strings.HasSuffix(f.Text, late) && f.Check != "ready" {
					return errors.New(f.Text)
				}
			}
		}

		return nil
	})

	return all, code
}

// is checks a finding.
func (f finding) is(t *testing.T, r string, words ...string) {
	t.Helper()
	if f.Result != r {
		t.Errorf("%+v, want %s", f, r)
	}

	for _, w := range words {
		if !strings.Contains(f.Text+" "+f.ToDo, w) {
			t.Errorf("%+v: want words %q", f, w)
		}
	}
	if r != fine && f.Check != "nats" && f.ToDo == "" {
		t.Errorf("%+v: what is to do?", f)
	}
}

// Every check of a healthy system is ok, in JSON and for people.
func TestDoctorOfAHealthySystem(t *testing.T) {
	c, env := newCLI(t)
	env.StartBridge().WaitReady()
	all := c.findingsOf("2 bridges found", exitOK)

	for check, words := range map[string]string{
		"nats":        "answers in",
		"permissions": "may make all requests",
		"bridges":     "2 bridges found",
		"bridge":      "its clock less than a second off",
		"store":       "answers in",
	} {
		all[check].is(t, fine, words)
	}

	c.ok("", "push", "jobs", "x")
	all = c.findings(exitOK, "jbos")
	all["queue"].is(t, notable, "queue jbos is not in use")

	if got, stderr, _ := c.run("", "doctor", "jbos"); strings.Contains(got, "?.") || stderr != "" {
		t.Errorf("printed %s%s", got, stderr)
	}
	// People get the same.
	testenv.Eventually(t, func() error {
		got, stderr, code := c.run("", "doctor", "jobs")
		if code != exitOK || stderr != "" || !strings.HasPrefix(got, "ok    nats        NATS ") ||
			strings.Count(got, "\nok    ") != 5 {
			return fmt.Errorf("exit code %d, printed %s%s", code, got, stderr)
		}

		return nil
	})
}

// Without NATS, or without bridges, pq doctor says which of them to start.
func TestDoctorWithoutNATSOrBridges(t *testing.T) {
	t.Parallel()

	away := &cli{t: t, server: "nats://127.0.0.1:1"}
	away.findings(exitError)["nats"].is(t, wrong, "no server answers there: start one with")
	all := newNATS(t, nil).findings(exitError)
	all["nats"].is(t, fine)
	all["bridges"].is(t, wrong, "no bridge answers", "start pqbridge")
	all["store"].is(t, wrong, "no bridge takes requests")
}

// A user with few permissions gets notes, and a check goes on when the one before was refused.
func TestDoctorSeesPermissions(t *testing.T) {
	t.Parallel()

	c := newCLIWith(t, map[string]*server.Permissions{
		"worker": publish([]string{"pq.jobs.>", discovery.UserSubject},
			[]string{"pq.jobs.purge"}),
		"blind":         publish([]string{"pq.jobs.>"}, nil),
		"short-sighted": publish(nil, []string{"$SYS.>", "$SRV.>"}),
		"deaf":          {Subscribe: &server.SubjectPermission{Allow: []string{"nothing"}}},
	})

	c.ok("", "push", "jobs", "x")
	all := c.findings(exitOK, "jobs", "--user", "worker", "--password", "worker")
	all["permissions"].is(t, notable, "user worker of account $G may not publish to pq.jobs.purge")

	if strings.Contains(all["permissions"].Text, " q.jobs.") ||
		strings.Contains(all["permissions"].Text, "pq.list") {
		t.Errorf("%+v", all["permissions"])
	}

	all["queue"].is(t, fine, "jobs answers in ", ": 1 ready item")
	c.findings(exitOK, "other", "--user", "worker", "--password", "worker")["queue"].is(t, notable,
		"it cannot be tried", "allow pq.other.len")
	c.findings(exitOK, "jobs", "--fifo", "--user", "worker", "--password",
		"worker")["permissions"].is(t, notable, "q.jobs.push")
	all["bridges"].is(t, notable, "allow $SRV.INFO.pqbridge")
	c.findings(exitOK, "--user", "blind", "--password", "blind")["permissions"].is(t, notable,
		"allow "+discovery.UserSubject)
	// A check goes on when the one before was refused.
	c.findings(exitOK, "--user", "short-sighted", "--password",
		"short-sighted")["store"].is(t, fine)
	c.findings(exitError, "--user", "deaf", "--password", "deaf")["nats"].is(t, wrong,
		"cannot receive replies")
	c.findings(exitError, "--user", "worker", "--password",
		"wrong")["nats"].is(t, wrong, "uthorization")
}

// Other prefixes, different versions and a clock that is ahead are found.
func TestDoctorSeesSubjectsVersionsAndClocks(t *testing.T) {
	t.Parallel()

	hours := 0
	env := testenv.New(t, testenv.Options{Bridge: func(o *bridge.Options) {
		ahead := time.Duration(hours) * time.Hour
		o.Now = func() time.Time { return time.Now().Add(ahead) }
		o.Version = "1.0." + string(rune('0'+hours))
		hours++
	}})

	c := &cli{t: t, server: env.NATS.URL()}
	other := c.findings(exitError, "--prefix", "other")
	other["subjects"].is(t, wrong, "version 1.0.0, does not serve other.", " and others",
		"--prefix")
	other["store"].is(t, wrong, "no bridge takes requests on other.list", "see above")
	env.StartBridge().WaitReady()
	all := c.findingsOf("2 bridges found", exitError)
	all["clocks"].is(t, wrong, "version 1.0.1, has a clock that is ", "ahead of the one here",
		"NTP")
	all["versions"].is(t, notable, "the versions differ: 1.0.0, 1.0.1")
}

// Without its store a bridge is not ready, and pq doctor says so and where to look.
func TestDoctorSeesAStoreThatIsAway(t *testing.T) {
	t.Parallel()

	var store *faultkv.DB
	env := testenv.New(t, testenv.Options{
		Wrap: func(db kv.Database) kv.Database {
			store = faultkv.New(db, faultkv.Options{})
			return store
		},
		Bridge: func(o *bridge.Options) { o.RequestTimeout = 50 * time.Millisecond },
	})

	store.SetOutage(true)
	c := &cli{t: t, server: env.NATS.URL()}
	c.findings(exitError)["store"].is(t, wrong, "(503)", "log of pqbridge")

	// Once a write has failed, the bridge says so itself.
	_, _, _ = c.run("", "push", "jobs", "x")
	c.findings(exitError)["ready"].is(t, wrong, "is not ready: ", "/readyz")

	// Each bridge says it for itself.
	env.StartBridge()
	testenv.Eventually(t, func() error {
		_, _, _ = c.run("", "push", "jobs", "x") // through either of them
		stdout, _, _ := c.run("", "doctor")

		if n := strings.Count(stdout, "\nFAIL  ready "); n != 2 {
			return fmt.Errorf("%d of 2 bridges are not ready: %s", n, stdout)
		}

		return nil
	})
}

// pq doctor says where a bridge runs, so that people find the log of the one it means, also if
// several run on one host. Bridges that do not say where have a name of no more than their id.
func TestDoctorSaysWhereABridgeRuns(t *testing.T) {
	t.Parallel()

	host := "machine-1"
	c, env := newCLIOn(t, testenv.Options{Bridge: func(o *bridge.Options) { o.Host = host }})

	want := fmt.Sprintf("bridge %s on machine-1, process %d, version ", env.Bridge.ID(),
		os.Getpid())
	c.findings(exitOK)["bridge"].is(t, fine, want)

	env.Bridge.Stop()
	host = ""
	unnamed := env.StartBridge()
	unnamed.WaitReady()
	c.findingsOf("1 bridge found", exitOK)["bridge"].is(t, fine,
		"bridge "+unnamed.ID()+", version ")
}

// On a full disk pq doctor says so, and no bridge is ok.
func TestDoctorOnAFullDisk(t *testing.T) {
	t.Parallel()

	disk := &fillable{FS: vfs.Default}
	c, _ := newCLIOn(t,
		testenv.Options{Engine: testenv.Engine{Open: func(t testing.TB) kv.Database {
			o := pebblekv.Options{
				FS:           disk,
				MinFreeSpace: 1 << 20,
				Logger:       slog.New(slog.DiscardHandler),
			}

			db, err := pebblekv.Open(t.TempDir(), o)
			if err != nil {
				t.Fatal(err)
			}

			t.Cleanup(func() { _ = db.Close() })
			return db
		}}})

	c.ok("", "push", "jobs", "x")
	c.findings(exitOK)

	disk.full.Store(true)
	c.fails(exitError, "disk full", "push", "jobs", "y")

	all := c.findings(exitError)
	all["ready"].is(t, wrong, "is not ready: ", "disk full: ", "free space on the disk")
	if _, found := all["bridge"]; found {
		t.Errorf("%+v", all["bridge"])
	}

	// It is ok again after a push, whether or not somebody asks /readyz.
	disk.full.Store(false)
	testenv.Eventually(t, func() error {
		if _, stderr, code := c.run("", "push", "jobs", "y"); code != exitOK {
			return errors.New(stderr)
		}
		return nil
	})

	c.findings(exitOK)
}

// fillable is a file system whose disk a test makes full.
type fillable struct {
	vfs.FS
	full atomic.Bool
}

func (f *fillable) GetDiskUsage(string) (vfs.DiskUsage, error) {
	if f.full.Load() {
		return vfs.DiskUsage{}, nil
	}
	return vfs.DiskUsage{AvailBytes: 1 << 40}, nil
}

// pq doctor says which bridges are older than pq, and pq says the same of what one refuses because
// of that. It is not parallel: it sets the version of this program.
func TestDoctorSeesBridgesOlderThanPq(t *testing.T) {
	versions := []string{"1.2.9", "1.2.10"}
	c, env := newCLIOn(t, testenv.Options{Bridge: func(o *bridge.Options) {
		o.Version = versions[0]
		versions = versions[1:]
	}})

	before := version
	defer func() { version = before }()
	version = "v1.2.10"

	c.findings(exitOK)["versions"].is(t, notable, "version 1.2.9, is older than this pq, version "+
		"1.2.10", `unknown member "holder"`, "upgrade it")
	env.StartBridge().WaitReady()
	c.findingsOf("2 bridges found", exitOK)["versions"].is(t, notable, "the versions differ")

	stdout, _, _ := c.run("", "doctor", "--json")
	if n := strings.Count(stdout, "is older than this pq"); n > 1 {
		t.Errorf("%d bridges are older: %s", n, stdout)
	}

	version = "v1.2.9"
	if stdout, _, _ := c.run("", "doctor", "--json"); strings.Contains(stdout, "older") {
		t.Errorf("printed %s", stdout)
	}
}

// A clock that was read between two times is ahead only if it is before or after both.
func TestSkew(t *testing.T) {
	asked := time.Unix(100, 0)
	for at, want := range map[int64]time.Duration{
		99:  -time.Second,
		100: 0,
		101: 0,
		102: 0,
		105: 3 * time.Second,
	} {
		if got := skew(time.Unix(at, 0), asked, asked.Add(2*time.Second)); got != want {
			t.Errorf("at %d: %v, want %v", at, got, want)
		}
	}
}

// pq doctor says whether bridges are connected for JetStream's programs, if they should be.
func TestDoctorSeesJetStream(t *testing.T) {
	t.Parallel()

	env := testenv.New(t, testenv.Options{JetStream: true})
	c := &cli{t: t, server: env.NATS.URL()}
	c.findings(exitOK)["bridge"].is(t, fine, "connected for JetStream's programs")

	env.StartBridge(func(o *bridge.Options) { o.JetStream.LeafURL = env.NATS.URL() })
	testenv.Eventually(t, func() error {
		all, _ := c.diagnose()
		if !strings.Contains(all["jetstream"].Text, "the port of leafnodes") {
			return fmt.Errorf("%+v", all)
		}

		return nil
	})

	c.findingsOf("2 bridges found", exitError)["jetstream"].is(t, wrong,
		"does not serve JetStream's programs", "PQ_JETSTREAM_LEAF_URL")
}

// A build that is no release has the same version wherever it is shown.
func TestUnreleasedVersion(t *testing.T) {
	t.Parallel()
	c, _ := newCLIOn(t, testenv.Options{Bridge: func(o *bridge.Options) { o.Version = "" }})
	for _, command := range []string{"version", "doctor"} {
		if out := c.ok("", command); !strings.Contains(out, buildinfo.Unreleased) {
			t.Errorf("pq %s prints %q, without %s", command, out, buildinfo.Unreleased)
		}
	}
}
