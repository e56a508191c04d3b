package requests

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
)

// Names of packages and Go's words are left out of errors, but the words of users stay as they are.
func TestForClients(t *testing.T) {
	for text, want := range map[string]string{
		"kv: the store is away":                          "the store is away",
		`a push: fdbpq: header Pq-X: "kv: 5": kv: wrong`: `a push: header Pq-X: "kv: 5": wrong`,
		"try again: context deadline exceeded":           "try again",
		"context canceled":                               "the store did not answer in time",
	} {
		if got := forClients(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// Clients hear what went wrong, with its code and without the names of packages.
func TestFailure(t *testing.T) {
	for _, m := range []struct {
		err  error
		code subjects.Code
		text string
	}{
		{fdbpq.ErrNoRoom, 503, "no room"},
		{
			fmt.Errorf("%w: %w", dispatch.ErrUnavailable, kv.ErrUnavailable),
			503, "the store is unavailable",
		},
		{
			fmt.Errorf("%w: item 3: %w", errBadRequest, fdbpq.ErrOp),
			400, "item 3: invalid operation",
		},
		{context.DeadlineExceeded, 503, "the store did not answer in time"},
		{fmt.Errorf("fdbkv: commit: %w", context.Canceled), 503, "commit"},
	} {
		told := Failure(m.err)
		named := strings.Contains(told.Text, "fdbpq:") || strings.Contains(told.Text, "kv:") ||
			strings.Contains(told.Text, "context")
		if told.Code != m.code || named || !strings.Contains(told.Text, m.text) {
			t.Errorf("%v: %v", m.err, told)
		}
	}
}

// docs/protocol.md lists each reason under its code, and no other.
func TestReasonsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/protocol.md")
	must(t, err)
	_, table, found := strings.Cut(string(text), "| code | `Pq-Reason` |")
	if !found {
		t.Fatal("no table of reasons")
	}

	table, _, _ = strings.Cut(table, "\n\n")

	// Where the pop has waited, the queue might as well be empty.
	want := []string{"404 limit", "404 rate"}
	for _, row := range wireErrors {
		if row.reason != "" {
			want = append(want, fmt.Sprintf("%d %s", row.code, row.reason))
		}
	}

	var got []string

	code := ""
	for _, line := range strings.Split(table, "\n")[2:] {
		cells := strings.Split(line, "|")
		if text := strings.Trim(cells[1], " "); text != "" {
			code = text
		}

		for word := range strings.SplitSeq(cells[2], ",") {
			got = append(got, code+" "+strings.Trim(word, " `"))
		}
	}

	slices.Sort(want)
	slices.Sort(got)
	if want = slices.Compact(want); !slices.Equal(got, want) {
		t.Errorf("documented are %q: want %q", got, want)
	}
}
