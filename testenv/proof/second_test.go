package proof_test

import (
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
	"github.com/pqbridge/pqbridge/testenv/harness"
	"github.com/pqbridge/pqbridge/testenv/proof"
)

// secondChecker goes by docs/histories.md, and shares no code with the first one.
const secondChecker = "second/check.py"

// secondOpinion returns what the checker in Python says of the histories in a file, by name.
func secondOpinion(t *testing.T, path string) map[string]string {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("skipped: the second checker needs python3")
	}
	if _, err := os.ReadFile(secondChecker); err != nil { // so that go test knows when it changes
		t.Fatal(err)
	}

	var failed *exec.ExitError
	out, err := harness.CommandContext(t.Context(), python, secondChecker, path).Output()
	if err != nil && (!errors.As(err, &failed) || len(failed.Stderr) > 0) {
		t.Fatalf("%v: %+v", err, failed)
	}

	said := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, verdict, _ := strings.Cut(strings.TrimSpace(line), ": ")
		said[name] = verdict
	}

	return said
}

// wantJudged wants exactly the histories with faults to be found, by name.
func wantJudged(t *testing.T, said map[string]string, faults map[string]bool) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		verdict := said[name]
		found := strings.HasPrefix(verdict, "queue ") && !strings.HasSuffix(verdict, "undecided")
		if found != faults[name] || !found && verdict != "accepted" {
			t.Errorf("%s has a fault: %v; the second checker says %q", name, faults[name], verdict)
		}
	}
}

// The second checker, which goes by the description of histories, judges every scripted history as
// the first one does.
func TestSecondCheckerAgrees(t *testing.T) {
	path := filepath.Join(t.TempDir(), "histories.jsonl")
	faults := map[string]bool{}
	for table, scripts := range map[string]map[string]pageTest{
		"working": workingScripts(),
		"faulty":  faultyScripts(),
		"sized":   sizedScripts(),
		"limited": limitedScripts(),
	} {
		for name, test := range scripts {
			h := historyOf(t, test.script)
			h.Name = table + "/" + name
			must(t, h.Keep(path))
			faults[h.Name] = test.want != ""
		}
	}

	wantJudged(t, secondOpinion(t, path), faults)
}

// engineHistories returns a history of each engine, which make soak kept.
func engineHistories(t *testing.T) (list []*proof.History) {
	f, err := os.Open("second/testdata/engines.jsonl.gz")
	must(t, err)
	defer f.Close()
	unpacked, err := gzip.NewReader(f)
	must(t, err)

	for lines := json.NewDecoder(unpacked); lines.More(); {
		h := &proof.History{}
		must(t, lines.Decode(h))
		list = append(list, h)
	}

	return list
}

// inFIFO matches a FIFO queue without groups.
var inFIFO = regexp.MustCompile(`^fifo-\d+$`)

// swapPops exchanges what the first and the last pop of a FIFO queue without groups returned.
func swapPops(h *proof.History) {
	var pops []*books.Operation
	for i := range h.Operations {
		op := &h.Operations[i]
		single := op.Kind == books.PopMin && op.Outcome == books.Done && len(op.Got()) == 1
		if single && inFIFO.MatchString(op.Queue) {
			pops = append(pops, op)
		}
	}

	slices.SortFunc(pops, func(x, y *books.Operation) int { return cmp.Compare(x.Call, y.Call) })
	x, y := pops[0], pops[len(pops)-1]
	x.Value, y.Value = y.Value, x.Value
	x.ID, y.ID = y.ID, x.ID
	x.Size, y.Size = y.Size, x.Size
	x.Items, y.Items = y.Items, x.Items
}

// Both checkers accept a history of each engine, with faults and operations of unknown outcome, and
// neither accepts it any more after two pops have swapped their items. The history in memory has so
// many of unknown outcome that trying all orders takes too long.
func TestCheckersAgreeOnEngines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "histories.jsonl")
	faults := map[string]bool{}
	for _, h := range engineHistories(t) {
		for _, swapped := range []bool{false, true} {
			if swapped {
				swapPops(h)
				h.Name += ", swapped"
			}
			if err := h.Check(checkTimeout); (err != nil) != swapped {
				t.Errorf("%s: the first checker says %v", h.Name, err)
			}

			faults[h.Name] = swapped
			must(t, h.Keep(path))
		}
	}

	for _, engine := range []string{"mem-faults", "embedded-kill", "fdb-2-bridges"} {
		ofEngine := func(name string) bool { return strings.HasPrefix(name, engine) }
		if len(faults) != 6 || !slices.ContainsFunc(slices.Collect(maps.Keys(faults)), ofEngine) {
			t.Errorf("no history of %s, or not six: %v", engine, faults)
		}
	}
	wantJudged(t, secondOpinion(t, path), faults)
}

// The second checker is short enough to be read.
func TestSecondCheckerIsShort(t *testing.T) {
	text, err := os.ReadFile(secondChecker)
	must(t, err)
	if lines := strings.Count(string(text), "\n"); lines > 330 {
		t.Errorf("%s has %d lines: want 330 at most", secondChecker, lines)
	}
}
