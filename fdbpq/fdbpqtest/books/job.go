package books

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// State is where a job is, as the answer to a Result says.
type State string

// The states. StateGone is not in an answer.
const (
	StateReady   State = "ready"
	StateLeased  State = "leased"
	StateDelayed State = "delayed"
	StateDone    State = "done"
	StateDead    State = "dead"
)

// left is an operation that finds the job in the store after all had ended.
const left Kind = "left"

// atEnd is when jobs are found in the store. Operations of unknown outcome may be done by then, or
// come later, which means never.
const atEnd int64 = math.MaxInt64

// job is one job and all operations on it.
type job struct {
	id     string
	queue  string
	events []*event
}

// event is an operation on a job and what it said.
type event struct {
	kind      Kind
	outcome   Outcome
	dead      bool // in the dead-letter queue
	unsure    bool // a lease of unknown outcome may have taken the item before it was answered
	done      bool // an acknowledgement was told that this lease had acknowledged the job before
	ofDone    bool // a Remove of a finished job
	delayed   bool
	call, ret int64
	until     int64 // when the item is back, at the earliest
	place     uint32
	moved     uint32 // the new place
	fence     uint16
	state     State
	result    string
}

// eventOf returns what an operation says of its one job.
func eventOf(op *Operation, tolerance int32) *event {
	slack := int64(tolerance) * 1e6
	e := &event{
		kind: op.Kind, outcome: op.Outcome, dead: isDead(op.Queue), call: op.Call, ret: op.Return,
		place: hash(op.ID), fence: uint16(op.Fence), state: op.State, result: op.Result,
		done: len(op.Acked) > 0, ofDone: op.Kind == Remove && op.State == StateDone,
	}
	if op.Moved != "" {
		e.moved = hash(op.Moved)
	}
	if e.counts() {
		e.outcome = Done
	}
	if e.open() {
		e.ret = atEnd
	}

	switch op.Kind {
	case Push, Nak:
		if e.delayed = op.Delay > 0; e.delayed {
			e.until = op.Call + op.Delay - 2*slack
		}
		if op.Kind == Push && (op.Outcome != Done || op.Batch > 0) {
			e.place = 0
		}
	case Extend:
		// Without an answer the end is known by the clock of the clients alone.
		if e.until = op.Until - slack; op.Until == 0 {
			e.until = op.Call + op.Wait - 2*slack
		}
	case Result:
		// Without an outcome to tell, a wait tells the state at its end.
		if op.Outcome == Done && op.State != StateDone && op.State != StateDead {
			e.call = max(e.call, min(op.Call+op.Expires-ClockSlack, op.Return))
		}
	}
	return e
}

// counts reports whether the answer says that the operation did what it asks for.
func (e *event) counts() bool {
	switch e.outcome {
	case Done:
		return true
	case Empty, TooLarge:
		return e.kind.Nexts() || e.kind == Ack
	}
	return false
}

// decide says whether an operation of unknown outcome was done.
func (e *event) decide(outcome Outcome) {
	if e.outcome, e.ret = outcome, atEnd; outcome == Done {
		e.ret--
	}
}

func (e *event) open() bool { return e.outcome == Unknown || e.outcome == Lost }

func (j *job) add(e *event) { j.events = append(j.events, e) }

// isSeen reports whether any answer shows that the job exists, or existed.
func (j *job) isSeen() bool {
	return slices.ContainsFunc(j.events, func(e *event) bool {
		return e.outcome == Done && e.kind != Push
	})
}

// isUnseen reports whether the job was pushed, and no later answer is about it.
func (j *job) isUnseen() bool {
	return j.events[0].kind == Push && j.events[0].outcome == Done && !j.isSeen()
}

// isPossible reports whether there is an order of the operations that explains all answers.
func (j *job) isPossible() bool {
	var list []porcupine.Operation
	for n, e := range j.events {
		if e.outcome == Refused || e.open() && e.kind == Result {
			continue // it says nothing
		}
		ret := j.spent(e)
		if ret < e.call {
			continue // its token was good no longer, so it did nothing
		}
		list = append(list, porcupine.Operation{ClientId: n, Input: e, Call: e.call, Return: ret})
	}
	return porcupine.CheckOperations(jobModel, list)
}

// spent returns when an operation has ended. If nobody knows, it has no effect any more once a
// newer lease of the same place was answered. That spares the search most of the orders of
// operations of unknown outcome.
func (j *job) spent(e *event) int64 {
	ret := e.ret
	if !e.open() || !e.kind.Settles() {
		return ret
	}
	for _, l := range j.events {
		if l.kind.Leases() && l.outcome == Done && l.dead == e.dead &&
			l.place == e.place && l.fence > e.fence {
			ret = min(ret, l.ret)
		}
	}
	return ret
}

