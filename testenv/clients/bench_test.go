package clients_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

var (
	pqbridge = flag.String("pqbridge", "", "the `program` that BenchmarkWorkers measures")
	jobs     = flag.Int("jobs", 20_000, "jobs of each worker, a multiple of 1,000")
)

// BenchmarkWorkers measures a worker in each language, with an empty handler and 64 jobs at once,
// and 64 pushes and calls at once. An iteration is a process with one worker, from the first of
// -jobs jobs to the last, or one that pushes or calls a quarter as many. A worker in Go does the
// jobs of calls.
func BenchmarkWorkers(b *testing.B) {
	if *pqbridge == "" {
		b.Skip("make bench-workers says which program is measured")
	}

	env := testenv.New(b, testenv.Options{Stopped: true})
	env.NATS.Start()
	service := env.StartProgram(*pqbridge, subjects.DefaultPriorityPrefix)
	queue := client.New(env.Connect()).PriorityQueue("bench")

	measure := func(b *testing.B, op string, l language) {
		b.Run("op="+op+"/language="+l.name, func(b *testing.B) {
			l.mustRun(b)
			var spent [3]time.Duration
			n := *jobs
			if op != "work" {
				n /= 4
			}
			for range b.N {
				must(queue.Purge(b.Context(), "")) // what was pushed before
				switch op {
				case "work":
					item := client.PushItem{Message: client.Message{Value: make([]byte, 128)}}
					thousand := slices.Repeat([]client.PushItem{item}, 1000)
					for range n / 1000 {
						must(queue.PushBatch(b.Context(), thousand))
					}
				case "call":
					defer answerCalls(b, queue)()
				}

				for i, d := range workOff(b, l, op, n, env.NATS.URL(), service) {
					spent[i] += d
				}
			}

			each := func(i int) float64 { return spent[i].Seconds() / float64(b.N*n) }
			b.ReportMetric(0, "ns/op") // an iteration means nothing
			b.ReportMetric(1/each(0), "jobs/s")
			b.ReportMetric(each(1)*1e6, "worker-µs/job")
			b.ReportMetric(each(2)*1e6, "bridge-µs/job")
		})
	}
	for _, op := range []string{"work", "push", "call"} {
		for _, l := range append([]language{inGo, inJavaScript, inPython}, javas()...) {
			measure(b, op, l)
		}
	}
}

// javas returns the language Java for each of the programs that PQ_TEST_JAVAS names.
func javas() (all []language) {
	for _, name := range strings.Fields(cmp.Or(os.Getenv("PQ_TEST_JAVAS"), java)) {
		l := inJava
		l.worker = append([]string{name}, l.worker[1:]...)
		if version, err := exec.Command(name, "-version").CombinedOutput(); err == nil {
			quoted := strings.SplitN(string(version), `"`, 3) // openjdk version "17.0.15" ...
			major, _, _ := strings.Cut(quoted[1], ".")
			l.name += " " + major
		}
		all = append(all, l)
	}
	return all
}

// answerCalls does the jobs of calls until it is stopped.
func answerCalls(b *testing.B, queue *client.Queue) (stop func()) {
	nothing := func(context.Context, *client.Job) error { return nil }
	worker := must(queue.NewWorker(nothing, client.WorkerOptions{Concurrency: 64}))
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	return func() {
		cancel()
		must(0, <-ended)
	}
}

// workOff runs a worker, or what pushes or calls, n times, and returns how long it took and the
// processor time of worker and bridge.
func workOff(
	b *testing.B, l language, op string, n int, url string, bridge int,
) (spent [3]time.Duration) {
	cmd := harness.Command(l.worker[0], l.worker[1:]...)
	cmd.Env = append(os.Environ(), driverVariable+"="+asWorker, "NATS_URL="+url,
		"JOBS="+strconv.Itoa(n), "OP="+op)
	cmd.Stderr = os.Stderr
	lines := bufio.NewScanner(must(cmd.StdoutPipe()))
	must(0, cmd.Start())

	for range 2 { // lines, when the first job begins and when the last does
		if !lines.Scan() {
			b.Fatalf("the worker in %s ended early: %v", l.name, cmd.Wait())
		}
		for i, now := range []time.Duration{
			time.Since(epoch),
			testenv.ProcessorTime(cmd.Process.Pid),
			testenv.ProcessorTime(bridge),
		} {
			spent[i] = now - spent[i]
		}
	}

	must(0, cmd.Wait())
	return spent
}

var epoch = time.Now()

// work is the worker in Go. Those in other languages are beside their drivers.
func work() error {
	nc, err := nats.Connect(os.Getenv("NATS_URL"))
	if err != nil {
		return err
	}
	defer nc.Close()

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	last, err := strconv.ParseInt(os.Getenv("JOBS"), 10, 64)
	var begun atomic.Int64
	queue := client.New(nc).PriorityQueue("bench")
	if op := os.Getenv("OP"); op != "work" {
		return repeat(op, queue, last)
	}

	worker, failed := queue.NewWorker(
		func(context.Context, *client.Job) error {
			n := begun.Add(1)
			if n == 1 || n == last {
				fmt.Println(n)
			}
			if n == last {
				stop()
			}
			return nil
		}, client.WorkerOptions{Concurrency: 64})
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	return worker.Run(ctx)
}

// repeat pushes or calls n times, 64 at once.
func repeat(op string, queue *client.Queue, n int64) error {
	operation := func(ctx context.Context) error {
		_, err := queue.Push(ctx, 0, make([]byte, 128))
		return err
	}
	if op == "call" {
		operation = func(ctx context.Context) error {
			_, err := queue.Call(ctx, 0, make([]byte, 128))
			return err
		}
	}

	fmt.Println(1)
	var begun atomic.Int64
	group, ctx := errgroup.WithContext(context.Background())
	for range 64 {
		group.Go(func() error {
			for begun.Add(1) <= n {
				if err := operation(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := group.Wait()
	fmt.Println(n)
	return err
}
