package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

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
		more = clip(fmt.Sprintf("and %s: name those that matter", plural(len(h.last.queues)-len(queues), "more queue")), width) + "\n"
	}
	t := &columns{terminal: true, width: width, list: []column{
		{"KIND", left}, {"QUEUE", snipped}, {"READY", right}, {"LEASED", right}, {"DELAYED", right}, {"CHANGE/S", right}, {"OLDEST", right}, {"READY LATELY", left},
	}}
	for _, q := range queues {
		change, oldest := "", ""
		if perSecond, known := h.change(q); known {
			change = fmt.Sprintf("%+.1f", perSecond)
			if change == "+0.0" || change == "-0.0" {
				change = "0"
			}
		}
		if q.oldest != nil {
			oldest = inWords(*q.oldest)
		}
		t.row(q.Kind, q.Queue, q.Ready, q.Leased, q.Delayed, change, oldest, trend(h.ready[q.key()], unicode))
	}
	for len(t.list) > 3 && t.room() < narrowest {
		t.dropLast()
	}
	return clip(h.title(), width) + "\n\n" + t.String() + more
}

// title is the first line of a frame.
func (h *history) title() string {
	at := h.last.at.Format(time.TimeOnly)
	if h.err != nil {
		return fmt.Sprintf("%s, since then: %v", at, h.err)
	}
	title := fmt.Sprintf("%s   %s", at, plural(len(h.last.queues), "queue"))
	if h.last.bridges > 0 {
		title += "   " + plural(h.last.bridges, "bridge")
	}
	if h.elapsed() > 0 && h.last.bridges > 0 && h.before.bridges == h.last.bridges {
		perSecond := func(now, before int) string { return grouped(int64(float64(max(now-before, 0)) / h.elapsed())) }
		title += fmt.Sprintf("   %s pushes/s   %s pops/s", perSecond(h.last.pushes, h.before.pushes), perSecond(h.last.pops, h.before.pops))
	}
	return title
}

// clip cuts a line of ASCII for a terminal.
func clip(line string, width int) string {
	if len(line) > width {
		line = line[:max(width-1, 0)] + "~"
	}
	return line
}

// trend draws numbers as a line of bars, from none to the largest.
func trend(numbers []int64, unicode bool) string {
	bars := []rune("_.:-=+*#")
	if unicode {
		bars = []rune("▁▂▃▄▅▆▇█")
	}
	var most int64
	for _, n := range numbers {
		most = max(most, n)
	}
	line := make([]rune, len(numbers))
	for i, n := range numbers {
		height := 0
		if n > 0 {
			height = 1 + int(float64(n)/float64(most)*float64(len(bars)-2))
		}
		line[i] = bars[height]
	}
	return string(line)
}

// unicodeTerminal reports whether the locale says that the terminal shows more than ASCII.
func unicodeTerminal() bool {
	for _, variable := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if locale := os.Getenv(variable); locale != "" {
			locale = strings.ToLower(strings.ReplaceAll(locale, "-", ""))
			return strings.Contains(locale, "utf8")
		}
	}
	return false
}

// replaceNewlines ends lines so that nothing is left of those that were there.
func replaceNewlines(frame string) string {
	return strings.ReplaceAll(frame, "\n", clearLine+"\r\n")
}
