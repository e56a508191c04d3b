package peers

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
)

// Report tells a peer what became of the pops that it forwarded. All numbers from Floor to High
// that are neither lost nor pending have been answered, or wait for items. A report contains the
// whole state, so losing one does no harm. The exception is Ended: it names only what ended since
// the last report.
type Report struct {
	Floor   uint64   // nothing is known of lower numbers
	High    uint64   // the highest number that arrived or was skipped
	Lost    []Span   // skipped, and will not be run; in order
	Pending []uint64 // arrived, not answered yet, and do not wait; in order
	Ended   []uint64 // waited, and were answered since the last report; in order
	Final   bool     // the bridge will answer nothing more
}

// Span is the numbers from first to last.
type Span struct{ First, Last uint64 }

// split returns reports that together say the same, each with at most n numbers that ended.
func (r Report) split(n int) (parts []Report) {
	for ended := range slices.Chunk(r.Ended, max(n, 1)) {
		part := r
		part.Ended, part.Final = ended, false
		parts = append(parts, part)
	}

	if len(parts) == 0 {
		return []Report{r}
	}

	parts[len(parts)-1].Final = r.Final
	return parts
}

// flagFinal is the bit of the first byte for report.final.
const flagFinal = 1

// Encode returns the report in about limit bytes, not counting the numbers that ended. If the
// pending numbers need more, the report covers only the lower numbers.
func (r Report) Encode(limit int) []byte {
	// The pending numbers first, because they decide how far the report goes.
	var pending []byte
	previous := r.Floor
	count, high := 0, r.High
	for _, number := range r.Pending {
		if len(pending) >= limit {
			high = number - 1
			break
		}

		pending = binary.AppendVarint(pending, int64(number-previous)) // may be below the floor
		previous = number
		count++
	}

	var flags byte
	if r.Final {
		flags = flagFinal
	}

	data := binary.AppendUvarint([]byte{flags}, r.Floor)
	data = binary.AppendUvarint(data, high)
	data = binary.AppendUvarint(data, uint64(len(r.Lost)))
	for _, s := range r.Lost {
		data = binary.AppendUvarint(data, s.First)
		data = binary.AppendUvarint(data, s.Last-s.First)
	}

	data = binary.AppendUvarint(data, uint64(count))
	data = append(data, pending...)

	data = binary.AppendUvarint(data, uint64(len(r.Ended)))
	previous = r.Floor
	for _, number := range r.Ended {
		data = binary.AppendVarint(data, int64(number-previous))
		previous = number
	}

	return data
}

var errReport = errors.New("malformed report")

// ParseReport decodes what Encode returned.
func ParseReport(data []byte) (r Report, err error) {
	if len(data) == 0 {
		return r, errReport
	}

	// Each reads on from where the one before ended.
	r.Final = data[0]&flagFinal != 0
	d := varints{Reader: bytes.NewReader(data[1:])}
	r.Floor, r.High = d.unsigned(), d.unsigned()
	for range d.count() {
		first := d.unsigned()
		r.Lost = append(r.Lost, Span{first, first + d.unsigned()})
	}

	r.Pending, r.Ended = d.numbers(r.Floor), d.numbers(r.Floor)

	// applyReport relies on the order.
	apart := func(a, b Span) int {
		if a.Last < b.First {
			return -1
		}
		return 1
	}

	ordered := slices.IsSorted(r.Pending) && slices.IsSorted(r.Ended) &&
		slices.IsSortedFunc(r.Lost, apart)
	if d.bad || d.Len() > 0 || !ordered {
		return Report{}, errReport
	}

	return r, nil
}

// varints reads numbers. An error sets bad.
type varints struct {
	*bytes.Reader
	bad bool
}

func (v *varints) unsigned() uint64 {
	n, err := binary.ReadUvarint(v)
	v.bad = v.bad || err != nil
	return n
}

// numbers reads how many numbers follow, and then each as what is added to the one before, the
// first to previous.
func (v *varints) numbers(previous uint64) (all []uint64) {
	for range v.count() {
		more, err := binary.ReadVarint(v)
		v.bad = v.bad || err != nil
		previous += uint64(more)
		all = append(all, previous)
	}
	return all
}

// count reads the number of elements that follow, each of at least one byte.
func (v *varints) count() uint64 {
	n := v.unsigned()
	if n > uint64(v.Len()) {
		v.bad = true
		return 0
	}
	return n
}
