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

	env := testenv.New(b, testenv.Options{Stopped: true})
	env.NATS.Start()

	environment := []string{"PQ_STORE=" + *store}
	if *store == "fdb" {
		environment = append(environment, "PQ_FDB_CLUSTER_FILE="+testenv.FDBDiskClusterFile(b))
	}

	services := []*service{startService(b, env, *pqbridge, "new", environment)}
	if *against != "" {
		services = append(services, startService(b, env, *against, "old", environment))
	}

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
	var items, elapsed, cpu [2]float64
	var p50, p99 float64

	for turn := range b.N {
		for k := range services {
			i, o := (first+turn+k)%len(services), o
			if i == 1 {
				o.Result = 0
			}
			report, used := services[i].turn(b, o)
			row := report.Operations[0]
			items[i] += float64(row.Count)
			elapsed[i] += report.Seconds
			cpu[i] += used.Seconds()

			if i == 0 {
				p50, p99 = p50+row.P50, p99+row.P99
			}
		}
	}

	each := func(i int) float64 { return cpu[i] / items[i] }
	b.ReportMetric(0, "ns/op") // an iteration means nothing
	b.ReportMetric(items[0]/elapsed[0], "items/s")
	b.ReportMetric(p50/float64(b.N)*1e3, "p50-ms")
	b.ReportMetric(p99/float64(b.N)*1e3, "p99-ms")
	b.ReportMetric(each(0)*1e6, "bridge-µs/item")

	if len(services) > 1 { // in percent, since benchstat would print 0.99 as 990m
		b.ReportMetric(100*items[0]/elapsed[0]/(items[1]/elapsed[1]), "rate-ratio-%")
		if each(1) > 0 {
			b.ReportMetric(100*each(0)/each(1), "cpu-ratio-%")
		}
	}
}

// service is a pqbridge, and how to reach it.
type service struct {
	env     *testenv.Env
	pid     int
	grammar subjects.Grammar
}

func startService(
	b *testing.B, env *testenv.Env, program, prefix string, environment []string,
) *service {
	grammar, err := subjects.New(prefix, prefix+"-fifo")
	if err != nil {
		b.Fatal(err)
	}

	return &service{env, env.StartProgram(program, prefix, environment...), grammar}
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
	upwards := func(n, by int) int { return (n + by - 1) / by }
	requests := upwards(int(o.Count), o.Batch)
	each := upwards(requests, o.Queues) * o.Batch // items of a queue
	pushes := upwards(each, fillBatch)

	o.Mode, o.Batch = Push, upwards(each, pushes)
	o.Count = int64(pushes * o.Batch * min(requests, o.Queues))
	return o
}

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
