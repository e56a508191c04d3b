package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// soak has jobs that workers end and others wait for, while bridges are frozen and killed.
type soak struct {
	t     *testing.T
	e     *testenv.Env
	ids   []string
	over  context.Context // ends when all waits are answered
	waits sync.WaitGroup

	mu    sync.Mutex
	ended map[string]time.Time // when a job was confirmed to have ended
	asked map[string]int       // how often, by what came of it
}

const (
	soakLease = 2 * time.Second
	soakSlice = 3 * time.Second
	// soakGrace is how long a client waits for an answer that is due.
	soakGrace = 2 * time.Second
)

// dead says which jobs are ended by +TERM.
func dead(value string) bool { return strings.HasSuffix(value, "7") }

// Whatever happens to bridges, who waits for a job in slices learns what became of it, and never
// that it goes on after it was confirmed to have ended.
func TestWaitsOutliveBridges(t *testing.T) {
	eachShared(t, func(t *testing.T, engine testenv.Engine) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		s := &soak{
			t: t, ended: map[string]time.Time{}, asked: map[string]int{},
			e: testenv.New(t, testenv.Options{Engine: engine, Bridge: func(o *bridge.Options) {
				o.RequestTimeout = 2 * time.Second
			}}),
		}

		faults := harness.Times(6, 300)
		for i := range 50 * faults {
			h := nats.Header{"Pq-Keep": {"1h"}}
			s.ids = append(s.ids, push(t, s.e, "pq.jobs.push", h, strconv.Itoa(i)).ID)
		}

		over, cancel := context.WithCancel(t.Context())
		s.over = over
		var workers sync.WaitGroup
		for range 4 {
			workers.Go(s.work)
		}
		for i := range s.ids {
			s.waits.Go(func() { s.await(i) })
		}

		s.breakBridges(faults, random)
		s.waits.Wait()
		cancel()
		workers.Wait()
		t.Logf("asked: %v", s.asked)
		checkStore(t, s.e)
	})
}

// breakBridges freezes, kills and stops a second bridge, which then starts again.
func (s *soak) breakBridges(faults int, random *rand.Rand) {
	for range faults {
		w := newWire(s.t, s.e)
		b := s.e.StartBridge(w.use, func(o *bridge.Options) { o.RequestTimeout = 2 * time.Second })
		waitForPeers(s.t, s.e.Bridge, b)
		pause := func() { <-time.After(time.Duration(random.IntN(1500)) * time.Millisecond) }

		pause()
		if random.IntN(2) == 0 {
			w.freeze()
			pause()
			w.passReads(-1, toServer, toBridge)
			pause()
		}
		if random.IntN(3) > 0 {
			w.kill()
		}
		_ = b.Stop() // it may be dead
	}
}

// request makes a request that may get no answer.
func (s *soak) request(m *nats.Msg, patience time.Duration) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	reply, err := s.e.Conn.RequestMsgWithContext(ctx, m)
	if err == nil {
		err = replyError(reply.Header)
	}
	return reply, err
}

// work leases jobs and ends them until all waits are answered, about seven in a second.
func (s *soak) work() {
	lease := fmt.Appendf(nil, `{"ack_wait":"%v"}`, soakLease)
	for s.over.Err() == nil {
		<-time.After(time.Duration(rand.IntN(300)) * time.Millisecond)
		m, err := s.request(&nats.Msg{Subject: "pq.jobs.pop.min", Data: lease}, soakGrace)
		if err != nil {
			continue
		}

		value := string(m.Data)
		ack := &nats.Msg{Subject: m.Reply, Data: []byte("+TERM " + value)}
		if !dead(value) {
			ack.Header, ack.Data = nats.Header{subjects.HeaderAck: {"+ACK"}}, m.Data
		}
		if _, err := s.request(ack, soakGrace); err == nil {
			s.mu.Lock()
			s.ended[m.Header.Get(subjects.HeaderID)] = time.Now()
			s.mu.Unlock()
		}
	}
}

// await waits for a job in slices until it has ended, and checks what it is told.
func (s *soak) await(i int) {
	id := s.ids[i]
	ask := &nats.Msg{Subject: "pq.jobs.result", Data: []byte(waitFor(id, soakSlice.String()))}
	for told := ""; told != "done" && told != "dead"; {
		due := time.Now().Add(soakSlice)
		m, err := s.request(ask, soakSlice+soakGrace)
		if told = "nothing"; err == nil {
			told = m.Header.Get(subjects.HeaderState)
		} else if r := new(refusal); errors.As(err, &r) && r.Code != subjects.CodeUnavailable {
			s.t.Errorf("job %d: %v", i, err)
			return
		}

		s.mu.Lock()
		ended := s.ended[id]
		s.asked[told]++
		s.mu.Unlock()

		want := "done"
		if dead(strconv.Itoa(i)) {
			want = "dead"
		}
		switch told {
		case want:
			if want == "done" && string(m.Data) != strconv.Itoa(i) {
				s.t.Errorf("job %d: its result is %q", i, m.Data)
			}
		case "done", "dead":
			s.t.Errorf("job %d: it is %s, want %s", i, told, want)
		case "nothing":
			<-time.After(10 * time.Millisecond) // there may be no responders
		default:
			if !ended.IsZero() && ended.Before(due) {
				s.t.Errorf("job %d: it is %s %v after it ended", i, told, time.Since(ended))
				return
			}
		}
	}
}
