package bridge

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
)

// report tells a peer what became of the pops that it forwarded. All numbers from floor
// to high that are neither lost nor pending have been answered. A report contains the
// whole state, so that losing one does no harm.
type report struct {
	floor   uint64   // nothing is known of lower numbers
	high    uint64   // the highest number that arrived or was skipped
	lost    []span   // skipped, and will not be run; in order
	pending []uint64 // arrived, not answered yet; in order
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
		r.publish("report."+a.to+"."+r.b.id, a.encode(limit))
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

// flagFinal is the bit of the first byte for report.final.
const flagFinal = 1

// encode returns the report in about limit bytes. If the pending numbers need more, the
// report covers only the lower numbers.
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
	return append(data, pending...)
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
	previous := r.floor
	for range d.count() {
		previous += uint64(d.signed())
		r.pending = append(r.pending, previous)
	}
	ordered := slices.IsSorted(r.pending) && slices.IsSortedFunc(r.lost, func(a, b span) int {
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
