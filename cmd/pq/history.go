package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
)

// seen is a queue at one look.
type seen struct {
	counted
	oldest *time.Duration // since the push of the oldest ready item, if there is one
}

// look is what was seen at one time.
type look struct {
	at           time.Time
	queues       []seen
	bridges      int
	pushes, pops int // in all, on all bridges
}

// history is what pq watch has seen so far.
type history struct {
	last, before *look
	err          error // of the last attempt
	ready        map[string][]int64
}

// trendLength is how many looks a line of the past shows.
const trendLength = 12

// add adds a look, or the reason why there is none.
func (h *history) add(l *look, err error) {
	if h.err = err; err != nil {
		return
	}
	h.last, h.before = l, h.last
	ready := map[string][]int64{} // without queues that are gone
	for _, q := range l.queues {
		all := append(h.ready[q.key()], q.Ready)
		ready[q.key()] = all[max(len(all)-trendLength, 0):]
	}
	h.ready = ready
}

func (q *seen) key() string { return q.Kind + "/" + q.Queue }

func (q *seen) items() int64 { return q.Ready + q.Leased + q.Delayed }

// elapsed is the time between the last two looks in seconds, 0 if there was one.
func (h *history) elapsed() float64 {
	if h.before == nil {
		return 0
	}
	return h.last.at.Sub(h.before.at).Seconds()
}

// change returns how many items a second a queue has won or lost since the look before.
func (h *history) change(q seen) (perSecond float64, known bool) {
	if h.elapsed() <= 0 {
		return 0, false
	}
	for i := range h.before.queues {
		if b := &h.before.queues[i]; b.key() == q.key() {
			return float64(q.items()-b.items()) / h.elapsed(), true
		}
	}
	return float64(q.items()) / h.elapsed(), true
}

// frame draws the last look for a terminal.
func (h *history) frame(width, height int, unicode bool) string {
	const around = 4     // lines: the first, a blank one, the titles, and one for the cursor
	const narrowest = 10 // column of names
	queues := h.last.queues
	more := ""
	if room := max(height-around, 1); len(queues) > room {
		queues = queues[:max(room-1, 0)]
		more = terminal.Clip(fmt.Sprintf("and %s: name those that matter", terminal.Plural(len(h.last.queues)-len(queues), "more queue")), width) + "\n"
	}

	t := terminal.NewFrame(width, slices.Concat(countColumns, []terminal.Column{
		{Title: "CHANGE/S", Align: terminal.Right}, {Title: "OLDEST", Align: terminal.Right}, {Title: "READY LATELY"},
	})...)

	for _, q := range queues {
		change, oldest := "", ""
		if perSecond, known := h.change(q); known {
			change = fmt.Sprintf("%+.1f", perSecond)
			if change == "+0.0" || change == "-0.0" {
				change = "0"
			}
		}
		if q.oldest != nil {
			oldest = terminal.InWords(*q.oldest)
		}
		t.Row(q.Kind, q.Queue, q.Ready, q.Leased, q.Delayed, change, oldest, terminal.Trend(h.ready[q.key()], unicode))
	}

	t.Shrink(t.Apart(narrowest), 5) // the counts stay
	t.Shrink(narrowest, 3)
	return terminal.Clip(h.title(), width) + "\n\n" + t.String() + more
}

// title is the first line of a frame.
func (h *history) title() string {
	at := h.last.at.Format(time.TimeOnly)
	if h.err != nil {
		return fmt.Sprintf("%s, since then: %v", at, h.err)
	}

	title := fmt.Sprintf("%s   %s", at, terminal.Plural(len(h.last.queues), "queue"))
	if h.last.bridges > 0 {
		title += "   " + terminal.Plural(h.last.bridges, "bridge")
	}

	if h.elapsed() > 0 && h.last.bridges > 0 && h.before.bridges == h.last.bridges {
		perSecond := func(now, before int) string {
			return terminal.Grouped(int64(float64(max(now-before, 0)) / h.elapsed()))
		}
		title += fmt.Sprintf("   %s pushes/s   %s pops/s", perSecond(h.last.pushes, h.before.pushes), perSecond(h.last.pops, h.before.pops))
	}
	return title
}
