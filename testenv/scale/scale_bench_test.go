package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/procfs"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// What BenchmarkScale measures, as make scale has it.
var (
	pqbridge   = flag.String("pqbridge", "", "the `program` to measure")
	natsServer = flag.String("nats-server", "", "the `program` of the NATS server")
	store      = flag.String("store", "fdb", "PQ_STORE of the bridges: fdb or embedded")
	seconds    = flag.Float64("seconds", 2.5, "how long each run is measured")
	settle     = flag.Float64("settle", 2.5, "how long each run goes on before that")
)

// shapes are systems, and the loads that each of them gets.
var shapes = []struct {
	servers, bridges int
	loads            []load
}{
	{1, 1, []load{{16, 1}, {128, 1}, {1024, 1}, {16, 1000}, {128, 1000}, {1024, 1000}}},
	{1, 2, []load{{128, 1}, {1024, 1000}}},
	{1, 4, []load{{128, 1}, {1024, 1000}}},
	{2, 1, []load{{1024, 1000}}},
	{4, 1, []load{{128, 1}, {1024, 1000}}},
	{4, 4, []load{{1024, 1000}}},
}

// load is how many clients have one request each under way, in how many queues.
type load struct{ clients, queues int }

// classes are the classes of fdbservers, where there are several.
var classes = map[int][]string{
	1: {"unset"},
	2: {"storage", "transaction"},
	4: {"storage", "log", "commit_proxy", "stateless"},
}

// BenchmarkScale measures a system of processes on one machine: a NATS server, bridges, fdbservers,
// and clients in this process. Its output is what the model goes by.
func BenchmarkScale(b *testing.B) {
	if *pqbridge == "" {
		b.Skip("make scale says which program is measured")
	}

	for _, shape := range shapes {
		name := fmt.Sprintf("servers=%d/bridges=%d", shape.servers, shape.bridges)
		for _, l := range shape.loads {
			name := fmt.Sprintf("%s/clients=%d/queues=%d", name, l.clients, l.queues)
			b.Run(name, func(b *testing.B) {
				s := startSystem(b, shape.servers, shape.bridges)
				queues := s.open(b, l.queues)
				for _, op := range []string{"push", "lease", "pop"} {
					b.Run("op="+op, func(b *testing.B) { s.measure(b, op, l, queues) })
				}
			})
		}
	}
}

// system is a running system.
type system struct {
	env     *testenv.Env
	grammar subjects.Grammar
	pids    []process
	ports   map[string]string // of servers: whose they are
	web     []string          // of bridges
}

// process is one of a kind: all of a kind are counted together.
type process struct {
	kind string
	pid  int
}

// startSystem starts a system, which ends with the benchmark.
func startSystem(b *testing.B, servers, bridges int) *system {
	s := &system{env: testenv.New(b, testenv.Options{Stopped: true}), ports: map[string]string{}}
	s.grammar, _ = subjects.New("scale", "scale-fifo")
	at, _ := url.Parse(s.env.NATS.URL())
	cmd := harness.Command(*natsServer, "-a", at.Hostname(), "-p", at.Port())
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	s.pids = append(s.pids, process{"nats", cmd.Process.Pid})
	s.ports[at.Port()] = "nats"
	testenv.Eventually(b, func() error {
		nc, err := nats.Connect(s.env.NATS.URL())
		if err == nil {
			nc.Close()
		}
		return err
	})

	environment := []string{"PQ_STORE=" + *store}
	if *store == "fdb" {
		file, pids, ports := testenv.StartFDBCluster(b, classes[servers]...)
		environment = append(environment, "PQ_FDB_CLUSTER_FILE="+file)
		for i, class := range classes[servers] {
			s.pids = append(s.pids, process{class, pids[i]})
			s.ports[strconv.Itoa(ports[i])] = "fdb"
		}
	}

	for range bridges {
		address := "127.0.0.1:" + strconv.Itoa(harness.Port(b))
		pid := s.env.StartProgram(*pqbridge, "scale", append(environment, "PQ_HTTP_ADDR="+address,
			"PQ_METRIC_QUEUES=-1")...) // to read metrics must not read a thousand queues
		s.pids, s.web = append(s.pids, process{"bridge", pid}), append(s.web, address)
	}
	testenv.Eventually(b, func() error {
		for _, address := range s.web {
			if n := metrics(address)["pq_bridges"]; n != float64(bridges) {
				return fmt.Errorf("%s knows %v bridges", address, n)
			}
		}
		return nil
	})
	return s
}

// metrics reads the metrics of a bridge.
func metrics(address string) (values map[string]float64) {
	values = map[string]float64{}
	reply, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		return values
	}
	defer reply.Body.Close()
	text, _ := io.ReadAll(reply.Body)
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		values[name], _ = strconv.ParseFloat(value, 64)
	}
	return values
}

// stored is how many items queues have at first, together: enough for one run of each operation.
const (
	stored     = 40_000
	fillBatch  = 40 // as many as queues have, with the most queues
	priorities = 10
)

// open returns new queues with items, on several connections.
func (s *system) open(b *testing.B, n int) (queues []*client.Queue) {
	var connections []*client.Client
	for range 4 {
		nc, err := nats.Connect(s.env.NATS.URL(), nats.Timeout(testenv.Patience))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(nc.Close)
		connections = append(connections, client.New(nc, client.WithGrammar(s.grammar),
			client.WithTimeout(testenv.Patience)))
	}

	for i := range n * len(connections) {
		c := connections[i/n]
		queues = append(queues, c.PriorityQueue(fmt.Sprintf("q%d", i%n)))
	}

	s.run(b, "fill", load{16, n}, queues, func(done *atomic.Int64) bool {
		return done.Load() < stored/fillBatch
	})
	// FoundationDB moves them to its tables a few seconds later.
	time.Sleep(time.Duration(*settle * float64(time.Second)))
	return queues
}

