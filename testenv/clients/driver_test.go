package clients_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// driver is a driver that runs in a process of its own.
type driver struct {
	*story
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	log  harness.Transcript
	done chan struct{} // closed when the process is gone; err is how it ended
	err  error

	ready   chan struct{} // closed when it is
	changed chan struct{} // has an element when there are events
	killed  bool          // by the test
	frozen  bool

	mu      sync.Mutex
	n       int // commands
	waiting map[int]chan answer
	heard   []event
}

// in has the members of a command.
type in map[string]any

// answer is what a command was answered.
type answer struct {
	Value any    `json:"value"`
	Error *fault `json:"error"`
}

// fault is an error in an answer.
type fault struct {
	Class   string `json:"class"`
	Code    string `json:"code"`
	Reason  string `json:"reason"`
	Text    string `json:"text"`
	Unknown bool   `json:"unknown"`
	Job     string `json:"job"`
}

// event is what a driver says by itself.
type event struct {
	Event      string `json:"event"`
	Worker     string `json:"worker"`
	Job        string `json:"job"`
	Deliveries string `json:"deliveries"`
	Type       string `json:"type"`
	Handler    string `json:"handler"`
	Joined     string `json:"joined"`
	Parent     string `json:"parent"`
	How        string `json:"how"`
	Class      string `json:"class"`
	At         int64  `json:"at,string"`
}

// start starts a driver and does not wait until it is ready. The variables are added to its
// environment.
func (s *story) start(l language, variables ...string) *driver {
	s.Helper()
	s.begin(testenv.Options{})
	d := &driver{
		story:   s,
		name:    fmt.Sprintf("%s driver %d", l.name, len(s.drivers)+1),
		cmd:     harness.Command(l.program[0], l.program[1:]...),
		done:    make(chan struct{}),
		ready:   make(chan struct{}),
		changed: make(chan struct{}, 1),
		waiting: map[int]chan answer{},
	}
	s.drivers = append(s.drivers, d)

	d.cmd.Env = append(os.Environ(), driverVariable+"=1", "NATS_URL="+s.env.NATS.URL(),
		"PQ_TIMEOUT="+testenv.Patience.String(), "PYTHONUNBUFFERED=1")
	d.cmd.Env = append(d.cmd.Env, variables...)
	d.cmd.Stderr = &d.log

	d.in = must(d.cmd.StdinPipe())
	out := must(d.cmd.StdoutPipe())
	if err := d.cmd.Start(); err != nil {
		s.Fatalf("%s: %v", d.name, err)
	}

	go func() {
		d.read(out)
		d.err = d.cmd.Wait()
		close(d.done)
	}()
	s.Cleanup(func() {
		_ = d.cmd.Process.Kill() // fails only if it is gone
		<-d.done
		if s.Failed() {
			s.Logf("%s said: %s", d.name, harness.Shorten("driver", d.log.String()))
		}
	})
	return d
}

// read reads what the driver prints.
func (d *driver) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 64<<20)

	for lines.Scan() {
		var line struct {
			N int `json:"n"`
			answer
			event
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			d.Errorf("%s printed %.200q: %v", d.name, lines.Text(), err)
			continue
		}

		d.mu.Lock()
		switch {
		case line.Event == "ready":
			close(d.ready)
		case line.Event != "":
			d.heard = append(d.heard, line.event)
			select {
			case d.changed <- struct{}{}:
			default:
			}
		default:
			if waiting, ok := d.waiting[line.N]; ok {
				waiting <- line.answer
				delete(d.waiting, line.N)
			} else {
				d.Errorf("%s answered what nobody asked: %.200s", d.name, lines.Text())
			}
		}
		d.mu.Unlock()
	}
}

// isReady waits until the driver is connected.
func (d *driver) isReady() *driver {
	d.Helper()
	await(d, "it to be ready", d.ready)
	return d
}

// await waits for something that a driver does.
func await[T any](d *driver, what string, is <-chan T) T {
	d.Helper()
	select {
	case v := <-is:
		return v
	case <-d.done:
	case <-time.After(testenv.Patience):
		d.Fatalf("%s: the test waited for %s for %v", d.name, what, testenv.Patience)
	}

	select {
	case v := <-is: // the last that it said
		return v
	default:
		d.Fatalf("%s has ended (%v) while the test waited for %s", d.name, d.err, what)
		panic("unreachable")
	}
}

// asked is a command under way.
type asked struct {
	d       *driver
	op      string
	members in
	text    string
	is      chan answer
}

