package fdbpq_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// ops draws operations on a queue.
func (r *modelRun) ops(q *modelQueue) (ops []fdbpq.Op) {
	for range 1 + r.random.IntN(4) {
		switch r.random.IntN(22) {
		case 0, 1, 2, 3, 4:
			ops = append(ops, r.pushes(q)...)
		case 5, 6, 7, 8:
			ops = append(ops, r.pops(q)...)
		case 9, 10, 11, 12:
			ops = append(ops, r.settlements(q)...)
		case 13, 14:
			// Once, as nobody else does: by the second time the job may have moved.
			if n := len(q.popped); n > 0 {
				p := &q.popped[max(0, n-1-r.random.IntN(5))]
				if !p.restored {
					ops = append(ops, fdbpq.Op{Kind: fdbpq.OpRestore, Item: p.item})
				}
				p.restored = true
			}
		case 15, 16:
			ops = append(ops, r.edit(q))
		case 17:
			ops = append(ops, r.configure(q))
		case 18:
			ops = append(ops, r.consumer())
		default:
			looks := []fdbpq.OpKind{
				fdbpq.OpLen, fdbpq.OpInfo, fdbpq.OpPeek, fdbpq.OpSettings, fdbpq.OpGet,
				fdbpq.OpRank, fdbpq.OpSweep,
			}
			ops = append(ops,
				fdbpq.Op{Kind: looks[r.random.IntN(len(looks))], End: r.end(q), ID: r.anyID(q)})
		}
	}

	if len(ops) == 0 {
		ops = append(ops, opLen)
	}

	return ops
}

// end returns an end that the queue is served from.
func (r *modelRun) end(q *modelQueue) fdbpq.End {
	if q.fifo || r.random.IntN(3) > 0 {
		return fdbpq.Front
	}
	return fdbpq.Back
}

// someID returns the id of an item that is there, or of its job, or now and then of one that was
// popped or has died.
func (r *modelRun) someID(q *modelQueue) (id fdbpq.ID) {
	if len(q.popped) > 0 && r.random.IntN(6) == 0 {
		return q.popped[r.random.IntN(len(q.popped))].item.ID
	}

	from := q
	if r.random.IntN(8) == 0 {
		from = q.deadLetters()
	}
	if all := from.inOrder(func(*modelItem) bool { return true }); len(all) > 0 {
		item := all[r.random.IntN(len(all))]
		if id = item.ID; r.random.IntN(2) == 0 {
			id = item.Job()
		}
	}

	return id
}

func (r *modelRun) priority() int64 {
	if r.random.IntN(10) == 0 {
		return extremes[r.random.IntN(len(extremes))]
	}
	return r.random.Int64N(3)
}

// pushes draws some pushes that follow each other.
func (r *modelRun) pushes(q *modelQueue) (ops []fdbpq.Op) {
	// A stretch of items that expire together.
	if !r.large && len(q.items) < 50 && r.random.IntN(30) == 0 {
		ttl := time.Second + r.millis(2000)
		for range 40 {
			push := withTTL(r.push(q), ttl)
			push.Message.Headers, push.Weight = nil, 0
			ops = append(ops, push)
		}

		return ops
	}

	for range 1 + r.random.IntN(3) {
		ops = append(ops, r.push(q))
	}

	if r.random.IntN(2) == 0 {
		return grouped(ops...)
	}

	return ops
}

