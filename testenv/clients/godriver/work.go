package godriver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/client"
)

// stopTimeout is how long a worker that SIGTERM stops waits for its jobs.
const stopTimeout = 25 * time.Second

// worker is a worker that runs.
type worker struct {
	*client.Worker
	driver *driver
	name   string
	ended  chan struct{}
}

func (c *command) runWork(_ context.Context, d *driver) (any, error) {
	w := &worker{driver: d, name: c.Worker, ended: make(chan struct{})}

	var queues []client.WeightedQueue
	for _, name := range append(c.Queues, c.Queue) {
		if name != "" {
			queues = append(queues, c.named(d, name).Weight(1))
		}
	}

	var err error
	w.Worker, err = client.NewWorker(w.handlers(c.Types), client.WorkerOptions{
		Concurrency: c.Concurrency,
		AckWait:     time.Duration(c.AckWait),
		Holder:      c.Holder,
		JobTimeout:  time.Duration(c.JobTimeout),
		RetryDelay:  time.Duration(c.RetryDelay),
		Max:         c.Max.end,
	}, queues...)
	if err != nil {
		return nil, err
	}

	d.mu.Lock()
	d.workers[c.Worker] = w
	d.mu.Unlock()
	go func() {
		defer close(w.ended)
		if err := w.Run(context.Background()); err != nil {
			d.say(object{"event": "error", "worker": w.name, "class": class(err)})
		}
	}()
	return nil, nil
}

// handlers returns the Work of all handlers.
func (w *worker) handlers(types []string) client.Work {
	if types == nil {
		return w.handler("")
	}

	var mux client.Mux
	for _, key := range types {
		if key == "*" {
			mux.NotFound(w.handler(key))
		} else {
			mux.Handle(key, w.handler(key))
		}
	}
	return mux.Work
}

func (c *command) runStop(ctx context.Context, d *driver) (any, error) {
	d.mu.Lock()
	w, found := d.workers[c.Worker]
	d.mu.Unlock()
	if !found {
		return nil, fmt.Errorf("no worker %q", c.Worker)
	}

	w.stop(cmp.Or(time.Duration(c.Timeout), stopTimeout))
	return nil, nil
}

// stop stops the worker, and returns when it has given back what it could not do.
func (w *worker) stop(timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_ = w.Shutdown(ctx) // its only error is that the jobs took longer
	<-w.ended
}

// stopAll stops all workers.
func (d *driver) stopAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all sync.WaitGroup
	for _, w := range d.workers {
		all.Go(func() { w.stop(stopTimeout) })
	}
	all.Wait()
}

// handler returns the handler with a key, which does what the values of its jobs say.
func (w *worker) handler(key string) client.Work {
	return func(ctx context.Context, job *client.Job) error {
		about := func(event string) object {
			at := text(time.Now().UnixMilli())
			return object{"event": event, "worker": w.name, "job": job.ID, "at": at}
		}

		start := about("start")
		start["deliveries"] = text(job.Deliveries)
		start["type"] = job.Headers.Get(client.HeaderType)
		if key != "" {
			start["handler"] = key
		}
		if j := job.Joined; j != nil {
			start["joined"] = j.String()
		}
		if job.Parent != nil {
			start["parent"] = job.Parent.ID
		}
		w.driver.say(start)

		err := runScript(ctx, job)
		end := about("end")
		end["how"] = how(ctx, err)
		w.driver.say(end)
		return err
	}
}

// how says how a script has ended.
func how(ctx context.Context, err error) string {
	cause := context.Cause(ctx)
	switch {
	case err == nil:
		return "done"
	case ctx.Err() == nil || !errors.Is(err, ctx.Err()):
		return "failed"
	case errors.Is(cause, client.ErrLeaseLost):
		return "lost"
	case errors.Is(cause, client.ErrTimedOut):
		return "timeout"
	}
	return "stopped"
}

// runScript does what the value of a job says.
func runScript(ctx context.Context, job *client.Job) error {
	var script struct {
		Do [][]string `json:"do"`
	}
	if !bytes.HasPrefix(job.Value, []byte(`{"do":`)) {
		return nil
	}
	if err := json.Unmarshal(job.Value, &script); err != nil {
		return err
	}

	for _, step := range script.Do {
		if ended, err := runStep(ctx, job, step[0], step[1:]); ended || err != nil {
			return err
		}
	}
	return nil
}

// runStep does one step, and says whether it ends the script.
func runStep(
	ctx context.Context, job *client.Job, name string, args []string,
) (ended bool, err error) {
	arg, last := append(args, "", ""), ""
	if len(args) > 0 {
		last = args[len(args)-1]
	}
	length, _ := time.ParseDuration(arg[0]) // 0 where it is no duration

	switch name {
	case "thread":
		return false, nil
	case "wait":
		select {
		case <-time.After(length):
		case <-ctx.Done():
			return true, ctx.Err()
		}
		return false, nil
	case "block":
		time.Sleep(length)
		if ctx.Err() != nil {
			return true, ctx.Err()
		}
		return false, nil
	case "progress":
		return false, job.Progress(ctx, []byte(arg[0]))
	case "fail":
		if len(args) > 1 {
			return true, fmt.Errorf("%s: %w", arg[0], errors.New(arg[1]))
		}
		return true, errors.New(arg[0])
	case "retry":
		return true, client.RetryAfter(length, errors.New(arg[1]))
	case "snooze":
		return true, client.Snooze(length)
	case "drop":
		return true, client.Drop(arg[0])
	}

	value, err := base64.StdEncoding.DecodeString(last)
	switch {
	case err != nil:
		return true, err
	case name == "next":
		return false, job.Then(arg[0], 0, value)
	case name == "member":
		return false, job.Then(arg[0], 0, value, client.Joiner(*job.Joiner))
	case name == "all":
		return false, thenAll(job, arg[0], args[1:])
	case name == "return" && len(args) > 0:
		job.SetResult(value, "")
		return true, nil
	case name == "return":
		return true, nil
	}
	return true, fmt.Errorf("no step %q", name)
}

// thenAll has the acknowledgement push a joiner and its members to a queue.
func thenAll(job *client.Job, queue string, values []string) error {
	var all [][]byte
	for _, text := range values {
		value, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return err
		}
		all = append(all, value)
	}

	ref, err := job.ThenJoin(queue, 0, all[0])
	for _, member := range all[1:] {
		err = errors.Join(err, job.Then(queue, 0, member, client.Joiner(ref)))
	}
	return err
}