// ask sends a command and does not wait for the answer. Without a queue it is about the queue jobs,
// and without a worker about the worker w. Ids may be names that the story gave them.
func (d *driver) ask(op string, members in) *asked {
	d.Helper()
	line := in{"op": op}
	ofNoQueue := []string{"settle", "ackAll", "stop", "exit"}
	if members["queues"] == nil && !slices.Contains(ofNoQueue, op) {
		line["queue"] = "jobs"
	}
	if op == "work" || op == "stop" {
		line["worker"] = "w"
	}
	maps.Copy(line, members)
	for _, member := range []string{"id", "place", "ids", "places", "joiner"} {
		switch named := line[member].(type) {
		case string:
			line[member] = d.idOf(named)
		case []string:
			ids := make([]string, len(named))
			for i, name := range named {
				ids[i] = d.idOf(name)
			}
			line[member] = ids
		}
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	d.n++
	line["n"] = d.n
	text := must(json.Marshal(line))
	a := &asked{
		d:       d,
		op:      op,
		members: members,
		text:    fmt.Sprintf("%.300s", text),
		is:      make(chan answer, 1),
	}
	d.waiting[d.n] = a.is

	if _, err := d.in.Write(append(text, '\n')); err != nil {
		d.Fatalf("%s: %s: %v", d.name, a.text, err)
	}
	return a
}

// answer waits for the answer.
func (a *asked) answer() answer {
	a.d.Helper()
	is := await(a.d, "an answer to "+a.text, a.is)
	if is.Error != nil && is.Error.Class == "Unsupported" {
		if a.d.language.known != nil {
			a.d.Skipf("left out: the version before does not know %s: %s", a.text, is.Error.Text)
		}
		a.d.Fatalf("%s does not know %s: %s", a.d.name, a.text, is.Error.Text)
	}
	return is
}

// hears waits for the next events about jobs, which come in any order: "start job1 1" or "end job1
// done". A worker that is not w has its name behind, types, handlers, the members of a joiner and
// parents too.
func (d *driver) hears(want ...string) {
	d.Helper()
	var got []string
	for len(got) < len(want) {
		d.mu.Lock()
		for len(d.heard) > 0 && len(got) < len(want) {
			if e := d.heard[0]; e.Event != "error" {
				got = append(got, d.note(e))
			}
			d.heard = d.heard[1:]
		}
		d.mu.Unlock()
		if len(got) < len(want) {
			await(d, fmt.Sprintf("events %q after %q", want, got), d.changed)
		}
	}

	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) {
		d.Fatalf("%s said %q: want %q", d.name, got, want)
	}
}

// hearsSome waits for that many events about jobs, and takes all there are.
func (d *driver) hearsSome(n int) {
	d.Helper()
	for {
		d.mu.Lock()
		for _, e := range d.heard {
			if e.Event != "error" {
				d.note(e)
				n--
			}
		}
		d.heard = nil
		d.mu.Unlock()
		if n <= 0 {
			return
		}
		await(d, "more events", d.changed)
	}
}

// hearsError waits for an error of a worker, and drops what comes before.
func (d *driver) hearsError(class string) {
	d.Helper()
	for {
		d.mu.Lock()
		for len(d.heard) > 0 {
			e := d.heard[0]
			if d.heard = d.heard[1:]; e.Event == "error" && e.Class == class {
				d.mu.Unlock()
				return
			} else if e.Event != "error" {
				d.note(e)
			}
		}
		d.mu.Unlock()
		await(d, "the error "+class, d.changed)
	}
}

// note records an event for the judge, and returns it as scenarios have it.
func (d *driver) note(e event) string {
	d.judge.event(d, e)
	words := []string{e.Event, d.named("job", e.Job), e.Deliveries + e.How}
	if e.Worker != "w" {
		words = append(words, e.Worker)
	}
	if e.Type != "" {
		words = append(words, "type "+e.Type)
	}
	if e.Handler != "" {
		words = append(words, "handler "+e.Handler)
	}
	if e.Joined != "" {
		words = append(words, "joined "+e.Joined)
	}
	if e.Parent != "" {
		words = append(words, "parent "+d.named("job", e.Parent))
	}
	return strings.Join(words, " ")
}

// kill kills the process, as kill -9 does.
func (d *driver) kill() {
	d.Helper()
	d.killed = true
	if err := d.cmd.Process.Kill(); err != nil {
		d.Fatalf("%s: %v", d.name, err)
	}
	<-d.done
}

// signal sends a signal to the process.
func (d *driver) signal(signal syscall.Signal) {
	d.Helper()
	d.frozen = signal == syscall.SIGSTOP
	if err := d.cmd.Process.Signal(signal); err != nil {
		d.Fatalf("%s: %v", d.name, err)
	}
}

// exits waits until the process has ended well.
func (d *driver) exits() {
	d.Helper()
	select {
	case <-d.done:
	case <-time.After(testenv.Patience):
		d.Fatalf("%s does not end", d.name)
	}
	if d.err != nil {
		d.Fatalf("%s ended with %v", d.name, d.err)
	}
}
