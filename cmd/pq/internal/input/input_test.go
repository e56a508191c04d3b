package input

import (
	"errors"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/client"
)

// The report names the lines in the queue, the lines that may be, and a sed command for the rest.
func TestReport(t *testing.T) {
	refused, unsure := errors.New("no"), client.ErrUnknownOutcome
	for _, s := range []struct {
		done   int
		failed []error
		want   string
	}{
		{0, nil, "not in the queue: sed -n '1,$p'"},
		{1, nil, "in the queue: 1; not in the queue: sed -n '2,$p'"},
		{41, []error{refused, nil, unsure, nil}, "in the queue: 1-41,43,45; that may be in the " +
			"queue: 44; not in the queue: sed -n '42p;46,$p'"},
		{
			0,
			[]error{unsure, unsure, refused, refused, nil, refused},
			"in the queue: 5; that may be in the queue: 1-2; not in the queue: sed -n '3,4p;6,$p'",
		},
	} {
		want := "\npq: lines " + strings.ReplaceAll(s.want, "; ", "\npq: lines ")
		if got := Report(s.done, s.failed); got != want {
			t.Errorf("report %q, want %q", got, want)
		}
	}
}
