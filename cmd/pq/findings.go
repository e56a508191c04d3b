package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
)

// finding is the result of a check.
type finding struct {
	Result string `json:"result"`
	Check  string `json:"check"`
	Text   string `json:"text"`
	ToDo   string `json:"to_do,omitempty"`
}

// Results of checks.
const (
	fine    = "ok"
	notable = "note" // it may be meant so
	wrong   = "FAIL"
)

// verdict is the error of the command.
func (d *diagnosis) verdict() error {
	if d.err == nil && d.failed > 0 {
		return errors.New(terminal.Plural(d.failed, "check") + " failed")
	}
	return d.err
}

// report prints a finding.
func (d *diagnosis) report(result, check, what, toDo string) {
	if result == wrong {
		d.failed++
	}
	text := findingLines(result, check, what, toDo)
	err := d.print(reply{text, finding{result, check, what, toDo}})
	d.err = cmp.Or(d.err, err)
}

// findingLines writes a finding for people.
func findingLines(result, check, what, toDo string) string {
	const indent, width = 18, 80
	if toDo != "" {
		if !strings.HasSuffix(what, "?") {
			what += "."
		}
		what += " To do: " + toDo
	}

	// Whatever answers in place of a bridge may say anything.
	lines := strings.Split(text.WrapSoft(terminal.Plain(what), width-indent), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}

	return fmt.Sprintf("%-6s%-12s%s\n", result, check,
		strings.Join(lines, "\n"+strings.Repeat(" ", indent)))
}
