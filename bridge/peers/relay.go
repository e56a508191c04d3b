package peers

import (
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
	if p == nil || p.forwards[number] == nil {
		r.Tell(FateLate, m.Reply)
		return
	}

	f := p.forwards[number]
	until := f.Received.Add(r.p.config.RequestTimeout + maxSilence)
	if f.Wait != nil {
		until = f.Wait.Until.Add(waiterGrace)
	}

	ended, lost := true, false
	switch {
	case wire.NoResponders(m): // NATS says that the owner of the queue is not there
		f.err = errForwardLost
	case time.Now().After(until): // even for an answer that takes its time: this bridge stood still
		f.err = errRelayedLate
	default:
		ended, lost = r.p.config.Relay(&f.Request, m)
		if lost || !ended && !subjects.IsHeartbeat(m.Header) {
			f.passed = append(f.passed, m.Reply)
		}
	}

	if lost {
		r.tellLost(f)
	}
	if f.err != nil {
		r.failLost([]*forward{f})
	}
	if ended {
		p.remove(f)
		f.free()
	}
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
func (r *Router) tellLost(f *forward) {
	words := append([]string{fateLost, r.answersOf(f.owner, f.number)}, f.passed...)
	r.publish("fate."+f.owner, []byte(strings.Join(words, " ")))
}

// failLost answers the pops that no peer will answer.
func (r *Router) failLost(lost []*forward) {
	for _, f := range lost {
		if f.relayed && f.err != errPeerGone {
			r.tellLost(f)
		}
		f.Answered = time.Now()
		f.Replier.Fail(&f.Request, nil, f.err)
	}
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
