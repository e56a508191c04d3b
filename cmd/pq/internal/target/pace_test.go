package target

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

// took is a job that somebody did in so many seconds.
func took(holder string, seconds int) client.StoredItem {
	begun := time.Unix(0, 0)
	end := begun.Add(time.Duration(seconds) * time.Second)
	return client.StoredItem{
		Holder: holder, LeasedAt: &begun, Done: &subjects.Done{FinishedAt: end},
	}
}

// Durations are summed up as they are said: half took at most the median. The slowest come first,
// and jobs whose begin is not known do not count.
func TestPaces(t *testing.T) {
	list := []client.StoredItem{took("quick", 1), {Holder: "nobody"}}
	for n := range 100 {
		list = append(list, took("slow", 100-n))
	}

	paces := PacesBy(list, Groups["holder"])

	want := []Pace{
		{"slow", 100, 50 * time.Second, 95 * time.Second, 100 * time.Second},
		{"quick", 1, time.Second, time.Second, time.Second},
	}
	if !slices.Equal(paces, want) {
		t.Errorf("%s, want %s", fmt.Sprint(paces), fmt.Sprint(want))
	}
}
