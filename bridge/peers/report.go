package peers

import (
	"strconv"
	"strings"
)

// Report tells a peer what became of the pops that it has forwarded. It names the pops that ended:
// each is reported again with the next heartbeat until the peer confirms that it has heard so.
type Report struct {
	// Nothing is known of numbers below Floor. All others up to High have arrived, or are lost.
	Floor uint64 `json:"floor"`
	High  uint64 `json:"high"`
	// Done were answered. Lost were skipped, and will not be run.
	Done Numbers `json:"done,omitempty"`
	Lost []Span  `json:"lost,omitempty"`
	// After is the position of these among all that ended: how many were reported before. All says
	// that the peer has confirmed those.
	After uint64 `json:"after"`
	All   bool   `json:"all,omitempty"`
	// Final says that the bridge will answer nothing more.
	Final bool `json:"final,omitempty"`
}

// Span is the numbers from first to last.
type Span struct{ First, Last uint64 }

// Numbers are numbers of pops, in JSON a string such as "3 4 9": a list would take several times as
// long to read.
type Numbers []uint64

// MarshalText implements encoding.TextMarshaler.
func (n Numbers) MarshalText() (text []byte, _ error) {
	for _, number := range n {
		text = append(strconv.AppendUint(text, number, 10), ' ')
	}
	return text, nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (n *Numbers) UnmarshalText(text []byte) error {
	for word := range strings.FieldsSeq(string(text)) {
		number, err := strconv.ParseUint(word, 10, 64)
		if err != nil {
			return err
		}
		*n = append(*n, number)
	}
	return nil
}