// jobModel is the sequential model of a job.
var jobModel = porcupine.Model{
	Init: func() any { return life{} },
	Step: func(s, input, _ any) (bool, any) { return s.(life).step(input.(*event)) },
}

// String lists the operations in the order in which they were sent.
func (j *job) String() string {
	var b strings.Builder
	for _, e := range slices.SortedFunc(slices.Values(j.events), func(x, y *event) int {
		return cmp.Compare(x.call, y.call)
	}) {
		fmt.Fprintf(&b, "\n\t%d to %d ms: %s", e.call/1e6, e.ret/1e6, e.kind)
		if e.dead {
			b.WriteString(" of a dead letter")
		}
		fmt.Fprintf(&b, " at %x → %x, fence %d, until %d ms → %s %s %q",
			e.place, e.moved, e.fence, e.until/1e6, e.outcome, e.state, e.result)
	}
	return b.String()
}

// where says where a job is.
type where uint8

const (
	nowhere where = iota // not pushed yet
	live
	inDead // it is a dead letter
	finished
	removed
)

// life is the state of a job.
type life struct {
	where   where
	held    bool // leased, as far as anybody knows
	delayed bool
	place   uint32 // 0 if nobody knows
	fence   uint16 // of the newest lease that is known
	until   int64  // when it is back, at the earliest
	result  string
}

// in reports whether the job is in the queue, or dead-letter queue, of an operation.
func (s life) in(e *event) bool {
	return s.where == live && !e.dead || s.where == inDead && e.dead
}

// isAt reports whether the job can be at a place.
func (s life) isAt(place uint32) bool { return s.place == 0 || s.place == place }

// step does an operation. It reports whether the answer can be right.
func (s life) step(e *event) (ok bool, after life) {
	switch {
	case e.kind == Push:
		if s.where != nowhere {
			return e.open(), s
		}
		return true, life{where: live, place: e.place, until: e.until, delayed: e.delayed}
	case e.kind == Result || e.kind == left:
		return s.look(e)
	case e.kind.Settles():
		return s.use(e)
	case e.kind.Leases():
		ok = s.in(e) && s.isAt(e.place) && e.ret >= s.until &&
			(e.fence > s.fence || s.place == 0)
		s.place, s.fence, s.until, s.held, s.delayed = e.place, e.fence, e.until, true, false
		return ok, s
	}
	return s.edit(e)
}

// use does an operation with a token.
func (s life) use(e *event) (ok bool, after life) {
	holds := s.in(e) && s.place == e.place && s.fence == e.fence // the token is good
	switch {
	case e.outcome == Stale && e.done:
		return s.where == finished && s.place == e.place && s.fence == e.fence, s
	case e.outcome == Stale:
		return !holds || e.unsure, s
	case !holds:
		return e.open(), s
	}

	switch {
	case e.kind == Extend && e.open():
		s.until = min(s.until, e.until)
	case e.kind == Extend:
		s.until = e.until
	case e.kind == Nak:
		s.fence++
		s.until, s.held, s.delayed = e.until, false, e.delayed
	case e.kind == Term:
		s = life{where: inDead}
	case e.dead:
		s = life{where: removed}
	default:
		s.where, s.result, s.held, s.until = finished, e.result, false, 0
	}
	return true, s
}

// edit does an operation that names the job by its id.
func (s life) edit(e *event) (ok bool, after life) {
	from := live
	switch {
	case e.dead:
		from = inDead
	case e.kind == Rerun, e.ofDone:
		from = finished
	}

	switch {
	case e.outcome == Empty:
		if e.dead || e.kind == Remove {
			return s.where != from, s
		}
		return s.where != live && s.where != finished, s
	case e.outcome == Stale && e.done: // a job that is done has no place, and perhaps no value
		return s.where == finished, s
	case e.outcome == Stale:
		return s.in(e), s
	case s.where != from:
		return e.open(), s
	}

	switch e.kind {
	case Remove:
		return true, life{where: removed}
	case Move:
		s.place, s.fence, s.held = e.moved, 0, false
	case Rerun:
		s = life{where: live, place: e.moved}
	}
	return true, s
}

// look checks what an answer says about the job.
func (s life) look(e *event) (ok bool, after life) {
	there := s.where == live && (e.place == 0 || s.isAt(e.place))
	switch {
	case e.outcome == Empty:
		return s.where == nowhere || s.where == removed, s
	case e.kind == left && e.state == StateReady:
		return s.where == live, s
	case e.state == StateDone:
		return s.where == finished && s.result == e.result, s
	case e.state == StateDead:
		return s.where == inDead, s
	case e.state == StateReady:
		ok = e.ret >= s.until
	case e.state == StateLeased:
		ok = s.held || e.unsure
	case e.state == StateDelayed:
		ok = s.delayed || e.unsure
	}
	if s.place == 0 {
		s.place = e.place
	}
	return there && ok, s
}
