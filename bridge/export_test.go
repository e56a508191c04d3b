package bridge

import "context"

// WireError is a row of the table between errors and codes.
type WireError struct {
	Err     error
	Code    int
	Unknown bool
}

// WireErrors returns the table.
func WireErrors() []WireError {
	var rows []WireError
	for _, row := range wireErrors {
		rows = append(rows, WireError{row.err, row.code, row.unknown})
	}
	return rows
}

// Codes returns the codes of metrics.
func Codes() []int { return codes }

// NewRetirer returns a retirer of b besides the one that Run has, whose next round
// is minutes away. If lists is false it does not look through the list of queues.
func (b *Bridge) NewRetirer(lists bool) *Retirer {
	r := newRetirer(b)
	if !lists {
		r.passes = 0
	}
	return &Retirer{r}
}

// Retirer retires queues.
type Retirer struct{ *retirer }

// Round is one round.
func (r *Retirer) Round(ctx context.Context) error { return r.work(ctx) }

// Queues is the number of queues that b has in memory.
func (b *Bridge) Queues() (n int) {
	for kind := range b.queues.shards {
		for i := range b.queues.shards[kind] {
			s := &b.queues.shards[kind][i]
			s.RLock()
			n += len(s.queues)
			s.RUnlock()
		}
	}
	return n
}

// Evict acts as if queues had been forgotten for lack of room.
func (b *Bridge) Evict() { b.queues.evicted.Store(true) }

// Report is what one bridge tells another of the pops that it forwarded.
type Report struct {
	Floor, High uint64
	Lost        [][2]uint64
	Pending     []uint64
	Final       bool
}

// Encode returns the report as bridges send it.
func (r Report) Encode() string {
	sent := report{floor: r.Floor, high: r.High, pending: r.Pending, final: r.Final}
	for _, s := range r.Lost {
		sent.lost = append(sent.lost, span{s[0], s[1]})
	}
	return string(sent.encode(reportBytes))
}

// ParseReport is the opposite of Encode.
func ParseReport(data []byte) (Report, error) {
	sent, err := parseReport(data)
	r := Report{Floor: sent.floor, High: sent.high, Pending: sent.pending, Final: sent.final}
	for _, s := range sent.lost {
		r.Lost = append(r.Lost, [2]uint64{s.first, s.last})
	}
	return r, err
}

const (
	IntakeMessages = intakeMessages
	IntakeBytes    = intakeBytes
)

// MostBacklog is the most that ever waited for the callback of a subscription.
func (b *Bridge) MostBacklog() (messages, bytes int) {
	for _, s := range b.serving.subscriptions {
		if m, n, err := s.MaxPending(); err == nil {
			messages, bytes = max(messages, m), max(bytes, n)
		}
	}
	return messages, bytes
}
