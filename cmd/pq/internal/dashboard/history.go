package dashboard

import "time"

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

// point is what was seen of a queue, or of all together, at one time.
type point struct {
	at                     time.Time
	ready, leased, delayed int64
	in, out                float32 // a second; negative if not known
}

// history is what was seen lately, oldest first.
type history struct{ points []point }

// add adds a point, unless the last one is too young.
func (h *history) add(p point) {
	if n := len(h.points); n > 0 && p.at.Sub(h.points[n-1].at) < pointStep-pointStep/10 {
		return
	}
	old := 0
	for old < len(h.points) && p.at.Sub(h.points[old].at) > historyTime {
		old++
	}
	h.points = append(append(h.points[:0], h.points[old:]...), p)
}

// line returns a number at even intervals until now, as far back as there are any.
func (h *history) line(now time.Time, number func(*point) int64) (line []int64) {
	const step = lineTime / lineSteps
	i, start := 0, now.Add(-lineTime)
	for n := range lineSteps {
		at := start.Add(time.Duration(n+1) * step)
		for i < len(h.points) && !h.points[i].at.After(at) {
			i++
		}
		if i > 0 {
			line = append(line, number(&h.points[i-1]))
		}
	}

	return line
}

func readyOf(p *point) int64 { return p.ready }
func inOf(p *point) int64    { return max(int64(p.in+0.5), 0) }
func outOf(p *point) int64   { return max(int64(p.out+0.5), 0) }

// charts returns the charts of points.
func charts(points []point) (countsChart, ratesChart series) {
	at := make([]int64, len(points))
	var lines [5][]*float64
	for i := range lines {
		lines[i] = make([]*float64, len(points))
	}

	for i, p := range points {
		at[i] = p.at.Unix()
		afterGap := i > 0 && p.at.Sub(points[i-1].at) > outage
		counts := []float64{float64(p.ready), float64(p.leased), float64(p.delayed)}
		for line, n := range append(counts, float64(p.in), float64(p.out)) {
			if n >= 0 && !afterGap {
				lines[line][i] = &n
			}
		}
	}

	return series{"counts", at, []string{"ready", "leased", "delayed"}, lines[:3]},
		series{"rates", at, []string{"pushed", "popped"}, lines[3:]}
}
