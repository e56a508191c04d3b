package dashboard

import (
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/subjects"
)

const (
	// historyTime is how far histories go back, lineTime what the small lines of tables show, in
	// lineSteps.
	historyTime = 10 * time.Minute
	lineTime    = 5 * time.Minute
	lineSteps   = 60
	// Two points of a history are pointStep apart at least. However many queues there are, their
	// histories take some 15 MB, because thousands are listed more rarely.
	pointStep = 2 * time.Second
	// outage without a point is a gap in a chart.
	outage = time.Minute
)

// Figures of a point, in the order of the lines of the two charts.
const (
	readyLine = iota
	leasedLine
	delayedLine
	pushedLine // a second, as the rest
	poppedLine
	failedLine
	lineCount

	countLines = pushedLine // before these are numbers of items
)

// point has the figures of a queue, or of all together, at one time. Negative ones are not known.
type point struct {
	at      time.Time
	figures [lineCount]float64
}

func newPoint(at time.Time, n subjects.QueueCounts, t traffic) point {
	return point{at, [...]float64{
		float64(n.Ready), float64(n.Leased), float64(n.Delayed),
		orLeast(t.In), orLeast(t.Out), orLeast(t.Failed),
	}}
}

// history has the recent figures, oldest first.
type history struct{ points []point }

// add adds a point, unless the last one is too young.
func (h *history) add(p point) {
	if n := len(h.points); n > 0 && p.at.Sub(h.points[n-1].at) < pointStep-pointStep/10 {
		return
	}
	isOld := func(old point) bool { return p.at.Sub(old.at) > historyTime }
	h.points = append(slices.DeleteFunc(h.points, isOld), p)
}

// line returns a figure at even intervals until now, as far back as there are any.
func (h *history) line(now time.Time, figure int) (line []float64) {
	const step = lineTime / lineSteps
	i, start := 0, now.Add(-lineTime)
	for n := range lineSteps {
		at := start.Add(time.Duration(n+1) * step)
		for i < len(h.points) && !h.points[i].at.After(at) {
			i++
		}
		if i > 0 {
			line = append(line, h.points[i-1].figures[figure])
		}
	}

	return line
}

// charts returns the charts of points.
func charts(points []point) (countsChart, ratesChart series) {
	at := make([]int64, len(points))
	var lines [lineCount][]*float64
	for i := range lines {
		lines[i] = make([]*float64, len(points))
	}

	for i, p := range points {
		at[i] = p.at.Unix()
		afterGap := i > 0 && p.at.Sub(points[i-1].at) > outage
		for line, n := range p.figures {
			if n >= 0 && !afterGap {
				lines[line][i] = &n
			}
		}
	}

	return series{"counts", at, []string{"ready", "leased", "delayed"}, lines[:countLines]},
		series{"rates", at, []string{"pushed", "popped", "failed"}, lines[countLines:]}
}
