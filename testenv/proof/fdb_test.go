//go:build fdb

package proof_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
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
	return []system{
		{"fdb-2-bridges", startFDB(2, oneServer), 3},
		{"fdb-4-bridges", startFDB(4, oneServer), 3},
		{"fdb-3-servers", startFDB(2, threeServers), 3},
	}
}

const (
	// pauseTime is longer than FoundationDB lets a transaction live.
	pauseTime = 5500 * time.Millisecond
	// lostTime bounds how long one of several servers is away: FoundationDB may replace it, or not.
	lostTime = 8 * time.Second
)

// servers are FoundationDB servers in processes of their own.
type servers struct {
	clusterFile string
	restart     func() // one of them
	faults      []fault
}

// oneServer starts a server.
func oneServer(r *rig) servers {
	server := testenv.StartFDB(r.t, testenv.FDBMemory)
	restartFDB := func() {
		must(r.t, server.Kill())
		must(r.t, restart(r.t, server))
	}

	return servers{server.ClusterFile(), restartFDB, []fault{
		{"another fdbserver joins, then it is killed", func() {
			leave, err := server.Join(harness.Port(r.t))
			must(r.t, err)
			r.hold(2 * answerTime)
			must(r.t, leave())
		}},
		{"fdbserver killed (SIGKILL)", restartFDB},
		{"fdbserver paused (SIGSTOP) for longer than a transaction may live", func() {
			if r.random.IntN(2) == 0 { // wait for the answers that come afterwards
				r.timeout.Store(int64(3 * pauseTime))
				defer r.timeout.Store(int64(answerTime))
			}
			must(r.t, server.Pause())
			<-time.After(pauseTime)
			must(r.t, server.Resume())
		}},
	}}
}

// threeServers starts three servers with two copies of everything. All connections to one go
// through a proxy before its public address.
func threeServers(r *rig) servers {
	var proxies []*proxy
	list := testenv.StartFDBCopies(r.t, func(listen string) (public string) {
		p := newProxy(r.t, "tcp://"+listen)
		p.dialer = fdbDialer
		proxies = append(proxies, p)
		return p.listener.Addr().String()
	})
	one := func() int { return r.random.IntN(len(list)) }
	kill := func() (start func()) {
		s := list[one()]
		must(r.t, s.Kill())
		return func() { must(r.t, restart(r.t, s)) }
	}

	return servers{list[0].ClusterFile(), func() { kill()() }, []fault{
		{"one of three fdbservers killed (SIGKILL)", func() {
			start := kill()
			r.hold(lostTime)
			start()
		}},
		{"one of three fdbservers paused (SIGSTOP)", func() {
			s := list[one()]
			must(r.t, s.Pause())
			r.hold(lostTime)
			must(r.t, s.Resume())
		}},
		{"nobody can connect to one of three fdbservers, which can to others", func() {
			p := proxies[one()]
			p.refuse(true)
			r.hold(lostTime)
			p.refuse(false)
		}},
		{"one of three fdbservers cut off from all others", func() {
			cut := proxies[one()]
			cut.refuse(true)
			for _, p := range proxies {
				closed := p.shun(cut.listener.Addr().String())
				r.tally.add("connections to other fdbservers closed", closed)
			}
			r.hold(lostTime)
			for _, p := range proxies {
				p.shun("")
			}
			cut.refuse(false)
		}},
		{"line of one of three fdbservers still, one way or both, then all comes", func() {
			r.holdStill(proxies[one()], lostTime)
		}},
	}}
}

// fdbDialer returns the public address of the server that opens a connection with these bytes: the
// ConnectPacket of FoundationDB's FlowTransport begins with its own length in 4 bytes, a version in
// 8, and the server's port in 2, which is 0 for clients.
func fdbDialer(first []byte) string {
	if len(first) < 14 {
		return ""
	}
	return fmt.Sprint("127.0.0.1:", binary.LittleEndian.Uint16(first[12:]))
}

// startFDB starts FoundationDB servers, and bridges in processes of their own.
func startFDB(bridges int, start func(*rig) servers) func(*rig) {
	return func(r *rig) {
		fdb := start(r)
		r.mortal = true
		toNATS := r.lineOfBridges()

		// Some requests are given up while a server is paused, some continue after
		// it.
		config := serviceConfig{
			NATS:           toNATS.url(),
			Leaf:           r.leafURL(),
			ClusterFile:    fdb.clusterFile,
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
				fdb.restart()
				r.hold(answerTime)
			}},
			fault{"a bridge joins, then one leaves (SIGTERM)", func() {
				services = append(services, newService(r.t, config, r.clock))
				r.hold(answerTime)
				shuffle()
				// After the fault before, the store may be away for longer than a shutdown lasts.
				services[0].stop("requests not finished in time")
				services = services[1:]
			}},
		)
		r.faults = append(r.faults, fdb.faults...)

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
			// After the last fault, the store may be away for longer than a shutdown lasts.
			db := openFDB(r.t, fdb.clusterFile)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			_, err := kv.ReadTransact(ctx, db, func(r kv.Reader) ([]byte, error) {
				return r.Get([]byte("any")).Get()
			})
			must(r.t, err)

			for _, s := range services {
				s.stop()
			}

			return db
		}
	}
}

// upgradedFDB is two bridges of both versions on a FoundationDB server.
func upgradedFDB(programs [2]string) []system {
	return []system{{"fdb-upgrade", func(r *rig) {
		file := testenv.StartFDB(r.t, testenv.FDBMemory).ClusterFile()
		r.startVersions(programs, 2, serviceConfig{ClusterFile: file}, func() kv.Database {
			return openFDB(r.t, file)
		})
	}, 1}}
}

// openFDB opens a store in FoundationDB until the test ends.
func openFDB(t *testing.T, clusterFile string) kv.Database {
	db, err := fdbkv.Open(
		fdbkv.Options{ClusterFile: clusterFile, TransactionTimeout: patience})
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	return db
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

// shun closes the connections of one dialer, now and from now on, and returns how many there are.
// "" shuns nobody.
func (p *proxy) shun(dialer string) (closed int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.shunned = dialer
	for l := range p.mu.links {
		if dialer != "" && l.dialer == dialer {
			l.close()
			closed++
		}
	}
	return closed
}
