package load

import (
	"cmp"
	"context"
	"flag"
	"fmt"
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

// workloads are loads of pq bench. The zero values of queues and size stand for the shape's.
var workloads = []struct {
	name         string
	mode         Mode
	batch        int
	result       int // of jobs that are kept; turns without are then measured beside
	queues, size int
}{
	{name: "push", mode: Push},
	{name: "pop.min", mode: Pop},
	{name: "lease+ack", mode: Lease},
	{name: "worker", mode: Work},
	{name: "push_100", mode: Push, batch: fillBatch},
	{name: "pop_100", mode: Pop, batch: fillBatch},
	{name: "lease+ack_100", mode: Lease, batch: fillBatch},
	{name: "kept", mode: Lease, result: 128},
	{name: "kept_100", mode: Lease, batch: fillBatch, result: 128},
	{name: "push_4KiB", mode: Push, size: 4 << 10},
	{name: "lease+ack_4KiB", mode: Lease, size: 4 << 10},
	{name: "push_64KiB", mode: Push, size: 64 << 10},
	{name: "lease+ack_64KiB", mode: Lease, size: 64 << 10},
	{name: "push_1000_queues", mode: Push, queues: 1000},
	{name: "lease+ack_1000_queues", mode: Lease, queues: 1000},
}

// fillBatch is the number of items in a request of the batches, and the most in requests that fill
// and empty queues.
const fillBatch = 100

// underWay is how many bytes of values may be under way: a bridge accepts no more of large ones.
const underWay = 32 << 20

// BenchmarkService measures a pqbridge in a process of its own: an iteration is a turn of about
// -seconds. With -against, one of the other build comes before or after it, by turns, with as many
// items. The ratios compare -pqbridge to the other, so a rate above 100 % is better, and processor
// time below. A build that fails is left out, without ratios, if it is the other one: it may be too
// old for the load. Benchstat has the medians of many iterations.
func BenchmarkService(b *testing.B) {
	if *pqbridge == "" {
		b.Skip("make bench says which program is measured")
	}

	services := startServices(b, builds()...)
	for _, w := range workloads {
		o, turns := shape, 0
		o.Mode, o.Batch, o.Queue, o.Result = w.mode, max(w.batch, 1), "bench", w.result
		o.Queues, o.Size = cmp.Or(w.queues, o.Queues), cmp.Or(w.size, o.Size)

		b.Run(w.name, func(b *testing.B) {
			if o.Mode == Work && o.Queues > 1 {
				b.Skip("a Worker works on one queue")
			}
			if o.Count == 0 { // the first turn only finds out how many items a turn needs
				o.Count = int64(max(100*o.Clients, 20*o.Clients*o.Batch))
				o.Count = min(o.Count, 2*underWay/int64(o.Size))
				report, _, err := services[0].turn(b.Context(), o)
				if err != nil {
					b.Fatal(err)
				}
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

	turn := func(s *service, name string, o Options) *Report {
		report, used, err := s.turn(b.Context(), o)
		switch {
		case err == nil:
			sums.of(name).add(report.Operations[0].Count, report.Seconds, used)
		case name == "old":
			b.Logf("the other build is left out: %v", err)
		default:
			b.Fatal(err)
		}
		return report
	}

	for n := range b.N {
		for k := range services {
			i := (first + n + k) % len(services)
			if report := turn(services[i], services[i].name, o); i == 0 {
				p50, p99 = p50+report.Operations[0].P50, p99+report.Operations[0].P99
			}
		}
		if o.Result > 0 {
			plain := o
			plain.Result = 0
			turn(services[0], "plain", plain)
		}
	}

	b.ReportMetric(p50/float64(b.N)*1e3, "p50-ms")
	b.ReportMetric(p99/float64(b.N)*1e3, "p99-ms")
	sums.report(b)
}

// turnTime is -seconds.
func turnTime() time.Duration { return time.Duration(*seconds * float64(time.Second)) }

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

// report reports that of -pqbridge, and its ratios to that of -against and to plain jobs, if there
// are any.
func (s sums) report(b *testing.B) {
	new := s["new"]
	b.ReportMetric(0, "ns/op") // an iteration means nothing
	b.ReportMetric(new.rate(), "items/s")
	b.ReportMetric(new.each()*1e6, "bridge-µs/item")

	for name, units := range map[string][2]string{
		"old":   {"rate-ratio-%", "cpu-ratio-%"},
		"plain": {"rate-of-plain-%", "cpu-of-plain-%"},
	} {
		other := s[name]
		if other == nil {
			continue
		}
		b.ReportMetric(100*new.rate()/other.rate(), units[0]) // benchstat would print 0.99 as 990m
		if other.each() > 0 {
			b.ReportMetric(100*new.each()/other.each(), units[1])
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
func (s *service) turn(ctx context.Context, o Options) (*Report, time.Duration, error) {
	if o.Result > 0 {
		if err := s.configure(ctx, o, client.Settings{Keep: time.Hour}); err != nil {
			return nil, 0, err
		}
	}
	if o.Mode.takes() {
		if _, err := s.run(ctx, filling(o)); err != nil {
			return nil, 0, err
		}
	}

	before := testenv.ProcessorTime(s.pid)
	report, err := s.run(ctx, o)
	used := testenv.ProcessorTime(s.pid) - before
	if err != nil {
		return nil, 0, err
	}

	if !o.Mode.takes() {
		emptying := o
		emptying.Mode, emptying.Batch, emptying.Count, emptying.Duration =
			Pop, o.filled(), 0, testenv.Patience
		_, err = s.run(ctx, emptying)
	}
	if o.Result > 0 {
		err = cmp.Or(err, s.configure(ctx, o, client.Settings{}, "keep"))
	}
	return report, used, err
}

// filled is how many items requests that fill and empty queues have.
func (o *Options) filled() int {
	return max(1, min(fillBatch, underWay/o.Clients/o.Size))
}

// filling pushes what a load that takes items finds, where its turns come to.
func filling(o Options) Options {
	requests := upwards(int(o.Count), o.Batch)
	each := upwards(requests, o.Queues) * o.Batch // items of a queue
	pushes := upwards(each, o.filled())

	o.Mode, o.Batch = Push, upwards(each, pushes)
	o.Count = int64(pushes * o.Batch * min(requests, o.Queues))
	return o
}

// upwards divides, and rounds up.
func upwards(n, by int) int { return (n + by - 1) / by }

func (s *service) configure(
	ctx context.Context, o Options, change client.Settings, reset ...string,
) error {
	nc, err := nats.Connect(s.env.NATS.URL(), nats.Timeout(testenv.Patience))
	if err != nil {
		return err
	}
	defer nc.Close()

	c := client.New(nc, client.WithGrammar(s.grammar))
	for _, share := range o.shares() {
		_, err := c.PriorityQueue(share.name).Configure(ctx, change, reset...)
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *service) run(ctx context.Context, o Options) (*Report, error) {
	o.Grammar, o.Timeout = s.grammar, testenv.Patience
	o.Dial = func() (*nats.Conn, error) {
		return nats.Connect(s.env.NATS.URL(), nats.Timeout(testenv.Patience))
	}
	report, err := Run(ctx, o)
	if err == nil && report.Operations[0].Errors > 0 {
		err = fmt.Errorf("%s: %d requests failed", o.Mode, report.Operations[0].Errors)
	}
	return report, err
}