func (r *modelRun) push(*modelQueue) fdbpq.Op {
	r.pushed++
	o := opPush(nil, r.priority(),
		fmt.Sprintf("item-%06d.%s", r.pushed, strings.Repeat("v", r.random.IntN(20))))

	if r.large && r.random.IntN(8) == 0 {
		o.Message.Value = append(o.Message.Value,
			pattern(80_000+r.random.IntN(120_000), r.pushed)...)
	}

	if r.random.IntN(6) == 0 {
		o.Message.Headers = map[string][]string{"Name": {
			"value\x00", strings.Repeat("h", r.random.IntN(20)),
		}}
	}

	if r.random.IntN(4) == 0 {
		o.Message.MsgID = fmt.Sprint("id\x00", r.random.IntN(6))
	}

	if r.random.IntN(4) == 0 {
		o.Message.Unique = fmt.Sprint("key\x00", r.random.IntN(3))
	}

	if r.random.IntN(4) == 0 {
		o.Message.Keep = fdbpq.MinKeep + r.millis(90_000)
	}

	switch r.random.IntN(5) {
	case 0:
		o.Delay = r.millis(3000)
	case 1:
		o.At = r.m.now.Add(r.millis(3000) - 500*time.Millisecond)
	}

	switch r.random.IntN(6) {
	case 0:
		o.TTL = time.Second + r.millis(4000)
	case 1:
		o.Message.Expires = r.m.now.Add(r.millis(4000) - 500*time.Millisecond)
	case 2:
		o.TTL = fdbpq.Never
	}

	if r.large && r.random.IntN(8) == 0 { // whoever removes it does not read when it expires
		o.Message.Headers = map[string][]string{"Large": {strings.Repeat("\x00", 50_000)}}
		o.Message.Unique, o.TTL = "", fdbpq.Never
	}

	if r.random.IntN(2) == 0 {
		o.Message.Headers = maps.Clone(o.Message.Headers)
		o = inGroup(o, []string{"a", "b", "c\x00"}[r.random.IntN(3)])
		o.Weight = r.random.IntN(4)
	}

	return o
}

// pops draws pops or leases.
func (r *modelRun) pops(q *modelQueue) []fdbpq.Op {
	o := fdbpq.Op{
		Kind:  fdbpq.OpPop,
		End:   r.end(q),
		Waits: r.random.IntN(2) == 0,
		Count: r.random.IntN(2) == 0,
	}

	if r.random.IntN(3) > 0 {
		o.Kind, o.Lease = fdbpq.OpLease, time.Duration(r.random.IntN(4))*time.Second
	}

	ops := slices.Repeat([]fdbpq.Op{o}, 1+r.random.IntN(3))
	if r.random.IntN(3) == 0 {
		return grouped(ops...)
	}

	return ops
}

// token returns a token that holds, or any that was ever given.
func (r *modelRun) token(q *modelQueue) fdbpq.Token {
	held := q.inOrder(func(i *modelItem) bool { return i.token != fdbpq.Token{} })
	if len(held) > 0 && r.random.IntN(6) > 0 {
		return held[r.random.IntN(len(held))].token
	}

	return q.tokens[r.random.IntN(len(q.tokens))]
}

// settlements draws an operation with a token, or acknowledgements that leases follow.
func (r *modelRun) settlements(q *modelQueue) (ops []fdbpq.Op) {
	if len(q.tokens) == 0 {
		return r.pops(q)
	}

	o := fdbpq.Op{Token: r.token(q)}
	switch r.random.IntN(8) {
	case 0, 1, 2:
		o.Kind, o.Uncounted = fdbpq.OpNak, r.random.IntN(3) == 0
		if o.Delay = time.Duration(r.random.IntN(3)) * time.Second; r.random.IntN(2) == 0 {
			o.Delay = fdbpq.Backoff
			if !o.Uncounted {
				delays := []time.Duration{0, time.Millisecond, time.Second, 2 * time.Minute}
				o.RetryDelay = delays[r.random.IntN(4)]
			}
		}

		if r.random.IntN(3) == 0 {
			o.Reason = fmt.Sprint("reason ", r.random.IntN(100))
		}
	case 3:
		o.Kind, o.Lease = fdbpq.OpExtend, time.Duration(r.random.IntN(3))*time.Second
	case 4:
		reasons := []string{"", "no\nuse", "bad\x00" + strings.Repeat("x", 300)}
		o.Kind, o.Reason = fdbpq.OpTerm, reasons[r.random.IntN(3)]
	default:
		for range 1 + r.random.IntN(3)*r.random.IntN(2) {
			o := fdbpq.Op{Kind: fdbpq.OpAck, Token: r.token(q)}
			if r.random.IntN(2) == 0 {
				o = ackWith(nil, o.Token, fmt.Sprint("result ", r.random.IntN(1000)))
			}
			if next := r.next(q); len(next) > 0 {
				o.Report = cmp.Or(o.Report, &fdbpq.Report{})
				o.Report.Next = next
			}
			ops = append(ops, o)
		}

		for n := range ops {
			if report := ops[n].Report; report != nil {
				for i := range report.Next {
					report.Next[i].Parent = r.random.IntN(len(ops))
				}
			}
		}

		for range r.random.IntN(3) {
			ops = append(ops, fdbpq.Op{
				Kind:  fdbpq.OpLease,
				End:   r.end(q),
				Lease: time.Duration(r.random.IntN(2)) * time.Second,
			})
		}

		return grouped(ops...)
	}

	return []fdbpq.Op{o}
}

