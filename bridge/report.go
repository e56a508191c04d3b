package bridge

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
)

// report tells a peer what became of the pops that it forwarded. All numbers from floor
// to high that are neither lost nor pending have been answered, or wait for items. A report
// contains the whole state, so that losing one does no harm; only of the pops that waited it
// names those that have ended since the last report.
type report struct {
	floor   uint64   // nothing is known of lower numbers
	high    uint64   // the highest number that arrived or was skipped
	lost    []span   // skipped, and will not be run; in order
	pending []uint64 // arrived, not answered yet, and do not wait; in order
	ended   []uint64 // waited, and were answered since the last report; in order
	final   bool     // the bridge will answer nothing more
}

// span is the numbers from first to last.
type span struct{ first, last uint64 }

// reportBytes is the approximate size of the largest report.
const reportBytes = 64 << 10

// sendReports reports to each peer what became of the pops it forwarded, if there is
// anything new. Nothing follows a final report.
func (r *router) sendReports(final bool) {
	type addressed struct {
		to string
		report
	}
	var reports []addressed
	r.accounts.Lock()
	for id, a := range r.accounts.of {
		latest, due, idle := a.report()
		latest.final = final
		if due || final {
			reports = append(reports, addressed{id, latest})
		}
		if idle > accountLife {
			delete(r.accounts.of, id)
		}
	}
	r.accounts.Unlock()
	limit := min(reportBytes, int(r.b.nc.MaxPayload()/2))
	for _, a := range reports {
		for _, part := range a.split(limit / binary.MaxVarintLen64) {
			r.publish("report."+a.to+"."+r.b.id, part.encode(limit))
		}
	}
}

// hearReport handles the report of a peer on what became of the pops forwarded to it.
func (r *router) hearReport(m *nats.Msg) {
	id := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
	heard, err := parseReport(m.Data)
	if err != nil {
		r.b.quiet.nats.warn("another bridge sent a report that cannot be read", "bridge", id, "error", err)
		return
	}
	r.failLost(r.applyReport(id, heard))
}

// applyReport forgets the pops that a peer has answered, and returns those that it will
// not answer.
func (r *router) applyReport(id string, heard report) (lost []failedForward) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.mu.peers[id]
	if p == nil {
		return nil
	}
	p.silent, p.reported = 0, true
	p.high = max(p.high, heard.high)
	lost = p.applyReport(heard, r.mu.beats)
	if heard.final {
		r.removeLocked(id)
	}
	r.checkAnsweredLocked()
	return lost
}

// split returns reports that together say the same, each with at most n numbers that ended.
func (r report) split(n int) (parts []report) {
	for ended := range slices.Chunk(r.ended, max(n, 1)) {
		part := r
		part.ended, part.final = ended, false
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return []report{r}
	}
	parts[len(parts)-1].final = r.final
	return parts
}

// flagFinal is the bit of the first byte for report.final.
const flagFinal = 1

// encode returns the report in about limit bytes, not counting the numbers that ended. If the
// pending numbers need more, the report covers only the lower numbers.
func (r report) encode(limit int) []byte {
	var pending []byte
	previous := r.floor
	count, high := 0, r.high
	for _, number := range r.pending {
		if len(pending) >= limit {
			high = number - 1
			break
		}
		pending = binary.AppendVarint(pending, int64(number-previous)) // may be below the floor
		previous = number
		count++
	}
	var flags byte
	if r.final {
		flags = flagFinal
	}
	data := binary.AppendUvarint([]byte{flags}, r.floor)
	data = binary.AppendUvarint(data, high)
	data = binary.AppendUvarint(data, uint64(len(r.lost)))
	for _, s := range r.lost {
		data = binary.AppendUvarint(data, s.first)
		data = binary.AppendUvarint(data, s.last-s.first)
	}
	data = binary.AppendUvarint(data, uint64(count))
	data = append(data, pending...)
	data = binary.AppendUvarint(data, uint64(len(r.ended)))
	previous = r.floor
	for _, number := range r.ended {
		data = binary.AppendVarint(data, int64(number-previous))
		previous = number
	}
	return data
}

var errReport = errors.New("malformed report")

// parseReport decodes what encode returned.
func parseReport(data []byte) (r report, err error) {
	if len(data) == 0 {
		return r, errReport
	}
	r.final = data[0]&flagFinal != 0
	d := varints{rest: data[1:]}
	r.floor, r.high = d.unsigned(), d.unsigned()
	for range d.count() {
		first := d.unsigned()
		r.lost = append(r.lost, span{first, first + d.unsigned()})
	}
	r.pending, r.ended = d.numbers(r.floor), d.numbers(r.floor)
	ordered := slices.IsSorted(r.pending) && slices.IsSorted(r.ended) && slices.IsSortedFunc(r.lost, func(a, b span) int {
		if a.last < b.first {
			return -1
		}
		return 1
	})
	if d.bad || len(d.rest) > 0 || !ordered {
		return report{}, errReport
	}
	return r, nil
}

// varints reads numbers. After the first error, which sets bad, all are 0.
type varints struct {
	rest []byte
	bad  bool
}

func (v *varints) unsigned() uint64 {
	n, used := binary.Uvarint(v.rest)
	v.skip(used)
	return n
}

func (v *varints) signed() int64 {
	n, used := binary.Varint(v.rest)
	v.skip(used)
	return n
}

// numbers reads how many numbers follow, and then each as what is added to the one before, the
// first to previous.
func (v *varints) numbers(previous uint64) (all []uint64) {
	for range v.count() {
		previous += uint64(v.signed())
		all = append(all, previous)
	}
	return all
}

func (v *varints) skip(used int) {
	if used <= 0 {
		v.rest, v.bad = nil, true
		return
	}
	v.rest = v.rest[used:]
}

// count reads the number of elements that follow, each of at least one byte.
func (v *varints) count() uint64 {
	n := v.unsigned()
	if n > uint64(len(v.rest)) {
		v.rest, v.bad = nil, true
		return 0
	}
	return n
}
