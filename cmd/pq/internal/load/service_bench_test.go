package load

import (
	"flag"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// What BenchmarkService measures, as make bench and CONTRIBUTING.md have it.
var (
	pqbridge = flag.String("pqbridge", "", "the `program` to measure")
	against  = flag.String("against", "", "another build of the `program` that it is compared with")
	store    = flag.String("store", "embedded", "PQ_STORE of the bridges: embedded or fdb")
	seconds  = flag.Float64("seconds", 2, "how long a turn takes, about")
	shape    Options
)

func init() {
	flag.IntVar(&shape.Clients, "clients", 128, "clients, each with one request under way")
	flag.IntVar(&shape.Connections, "connections", 4, "connections that they share")
	flag.IntVar(&shape.Queues, "queues", 1, "queues that share the load, by turns")
	flag.IntVar(&shape.Priorities, "priorities", 10, "different priorities")
	flag.IntVar(&shape.Groups, "groups", 0, "groups that the items belong to, in turns")
	flag.IntVar(&shape.Size, "size", 128, "bytes of an item")
}

// workloads are loads of pq bench.
var workloads = []struct {
	name   string
	mode   Mode
	batch  int
	result int // of jobs that are kept; the other build is then measured without
}{
	{"push", Push, 1, 0},
	{"pop.min", Pop, 1, 0},
	{"lease+ack", Lease, 1, 0},
	{"worker", Work, 1, 0},
	{"push_100", Push, fillBatch, 0},
	{"pop_100", Pop, fillBatch, 0},
	{"lease+ack_100", Lease, fillBatch, 0},
	{"kept", Lease, 1, 128},
	{"kept_100", Lease, fillBatch, 128},
}

// fillBatch is the number of items in a request of the batches, and of requests that fill and empty
// queues.
const fillBatch = 100

// BenchmarkService measures a pqbridge in a process of its own: an iteration is a turn of about
// -seconds. With -against, one of the other build comes before or after it, by turns, with as many
// items. The ratios compare -pqbridge to the other, so a rate above 100 % is better, and processor
// time below. Benchstat has the medians of many iterations.
func BenchmarkService(b *testing.B) {
	if *pqbridge == "" {
		b.Skip("make bench says which program is measured")
	}

	services := startServices(b, builds()...)
	for _, w := range workloads {
		o, turns := shape, 0
		o.Mode, o.Batch, o.Queue, o.Result = w.mode, w.batch, "bench", w.result

		b.Run(w.name, func(b *testing.B) {
			if o.Mode == Work && o.Queues > 1 {
				b.Skip("a Worker works on one queue")
			}
			if o.Count == 0 { // the first turn only finds out how many items a turn needs
				o.Count = int64(max(100*o.Clients, 20*o.Clients*o.Batch))
				report, _ := services[0].turn(b, o)
				o.Count = int64(report.Operations[0].Rate**seconds) + int64(o.Batch)
			}

			turns++
			benchmarkTurns(b, services, turns, o)
		})
	}
}

// benchmarkTurns reports what b.N turns of each service come to.
func benchmarkTurns(b *testing.B, services []*service, first int, o Options) {
	sums := sums{}
	var p50, p99 float64

	for turn := range b.N {
		for k := range services {
			i, o := (first+turn+k)%len(services), o
			if i == 1 {
				o.Result = 0
			}
			report, used := services[i].turn(b, o)
			row := report.Operations[0]
			sums.of(services[i].name).add(row.Count, report.Seconds, used)

			if i == 0 {
				p50, p99 = p50+row.P50, p99+row.P99
			}
		}
	}

	b.ReportMetric(p50/float64(b.N)*1e3, "p50-ms")
	b.ReportMetric(p99/float64(b.N)*1e3, "p99-ms")
	sums.report(b)
}

// sum is what turns of a service come to.
type sum struct{ items, seconds, cpu float64 }

func (s *sum) add(items int64, seconds float64, cpu time.Duration) {
	s.items += float64(items)
	s.seconds += seconds
	s.cpu += cpu.Seconds()
}

// measure adds what a function does with some items of the process.
func (s *sum) measure(pid int, do func() (items int64, err error)) error {
	begun, before := time.Now(), testenv.ProcessorTime(pid)
	items, err := do()
	s.add(items, time.Since(begun).Seconds(), testenv.ProcessorTime(pid)-before)
	return err
}

func (s *sum) rate() float64 { return s.items / s.seconds }
func (s *sum) each() float64 { return s.cpu / s.items }

// sums are those of services by their names.
type sums map[string]*sum

func (s sums) of(name string) *sum {
	if s[name] == nil {
		s[name] = &sum{}
	}
	return s[name]
}

// report reports that of -pqbridge, and its ratios to that of -against, if there is one.
func (s sums) report(b *testing.B) {
	new, old := s["new"], s["old"]
	b.ReportMetric(0, "ns/op") // an iteration means nothing
	b.ReportMetric(new.rate(), "items/s")
	b.ReportMetric(new.each()*1e6, "bridge-µs/item")

	if old != nil { // in percent, since benchstat would print 0.99 as 990m
		b.ReportMetric(100*new.rate()/old.rate(), "rate-ratio-%")
		if old.each() > 0 {
			b.ReportMetric(100*new.each()/old.each(), "cpu-ratio-%")
		}
	}
}

// service is a pqbridge, and how to reach it.
type service struct {
	name    string
	env     *testenv.Env
	pid     int
	grammar subjects.Grammar
}

// builds are the names of services of the builds that are measured.
func builds() []string {
	if *against != "" {
		return []string{"new", "old"}
	}
	return []string{"new"}
}

// startServices starts services on an empty store each: "old" is -against, others are -pqbridge.
func startServices(b *testing.B, names ...string) (all []*service) {
	env := testenv.New(b, testenv.Options{Stopped: true})
	env.NATS.Start()

	environment := []string{"PQ_STORE=" + *store}
	if *store == "fdb" {
		environment = append(environment, "PQ_FDB_CLUSTER_FILE="+testenv.FDBDiskClusterFile(b))
	}

	for _, name := range names {
		program := *pqbridge
		if name == "old" {
			program = *against
		}

		grammar, err := subjects.New(name, name+"-fifo")
		if err != nil {
			b.Fatal(err)
		}
		pid := env.StartProgram(program, name, environment...)
		all = append(all, &service{name, env, pid, grammar})
	}
	return all
}

// turn runs a load on queues that are empty but for as many items as it takes, and returns what it
// measured and the processor time of the service.
func (s *service) turn(b *testing.B, o Options) (*Report, time.Duration) {
	if o.Result > 0 {
		s.configure(b, o, client.Settings{Keep: time.Hour})
		defer s.configure(b, o, client.Settings{}, "keep")
	}

	if o.Mode.takes() {
		s.run(b, filling(o))
	} else {
		emptying := o
		emptying.Mode, emptying.Batch, emptying.Count, emptying.Duration =
			Pop, fillBatch, 0, testenv.Patience
		defer s.run(b, emptying)
	}

	before := testenv.ProcessorTime(s.pid)
	report := s.run(b, o)
	return report, testenv.ProcessorTime(s.pid) - before
}

// filling pushes what a load that takes items finds, where its turns come to.
func filling(o Options) Options {
	requests := upwards(int(o.Count), o.Batch)
	each := upwards(requests, o.Queues) * o.Batch // items of a queue
	pushes := upwards(each, fillBatch)

	o.Mode, o.Batch = Push, upwards(each, pushes)
	o.Count = int64(pushes * o.Batch * min(requests, o.Queues))
	return o
}

// upwards divides, and rounds up.
func upwards(n, by int) int { return (n + by - 1) / by }

func (s *service) configure(
	b *testing.B, o Options, change client.Settings, reset ...string,
) {
	nc, err := nats.Connect(s.env.NATS.URL(), nats.Timeout(testenv.Patience))
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()

	c := client.New(nc, client.WithGrammar(s.grammar))
	for _, share := range o.shares() {
		_, err := c.PriorityQueue(share.name).Configure(b.Context(), change, reset...)
		if err != nil {
			b.Fatal(err)
		}
	}
}

func (s *service) run(b *testing.B, o Options) *Report {
	o.Grammar, o.Timeout = s.grammar, testenv.Patience
	o.Dial = func() (*nats.Conn, error) {
		return nats.Connect(s.env.NATS.URL(), nats.Timeout(testenv.Patience))
	}
	report, err := Run(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}

	if failed := report.Operations[0].Errors; failed > 0 {
		b.Fatalf("%s: %d requests failed", o.Mode, failed)
	}

	return report
}
