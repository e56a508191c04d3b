package main

import (
	"fmt"
	"strings"
	"testing"
)

// row is what make bench prints of a row, a line for each turn. A ratio of 0 is of a turn that only
// one build had.
func row(name string, ratios ...float64) string {
	var b strings.Builder
	for _, ratio := range ratios {
		fmt.Fprintf(&b, "BenchmarkService/%s-2         \t       1\t        14.93 bridge-µs/item\t",
			name)
		if ratio > 0 {
			fmt.Fprintf(&b, "        %.4g cpu-ratio-%%\t", ratio)
		}
		b.WriteString("     36061 items/s\t         3.123 p50-ms\t       101.4 rate-ratio-%\n")
	}
	return b.String()
}

// A row fails whose median is above the limit, and one that was compared too seldom. One that only
// one of the builds has is named, and decides nothing.
func TestJudge(t *testing.T) {
	equal := row("push", 98, 104, 91, 120, 100, 99)
	slow := row("kept", 80, 117, 118, 114, 116, 140)
	const passes = "rows compared: 1; none takes more than 1.15 times the processor time\n"

	for name, test := range map[string]struct {
		output        string
		printed, fail string
	}{
		"equal":        {equal, passes, ""},
		"at the limit": {row("push", 115, 115, 115, 115, 115, 115), passes, ""},
		"one turn in three is slow": {
			row("push", 150, 99, 101, 160, 97, 100), passes, "",
		},
		"slower": {
			equal + slow, "",
			"Service/kept-2 takes 1.165 times the processor time: at most 1.15 passes",
		},
		"slower by little": {
			row("pop", 114, 115, 115.1, 115.1, 116, 120), "",
			"Service/pop-2 takes 1.151 times the processor time: at most 1.15 passes",
		},
		"in one build only": {
			row("joins", 0, 0, 0, 0, 0, 0) + equal,
			"Service/joins-2 is left out: only one of the builds was measured\n" + passes, "",
		},
		"too few turns": {
			row("push", 98, 104, 91, 120, 100, 0), "",
			"Service/push-2 was compared in 5 turns: that takes 6",
		},
		"no other build": {
			row("push", 0, 0, 0, 0, 0, 0),
			"Service/push-2 is left out: only one of the builds was measured\n",
			"no row compares two builds",
		},
		"nothing": {"PASS\n", "", "no row compares two builds"},
		"no number": {
			strings.ReplaceAll(equal, "98 cpu", "x cpu"), "",
			`Service/push-2: strconv.ParseFloat: parsing "x": invalid syntax`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var printed strings.Builder
			err := judge(&printed, strings.NewReader("goos: linux\n"+test.output+"PASS\n"))

			failed := ""
			if err != nil {
				failed = err.Error()
			}
			if failed != test.fail {
				t.Errorf("failed with %q, want %q", failed, test.fail)
			}
			if printed.String() != test.printed {
				t.Errorf("printed %q, want %q", printed.String(), test.printed)
			}
		})
	}
}
