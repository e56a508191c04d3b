package peers

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// Report tells a peer what became of the pops that it forwarded. All numbers from Floor to High
// that are neither lost nor pending have been answered, or wait for items. A report contains the
// whole state, so losing one does no harm. The exception is Ended: it names only what ended since
// the last report, and Ends tells whether one was lost.
type Report struct {
	// Nothing is known of numbers below Floor. High is the highest that arrived or was skipped.
	Floor uint64 `json:"floor"`
	High  uint64 `json:"high"`
	// Lost were skipped, and will not be run. Pending arrived, are not answered yet, and do not
	// wait. Ended waited, and were answered since the last report. All are in order.
	Lost    []Span   `json:"lost,omitempty"`
	Pending []uint64 `json:"pending,omitempty"`
	Ended   []uint64 `json:"ended,omitempty"`
	// Ends is how many have ended so far, these included; 0 if the report does not cover all.
	Ends int `json:"ends,omitempty"`
	// Final says that the bridge will answer nothing more.
	Final bool `json:"final,omitempty"`
}

// Span is the numbers from first to last.
type Span struct{ First, Last uint64 }

// split returns reports that together say the same, each with at most n numbers that ended.
func (r Report) split(n int) (parts []Report) {
	part := r
	part.Final, part.Ends = false, r.Ends-len(r.Ended)
	for ended := range slices.Chunk(r.Ended, max(n, 1)) {
		part.Ended, part.Ends = ended, part.Ends+len(ended)
		parts = append(parts, part)
	}

	if len(parts) == 0 {
		return []Report{r}
	}

	parts[len(parts)-1].Final = r.Final
	return parts
}

// Encode returns the report in about limit bytes, not counting the numbers that ended. If the
// pending numbers need more, the report covers only the lower numbers.
func (r Report) Encode(limit int) []byte {
	size := len(strconv.FormatUint(r.High, 10)) + len(",")
	if n := limit / size; len(r.Pending) > n {
		r.High, r.Pending, r.Ends = r.Pending[n]-1, r.Pending[:n], 0
	}
	data, _ := json.Marshal(r) // never returns an error for this type
	return data
}

var errReport = errors.New("malformed report")

// ParseReport decodes what Encode returned.
func ParseReport(data []byte) (r Report, err error) {
	if err := json.Unmarshal(data, &r); err != nil {
		return Report{}, fmt.Errorf("%w: %w", errReport, err)
	}

	// applyReport relies on the order.
	apart := func(a, b Span) int {
		if a.Last < b.First {
			return -1
		}
		return 1
	}
	ordered := slices.IsSorted(r.Pending) && slices.IsSorted(r.Ended) &&
		slices.IsSortedFunc(r.Lost, apart)
	if !ordered {
		return Report{}, errReport
	}
	return r, nil
}
