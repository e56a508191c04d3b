package peers

import (
	"errors"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// endings tells the bridges on which requests wait for outcomes of jobs which jobs have ended here,
// and hears what they tell.
//
// A bridge on which somebody waits says so with each heartbeat, on a subject of its own, because
// bridges that do not know a word of a heartbeat drop the heartbeat. While a bridge hears that, it
// tells of the jobs that its batches have ended, once they are durable. A tell may get lost, so
// each has a number, and the newest number goes out again twice a second. A bridge that misses a
// number has all its waits look.
//
// To begin to tell takes a number as well, so a bridge that has stopped in between, which may have
// missed that somebody waits, is noticed in the same way: nobody has heard the tell of that number.
// No clock is in this, and no peer has to be known for what it says to be right.
type endings struct {
	p     *peering
	waits need // of requests for outcomes: peers have to tell

	publish func(subject string, data []byte) // the Router's, except in tests

	mu struct {
		sync.Mutex
		number uint64 // of the last message
		wanted int    // for how many more own heartbeats this bridge tells
		beats  int    // own heartbeats so far
	}
}

// maxEndings is how many jobs one message names: 200 kB if all names of queues are long.
const maxEndings = 1024

// beat is called once per heartbeat.
func (e *endings) beat() {
	e.waits.beat(e.p.config.ResultWaits() > 0)

	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.beats++
	e.mu.wanted = max(e.mu.wanted-1, 0)
	if e.mu.wanted > 0 && e.mu.beats%2 == 0 {
		e.sendLocked(nil)
	}
}

// sayWaits is called with each heartbeat, also with one between beats.
func (e *endings) sayWaits() {
	if e.waits.Load() {
		e.publish("waits", []byte(e.p.config.Self.ID))
	}
}

// hearWaits handles what sayWaits says.
func (e *endings) hearWaits(m *nats.Msg) {
	if string(m.Data) == e.p.config.Self.ID {
		return
	}

	e.mu.Lock()
	defer e.mu.Unlock()
	begins := e.mu.wanted == 0
	e.mu.wanted = peerLife
	if begins {
		e.mu.number++
		e.sendLocked(nil)
	}
}

// tell tells peers which jobs have ended here, if one of them waits.
func (e *endings) tell(jobs []fdbpq.QueueJob) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for ; e.mu.wanted > 0 && len(jobs) > 0; jobs = jobs[min(len(jobs), maxEndings):] {
		e.mu.number++
		e.sendLocked(jobs[:min(len(jobs), maxEndings)])
	}
}

// sendLocked sends the newest number, with the jobs of its message; without jobs, it is only there
// to be missed. The lock is held meanwhile, so that the numbers arrive in order.
func (e *endings) sendLocked(jobs []fdbpq.QueueJob) {
	b := append([]byte(e.p.config.Self.ID), ' ')
	b = strconv.AppendUint(b, e.mu.number, 10)
	for i := range jobs {
		q := jobs[i].Queue
		if i == 0 || q != jobs[i-1].Queue {
			b = append(b, "\n"+dispatch.KindOf(q).Short()+" "+q.Name...)
		}
		b = jobs[i].Job.AppendTo(append(b, ' '))
	}
	e.publish("ended", b)
}

var errEndings = errors.New("malformed list of jobs that have ended")

// parseEndings reads what sendLocked wrote.
func parseEndings(data string) (id string, number uint64, jobs []fdbpq.QueueJob, err error) {
	first, rest, _ := strings.Cut(data, "\n")
	id, digits, _ := strings.Cut(first, " ")
	if number, err = strconv.ParseUint(digits, 10, 64); err != nil {
		return id, 0, nil, errEndings
	}

	for line := range strings.Lines(rest) {
		words := strings.Fields(line)
		if len(words) < 3 {
			return id, number, nil, errEndings
		}
		kind, known := subjects.ParseShort(words[0])
		for _, text := range words[2:] {
			job, err := fdbpq.ParseID(text)
			if err != nil || !known {
				return id, number, nil, errEndings
			}
			jobs = append(jobs, fdbpq.QueueJob{Queue: dispatch.NameOf(kind, words[1]), Job: job})
		}
	}
	return id, number, jobs, nil
}
