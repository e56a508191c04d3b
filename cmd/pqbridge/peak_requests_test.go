package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// This file has the requests of TestPeakMemory.

// together runs do n times at once, and returns the sum of what it returns.
func (p *peak) together(n int, do func(i int) int) int {
	var sum atomic.Int64
	var running sync.WaitGroup

	for i := range n {
		running.Go(func() { sum.Add(int64(do(i))) })
	}

	running.Wait()
	return int(sum.Load())
}

// pushers is how many requests push at once.
const pushers = 16

// fill pushes the items, each with a priority of its own.
func (p *peak) fill() int {
	value := make([]byte, peakValue)
	p.ids = make([]string, p.items)

	return p.together(pushers, func(part int) (n int) {
		for i := part; i < p.items; i += pushers {
			reply := p.ask(fmt.Sprintf("pq.jobs.push.%d", i), value)
			var pushed struct{ ID string }
			if err := json.Unmarshal(reply.Data, &pushed); err != nil {
				p.t.Errorf("%s: %v", reply.Data, err)
			}

			p.ids[i] = pushed.ID
			n++
		}
		return n
	})
}

// ask sends a request, again if the service has too much to do.
func (p *peak) ask(subject string, payload []byte) *nats.Msg {
	for {
		reply, err := p.nc.Request(subject, payload, testenv.Patience)
		if err != nil {
			p.t.Errorf("%s: %v", subject, err)
			return &nats.Msg{Data: []byte("{}")}
		}

		code := reply.Header.Get(subjects.HeaderErrorCode)
		if code != strconv.Itoa(int(subjects.CodeOverloaded)) {
			return reply
		}
	}
}

// one sends a request, and returns 1 if the reply is no error but that there is no such item.
func (p *peak) one(subject, payload string) int {
	reply := p.ask(subject, []byte(payload))
	if err := subjects.ErrorFromHeaders(reply.Header); err != nil {
		if code := reply.Header.Get(subjects.HeaderErrorCode); code != "404" && code != "409" {
			p.t.Errorf("%s: %v", subject, err)
		}
		return 0
	}

	return 1
}

// take pops or leases several items of the queue.
func (p *peak) take(options string, tokens *[]string) (n int) {
	return p.receive("pq.jobs.pop.min", options, tokens)
}

var peakTokens sync.Mutex

// receive returns how many items came, and appends the subjects for their acknowledgements.
func (p *peak) receive(subject, payload string, tokens *[]string) (n int) {
	inbox := p.nc.NewInbox()
	replies, err := p.nc.SubscribeSync(inbox)
	must(p.t, err)
	defer func() { _ = replies.Unsubscribe() }()
	must(p.t, p.nc.PublishRequest(subject, inbox, []byte(payload)))

	for {
		m, err := replies.NextMsg(testenv.Patience)
		if err != nil {
			p.t.Errorf("%s %s: after %d items: %v", subject, payload, n, err)
			return n
		}

		code := m.Header.Get(subjects.HeaderErrorCode)
		if frames := m.Header.Get(subjects.HeaderFrames); frames != "" {
			some, err := strconv.Atoi(frames)
			if err != nil {
				p.t.Error(err)
			}

			n += some
		} else if m.Header.Get(subjects.HeaderBatchCount) == "" && code == "" {
			n++
			if tokens != nil && strings.Contains(m.Reply, ".ack.") {
				peakTokens.Lock()
				*tokens = append(*tokens, m.Reply)
				peakTokens.Unlock()
			}
		}
		if code != "" && code != "413" && code != "404" {
			p.t.Errorf("%s %s: after %d items: %v",
				subject, payload, n, subjects.ErrorFromHeaders(m.Header))
		}

		if m.Header.Get(subjects.HeaderBatchCount) != "" || code != "" {
			return n
		}
	}
}

// settle is an acknowledgement of all leases, in a message for the first of them.
func settle(leases []string, a subjects.Ack) (subject, payload string) {
	for _, subject := range leases[1:] {
		a.Also = append(a.Also, subject[strings.LastIndexByte(subject, '.')+1:])
	}
	return leases[0], string(a.Encode())
}

// next acknowledges all leases and wants as many as it can get.
func (p *peak) next(tokens *[]string) int {
	options := subjects.PopOptions{Batch: 1000, Lease: true, AckWait: time.Hour}
	subject, payload := settle(*tokens, subjects.Ack{Kind: subjects.AckNext, Next: options})
	*tokens = nil
	return p.receive(subject, payload, tokens)
}

// pushBatch pushes seven items in one message, nearly the 8 MiB that it may have.
func (p *peak) pushBatch(queue int) int {
	const batch = 7
	var payload []byte
	for range batch {
		payload = subjects.AppendFrame(payload, subjects.Frame{Value: make([]byte, peakValue)})
	}

	reply := p.ask(fmt.Sprintf("pq.batch-%d.push.batch", queue), payload)
	if err := subjects.ErrorFromHeaders(reply.Header); err != nil {
		p.t.Error(err)
		return 0
	}

	return batch
}

// manyQueues pushes a small and a large item to each of many queues, and pops all of the small ones
// at once, then all of the large ones: the first say nothing of the others.
func (p *peak) manyQueues() int {
	queues := p.items
	value := bytes.Repeat([]byte{'v'}, 90_000)

	p.together(pushers, func(part int) int {
		for i := part; i < queues; i += pushers {
			p.ask(fmt.Sprintf("pq.many-%d.push.1", i), value)
			p.ask(fmt.Sprintf("pq.many-%d.push.0", i), nil)
		}
		return 0
	})

	n := 0
	for range 2 {
		n = p.together(queues,
			func(i int) int { return p.one(fmt.Sprintf("pq.many-%d.pop.min", i), "") })
	}

	return n
}

// pages reads what the HTTP server says of queues.
func (p *peak) pages() int {
	pages := []string{"/queues", "/queues/pq/jobs", "/metrics"}
	for _, path := range pages {
		if _, err := p.get(path); err != nil {
			p.t.Error(err)
		}
	}

	return len(pages)
}

func (p *peak) get(path string) (text []byte, err error) {
	defer http.DefaultClient.CloseIdleConnections()
	reply, err := http.Get("http://" + p.http + path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = reply.Body.Close() }()
	if text, err = io.ReadAll(reply.Body); err == nil && reply.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, reply.Status)
	}

	return text, err
}

// popForNobody pops all items at once, with reply subjects that nobody is subscribed to, and
// returns when all of them are back.
func (p *peak) popForNobody() int {
	back := regexp.MustCompile(`(?m)^pq_given_back_total{reason="no_responders"} (\d+)$`)
	for range p.items {
		must(p.t, p.nc.PublishRequest("pq.jobs.pop.min", p.nc.NewInbox(), nil))
	}

	n := 0
	testenv.Eventually(p.t, func() error {
		text, err := p.get("/metrics")
		if found := back.FindSubmatch(text); found != nil {
			n, _ = strconv.Atoi(string(found[1]))
		}

		if err == nil && n < p.items {
			err = fmt.Errorf("%d of %d items are back", n, p.items)
		}

		return err
	})

	return n
}