// run has clients make requests as long as the condition says so, which it looks at every
// millisecond.
func (s *system) run(b *testing.B, op string, l load, queues []*client.Queue,
	while func(done *atomic.Int64) bool,
) {
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	var next, done atomic.Int64
	var failed atomic.Pointer[error]
	var running sync.WaitGroup
	for range l.clients {
		running.Go(func() {
			for ctx.Err() == nil {
				n := int(next.Add(1))
				err := request(b.Context(), queues[n%len(queues)], op, n)
				if err != nil {
					if !errors.Is(err, client.ErrEmpty) {
						failed.Store(&err)
					}
					stop() // the others would wait for items
					return
				}
				done.Add(1)
			}
		})
	}

	for ctx.Err() == nil && while(&done) {
		time.Sleep(time.Millisecond)
	}
	stop()
	running.Wait()
	if err := failed.Load(); err != nil {
		b.Fatalf("%s: %v", op, *err)
	}
}

var value = make([]byte, 128)

var message = client.Message{Value: value}

// request does request number n.
func request(ctx context.Context, q *client.Queue, op string, n int) error {
	priority := int64(n % priorities)
	switch op {
	case "fill":
		items := make([]client.PushItem, fillBatch)
		for i := range items {
			items[i] = client.PushItem{Priority: int64(i % priorities), Message: message}
		}
		_, err := q.PushBatch(ctx, items)
		return err
	case "push":
		_, err := q.PushMsg(ctx, priority, message)
		return err
	case "pop":
		_, err := q.Pop(ctx)
		return err
	}
	d, err := q.Lease(ctx)
	if err != nil {
		return err
	}
	return d.Ack(ctx)
}

// measure puts a load on the queues and reports what an item takes.
func (s *system) measure(b *testing.B, op string, l load, queues []*client.Queue) {
	var begin, end map[string]float64
	var items int64
	started := time.Now()
	after := func(t float64) bool { return time.Since(started).Seconds() >= t }
	s.run(b, op, l, queues, func(done *atomic.Int64) bool {
		if begin == nil && after(*settle) {
			begin, items = s.read(), done.Load()
		}
		if end == nil && after(*settle+*seconds) {
			end, items = s.read(), done.Load()-items
		}
		return end == nil
	})
	if end == nil || items < 100 {
		b.Skip("the queues ran empty")
	}

	b.ReportMetric(0, "ns/op") // an iteration means nothing
	n := float64(items)
	b.ReportMetric(n/(end["time"]-begin["time"])*1e6, "items/s")
	for what := range end {
		if what != "time" {
			b.ReportMetric((end[what]-begin[what])/n, what+"/item")
		}
	}
}

// read returns counters: microseconds, bytes, batches.
func (s *system) read() map[string]float64 {
	now := map[string]float64{"time": float64(time.Now().UnixNano()) / 1e3}
	if self, err := procfs.NewDefaultFS(); err == nil {
		stat, _ := self.Stat()
		all := stat.CPUTotal
		now["machine-µs"] = (all.User + all.Nice + all.System + all.IRQ + all.SoftIRQ) * 1e6
		now["stolen-µs"] = all.Steal * 1e6
	}
	for _, p := range append(s.pids, process{"client", 0}) {
		process, err := procfs.NewProc(p.pid)
		if p.pid == 0 {
			process, err = procfs.Self()
		}
		if err != nil {
			continue
		}
		stat, _ := process.Stat()
		now[p.kind+"-µs"] += stat.CPUTime() * 1e6
		if io, err := process.IO(); err == nil && p.kind != "client" && p.kind != "nats" {
			now[p.kind+"-disk-B"] += float64(io.WriteBytes)
		}
		if p.kind == "bridge" {
			now["thread-µs"] += busiestThread(p.pid)
		}
	}

	for _, address := range s.web {
		values := metrics(address)
		now["batches"] += values["pq_batch_requests_count"]
		now["operations"] += values["pq_batch_requests_sum"]
		now["conflicts"] += values["pq_conflicts_total"]
	}
	s.readSockets(now)
	return now
}

// busiestThread is the time of the thread of a process that has taken the most.
func busiestThread(pid int) (most float64) {
	threads, _ := procfs.AllThreads(pid)
	for _, thread := range threads {
		if stat, err := thread.Stat(); err == nil {
			most = max(most, stat.CPUTime()*1e6)
		}
	}
	return most
}

var sent = regexp.MustCompile(`bytes_sent:(\d+)`)

// readSockets adds what was sent over TCP, in both directions, to and from each kind of server.
func (s *system) readSockets(now map[string]float64) {
	out, _ := exec.Command("ss", "-tinOH").Output()
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		bytes := sent.FindStringSubmatch(line)
		if len(fields) < 5 || bytes == nil {
			continue
		}
		server := func(address string) string {
			return s.ports[address[strings.LastIndex(address, ":")+1:]]
		}
		if kind := cmp.Or(server(fields[3]), server(fields[4])); kind != "" {
			n, _ := strconv.ParseFloat(bytes[1], 64)
			now[kind+"-tcp-B"] += n
		}
	}
}