// next draws what an acknowledgement pushes, mostly nothing.
func (r *modelRun) next(q *modelQueue) (next []fdbpq.Op) {
	for range r.random.IntN(4) * r.random.IntN(2) * r.random.IntN(2) {
		r.pushed++
		to := r.m.queue(nextQueue, q.fifo).target
		next = append(next, opPush(to, r.priority(), fmt.Sprintf("item-%06d.next", r.pushed)))
	}
	return next
}

// edit draws an operation on an item by its id, or on many items.
func (r *modelRun) edit(q *modelQueue) fdbpq.Op {
	o := fdbpq.Op{Kind: fdbpq.OpMove, ID: r.anyID(q), Priority: r.priority()}
	switch n := r.random.IntN(10); {
	case n == 0 && r.random.IntN(6) == 0:
		o.Kind = fdbpq.OpPurge
		if r.random.IntN(2) == 0 {
			o.State = fdbpq.Done
		}
	case n < 6 && q.name != r.homes[0].name:
		o.Kind = fdbpq.OpRedriveItem
	case n >= 7:
		if o.Kind = fdbpq.OpRelease; r.random.IntN(8) == 0 {
			o.Kind = fdbpq.OpRedriveItem
		}
		isLeased := func(i *modelItem) bool { return i.state == fdbpq.Leased }
		if leased := q.inOrder(isLeased); len(leased) > 0 && r.random.IntN(3) > 0 {
			o.ID = leased[r.random.IntN(len(leased))].ID
		}
	case n < 4 || q.fifo:
		o.Kind, o.State = fdbpq.OpRemove, fdbpq.ItemState(max(r.random.IntN(10)-5, 0))
	}

	return o
}

// configure draws a change of settings, now and then one that is refused.
func (r *modelRun) configure(q *modelQueue) fdbpq.Op {
	n, field, until := r.random.Int64N(5), r.random.IntN(20), r.m.now.Add(r.millis(2000)+999)
	dead := []string{"", "failed", q.name + "-dead", q.name}[r.random.IntN(4)]
	items := r.random.Int64N(12)
	sizes := []int64{0, 0, 1 + r.random.Int64N(400), 100_000 + r.random.Int64N(600_000)}
	size := sizes[r.random.IntN(4)]
	discard := []string{"", fdbpq.DiscardNew, fdbpq.DiscardOld, fdbpq.DiscardOld}[r.random.IntN(4)]
	windows := []time.Duration{0, fdbpq.NoDuplicateWindow, 3 * time.Second, 20 * time.Second}
	window := windows[r.random.IntN(4)]
	rate := []string{"", "", "1/1s", "3/1s", "2/3s"}[r.random.IntN(5)]
	paused := [][]string{nil, {"a"}, {"b", "c\x00"}}[r.random.IntN(3)]
	next := [][]string{{nextQueue}, {"other", nextQueue}, nil}[r.random.IntN(3)]
	keepItems := int64(r.random.IntN(8))
	var backoff []time.Duration

	for range n {
		backoff = append(backoff, r.millis(3000))
	}

	return fdbpq.Op{Kind: fdbpq.OpConfigure, Configure: func(s *fdbpq.Settings) {
		switch field {
		case 0, 13:
			*s = fdbpq.Settings{}
		case 1:
			s.AckWait = time.Duration(n) * time.Second
		case 2:
			s.Backoff = backoff
		case 3, 4:
			if !r.large {
				s.MaxDeliver = n
			}
		case 5:
			s.DeadLetter = dead
		case 6:
			if !r.large { // see push
				s.TTL = time.Duration(n) * time.Second
			}
		case 7:
			s.PauseUntil = until
		case 8:
			s.MaxLeased = n
		case 9:
			s.MaxItems, s.MaxBytes, s.Discard = items, size, discard
		case 10:
			s.MaxLeasedPerGroup = n / 2
		case 11:
			s.RatePerGroup = rate
		case 12:
			s.Rate = rate
		case 14:
			s.PausedGroups = paused
		case 16:
			s.Next = next
		case 18, 19:
			s.Trail = n
		case 15:
			s.Keep, s.KeepItems = time.Duration(n)*20*time.Second, keepItems
		default:
			s.DuplicateWindow = window
		}
	}}
}
