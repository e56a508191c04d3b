package bench

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// PeersReport is the result of a comparison with peers.
type PeersReport struct {
	*Report
	Peers   []PeerReport `json:"peers"`
	Missing []string     `json:"missing,omitempty"`
	Rows    []PeerRow    `json:"rows"`
}

// PeerReport is one peer, or the service.
type PeerReport struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Choice  string `json:"choice,omitempty"`
	Notes   string `json:"notes,omitempty"`
	// Levels is how many of orderPriorities priorities were kept apart and in order,
	// Inversions how many pairs of items came in the wrong order.
	Levels     int `json:"levels"`
	Inversions int `json:"inversions"`
	// Lost is the number of items that were pushed and could not be popped.
	Lost int `json:"lost,omitempty"`
}

// PeerRow is an operation of a peer, or of the service.
type PeerRow struct {
	Row
	Queue     string  `json:"queue"`
	Backlog   int     `json:"backlog"`
	OfService float64 `json:"of_service,omitempty"` // rate over that of the service
}

// setPeers notes all peers and returns those that are installed.
func (r *PeersReport) setPeers(peers []Peer) (installed []Peer) {
	r.Peers = []PeerReport{{Name: serviceName, Choice: "nats.go; for push, pop and work the Producer, PopMin and Worker of package client, one for each connection, otherwise a request for each step"}}
	for _, p := range peers {
		if p.Missing != "" {
			r.Missing = append(r.Missing, fmt.Sprintf("%s (%s)", p.Name, p.Missing))
			continue
		}
		r.Peers = append(r.Peers, PeerReport{Name: p.Name, Choice: p.Choice, Notes: p.Notes})
		installed = append(installed, p)
	}
	return installed
}

// peer returns the part of the report about a peer.
func (r *PeersReport) peer(name string) *PeerReport {
	for i := range r.Peers {
		if r.Peers[i].Name == name {
			return &r.Peers[i]
		}
	}
	return &PeerReport{}
}

func (r *PeersReport) setLost(c *contender) { r.peer(c.name).Lost += c.lost }

// checkOrder pushes and pops an item of each priority.
func (r *PeersReport) checkOrder(name string, push func(priority int, value []byte) error, pop func() ([]byte, error)) error {
	for priority := orderPriorities - 1; priority >= 0; priority-- {
		if err := push(priority, []byte(strconv.Itoa(priority))); err != nil {
			return err
		}
	}
	popped := make([]int, 0, orderPriorities)
	for range orderPriorities {
		value, err := pop()
		if err != nil {
			return fmt.Errorf("after %d items: %w", len(popped), err)
		}
		priority, err := strconv.Atoi(string(value))
		if err != nil {
			return err
		}
		popped = append(popped, priority)
	}
	p := r.peer(name)
	p.Levels, p.Inversions = order(popped)
	return nil
}

// order counts the pairs in the wrong order, and the groups that are in order among each other.
// A queue that takes several priorities for one returns these as they were pushed, the least
// urgent first, so each group is one level of the queue.
func order(popped []int) (levels, inversions int) {
	for i := range popped {
		before, after := -1, popped[i]
		for _, p := range popped[:i] {
			before = max(before, p)
			if p > popped[i] {
				inversions++
			}
		}
		for _, p := range popped[i:] {
			after = min(after, p)
		}
		if before < after {
			levels++
		}
	}
	return levels, inversions
}

// addRows adds what was measured with a backlog.
func (r *PeersReport) addRows(echo *measured, all []*contender, backlog int) {
	add := func(m *measured, queue string) *PeerRow {
		row := newRow(m)
		row.Ratio = row.Rate / echo.out.rate()
		r.Rows = append(r.Rows, PeerRow{Row: row, Queue: queue, Backlog: backlog})
		return &r.Rows[len(r.Rows)-1]
	}
	add(echo, rowEcho)
	for _, name := range peerRows {
		for _, c := range all {
			if m := c.rows[name]; m != nil && m.out.items > 0 {
				row := add(m, c.name)
				if us := all[0].rate(name); us > 0 {
					row.OfService = row.Rate / us
				}
			}
		}
	}
}

// Write prints the report as tables.
func (r *PeersReport) Write(w io.Writer) error {
	var b strings.Builder
	r.writeHead(&b)
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range r.Rows {
		if row.Name == rowEcho {
			fmt.Fprintf(table, "\nbacklog %d\tqueue\tper second\tof echo\tof %s\tp50\tp99\t\n", row.Backlog, serviceName)
		}
		of := "" // of what the service does not have
		if row.OfService > 0 {
			of = fmt.Sprintf("%.2f", row.OfService)
		}
		fmt.Fprintf(table, "%s\t%s\t%.0f\t%.2f\t%s\t%s\t%s\t\n", row.Name, row.Queue, row.Rate, row.Ratio, of, millis(row.P50), millis(row.P99))
	}
	fmt.Fprintf(table, "\nqueue\tpriorities of %d in order\tpairs of %d in the wrong order\titems lost\t\n", orderPriorities, orderPriorities*(orderPriorities-1)/2)
	for _, p := range r.Peers {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t\n", p.Name, p.Levels, p.Inversions, p.Lost)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	b.WriteByte('\n')
	for _, p := range r.Peers {
		fmt.Fprintf(&b, "%s: %s. %s\n", strings.TrimSpace(p.Name+" "+p.Version), p.Choice, p.Notes)
	}
	if len(r.Missing) > 0 {
		fmt.Fprintln(&b, "Not measured, because they are not installed:", strings.Join(r.Missing, ", "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
