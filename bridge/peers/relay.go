package peers

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/subjects"
)

// fateLost says that messages were lost on their way to this bridge.
const fateLost = "lost"

// FateLate is what the sender of an answer is told if the client has another one already.
const FateLate = "late"

var (
	errRelayedLate = fmt.Errorf("%w: the answer came too late, and what was popped goes back: try "+
		"again", dispatch.ErrUnavailable)
	errLeaving = fmt.Errorf("%w: the service is shutting down, and the request got nothing: try "+
		"again", dispatch.ErrUnavailable)
)

// relay passes on what a peer has answered to a pop that was forwarded to it, unless the client has
// another answer, or has given up.
func (r *Router) relay(m *nats.Msg, id, digits string) {
	number, _ := strconv.ParseUint(digits, 10, 64) // no pop has number 0

	// The lock is held while publishing, so that nobody answers 503 in between.
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.mu.peers[id]
	f := p.find(number)
	if f == nil {
		r.Tell(FateLate, m.Reply)
		return
	}

	switch {
	case wire.NoResponders(m): // NATS says that the owner of the queue is not there
		f.fail(errForwardLost)
	case f.isOver(r.p.config.RequestTimeout):
		r.Tell(FateLate, m.Reply)
		f.fail(errRelayedLate)
	default:
		lost := false
		f.ended, lost = r.p.config.Relay(&f.Request, m)
		if lost || !f.ended && !subjects.IsHeartbeat(m.Header) {
			f.passed = append(f.passed, m.Reply)
		}
		if lost {
			r.tellLost(id, f)
		}
	}

	if f.ended {
		delete(p.waiting, number)
	}
}

// find returns a pop that was forwarded under that number and has not ended, nil if there is none.
func (p *peer) find(number uint64) *forward {
	if p == nil {
		return nil
	}

	byNumber := func(f forward, n uint64) int { return cmp.Compare(f.number, n) }
	if i, ok := slices.BinarySearchFunc(p.forwards, number, byNumber); ok {
		if p.forwards[i].ended {
			return nil
		}
		return &p.forwards[i]
	}
	return p.waiting[number]
}

// isOver reports whether the time of the pop is over, even for an answer that takes its time: this
// bridge stood still.
func (f *forward) isOver(timeout time.Duration) bool {
	if f.Wait != nil {
		return time.Now().After(f.Wait.Until.Add(waiterGrace))
	}
	return time.Since(f.Received) > timeout+maxSilence
}

// maxTold is how many messages a bridge is told of at once.
const maxTold = 100

// Tell tells bridges what became of the messages with these reply subjects, which they had this
// bridge relay: "" if somebody received them, or else why not. Without a reply subject a bridge
// does not ask.
func (r *Router) Tell(fate string, tokens ...string) {
	of := map[string][]string{}
	for _, token := range tokens {
		if parts := strings.Split(token, "."); len(parts) == 3 {
			of[parts[1]] = append(of[parts[1]], token)
		}
	}

	for id, all := range of {
		for some := range slices.Chunk(all, maxTold) {
			r.publish("fate."+id, []byte(fate+" "+strings.Join(some, " ")))
		}
	}
}

// tellLost tells a bridge that its answers to a pop will not be passed on, except for those that
// were.
func (r *Router) tellLost(id string, f *forward) {
	words := append([]string{fateLost, r.answersOf(id, f.number)}, f.passed...)
	r.publish("fate."+id, []byte(strings.Join(words, " ")))
}

// hearFate handles what a peer says in Tell or tellLost.
func (r *Router) hearFate(m *nats.Msg) {
	fate, tokens, _ := strings.Cut(string(m.Data), " ")
	if fate == fateLost {
		subject, passed, _ := strings.Cut(tokens, " ")
		r.p.config.SettleRest(FateLate, subject, strings.Fields(passed))
		return
	}

	for token := range strings.SplitSeq(tokens, " ") {
		r.p.config.Settle(fate, token)
	}
}
