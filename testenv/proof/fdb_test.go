//go:build fdb

package proof_test

import (
	"errors"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// tagFlags are what go test needs to build the tests like these.
const tagFlags = "-tags fdb "

func fdbSystems() []system {
	return []system{{"fdb-2-bridges", startFDB(2), 2}, {"fdb-4-bridges", startFDB(4), 2}}
}

// pauseTime is longer than FoundationDB lets a transaction live.
const pauseTime = 5500 * time.Millisecond

// startFDB starts a FoundationDB server and bridges in processes of their own.
func startFDB(bridges int) func(*rig) {
	return func(r *rig) {
		server := testenv.StartFDB(r.t, testenv.FDBMemory)
		r.mortal = true
		toNATS := r.lineOfBridges()

		// Some requests are given up while the server is paused, some continue after
		// it.
		config := serviceConfig{
			NATS:           toNATS.url(),
			Leaf:           r.leafURL(),
			ClusterFile:    server.ClusterFile(),
			RequestTimeout: r.requestTimeout(2 * time.Second),
			Limits:         r.limits,
		}

		if r.random.IntN(2) == 0 {
			config.RequestTimeout = r.requestTimeout(2 * pauseTime)
		}

		var services []*service
		for range bridges {
			services = append(services, newService(r.t, config, r.clock))
		}

		restartFDB := func() {
			must(r.t, server.Kill())
			must(r.t, restart(r.t, server))
		}
		shuffle := func() {
			r.random.Shuffle(len(services),
				func(i, j int) { services[i], services[j] = services[j], services[i] })
		}

		r.faults = append(r.faults,
			fault{"one of several bridges killed (SIGKILL)", func() {
				shuffle()
				services[0].kill()
				services[0].start()
			}},
			fault{"one of several bridges paused (SIGSTOP)", func() {
				shuffle()
				defer services[0].pause()()
				r.hold(2 * answerTime)
			}},
			fault{"a bridge paused (SIGSTOP) while another is killed", func() {
				shuffle()
				defer services[0].pause()()
				r.hold(answerTime)
				services[1].kill()
				services[1].start()
				r.hold(answerTime)
			}},
			fault{"a bridge paused (SIGSTOP) while fdbserver is killed", func() {
				shuffle()
				defer services[0].pause()()
				restartFDB()
				r.hold(answerTime)
			}},
			fault{"a bridge joins, then one leaves (SIGTERM)", func() {
				services = append(services, newService(r.t, config, r.clock))
				r.hold(answerTime)
				shuffle()
				services[0].stop()
				services = services[1:]
			}},
			fault{"another fdbserver joins, then it is killed", func() {
				leave, err := server.Join(harness.Port(r.t))
				must(r.t, err)
				r.hold(2 * answerTime)
				must(r.t, leave())
			}},
			fault{"fdbserver killed (SIGKILL)", restartFDB},
			fault{"fdbserver paused (SIGSTOP) for longer than a transaction may live", func() {
				if r.random.IntN(2) == 0 { // wait for the answers that come afterwards
					r.timeout.Store(int64(3 * pauseTime))
					defer r.timeout.Store(int64(answerTime))
				}
				must(r.t, server.Pause())
				<-time.After(pauseTime)
				must(r.t, server.Resume())
			}},
		)

		r.measure = func() resources {
			var sum resources
			for _, s := range services {
				one := serviceResources(r.t, s)
				sum.goroutines = max(sum.goroutines, one.goroutines)
				sum.files = max(sum.files, one.files)
				sum.memory = max(sum.memory, one.memory)
			}

			return sum
		}

		r.stop = func() kv.Database {
			for _, s := range services {
				s.stop()
			}

			db, err := fdbkv.Open(
				fdbkv.Options{ClusterFile: server.ClusterFile(), TransactionTimeout: patience})
			must(r.t, err)
			r.t.Cleanup(func() { must(r.t, db.Close()) })

			return db
		}
	}
}

// upgradedFDB is two bridges of both versions on a FoundationDB server.
func upgradedFDB(programs [2]string) []system {
	return []system{{"fdb-upgrade", func(r *rig) {
		file := testenv.StartFDB(r.t, testenv.FDBMemory).ClusterFile()
		r.startVersions(programs, 2, serviceConfig{ClusterFile: file}, func() kv.Database {
			db, err := fdbkv.Open(fdbkv.Options{ClusterFile: file, TransactionTimeout: patience})
			must(r.t, err)
			r.t.Cleanup(func() { must(r.t, db.Close()) })
			return db
		})
	}, 1}}
}

// restart starts a killed server. On a busy machine, a server may not become ready in
// time; then it is killed and started again.
func restart(t *testing.T, server *testenv.FDBServer) error {
	err := server.Restart()
	for try := 0; err != nil && try < 3 && server.Running(); try++ {
		t.Logf("starting fdbserver once more, because: %v", err)
		err = errors.Join(server.Kill(), server.Restart())
	}

	return err
}
