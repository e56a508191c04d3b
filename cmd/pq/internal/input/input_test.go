package input

import (
	"errors"
	"io"
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	for _, s := range []struct {
		o    *Outcomes
		want string
	}{
		{&Outcomes{Ended: errors.New("")}, "not in the queue: sed -n '1,$p'"},
		{&Outcomes{Read: 3, Ended: io.EOF, refused: []int{3}}, "in the queue: 1-2; not in the queue: sed -n '3p'"},
		{&Outcomes{Read: 5, Ended: io.EOF, unsure: []int{5, 1}}, "in the queue: 2-4; that may be in the queue: 1,5"},
		{&Outcomes{Read: 9, Ended: io.EOF, refused: []int{4, 2, 3, 9}, unsure: []int{6}},
			"in the queue: 1,5,7-8; that may be in the queue: 6; not in the queue: sed -n '2,4p;9p'"},
		{&Outcomes{Read: 9, Ended: errors.New(""), refused: []int{9, 8}}, "in the queue: 1-7; not in the queue: sed -n '8,$p'"},
	} {
		want := "\npq: lines " + strings.ReplaceAll(s.want, "; ", "\npq: lines ")
		if got := s.o.Report(); got != want {
			t.Errorf("report %q, want %q", got, want)
		}
	}
}
