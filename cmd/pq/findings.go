package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
)

// findings prints what pq doctor finds.
type findings struct {
	out    io.Writer
	json   bool
	failed int
	err    error // of printing
}

// finding is the result of a check.
type finding struct {
	Result result `json:"result"`
	Check  string `json:"check"`
	Text   string `json:"text"`
	ToDo   string `json:"to_do,omitempty"`
}

type result string

const (
	fine    result = "ok"
	notable result = "note" // it may be meant so
	wrong   result = "FAIL"
)

// verdict is the error of the command.
func (f *findings) verdict() error {
	if f.err == nil && f.failed > 0 {
		return errors.New(terminal.Plural(f.failed, "check") + " failed")
	}
	return f.err
}

// report prints a finding.
func (f *findings) report(r result, check, what, toDo string) {
	if r == wrong {
		f.failed++
	}

	var err error
	if f.json {
		err = json.NewEncoder(f.out).Encode(finding{r, check, what, toDo})
	} else {
		_, err = io.WriteString(f.out, f.lines(r, check, what, toDo))
	}

	if f.err == nil {
		f.err = err
	}
}

// lines writes a finding for people.
func (f *findings) lines(r result, check, what, toDo string) string {
	const indent, width = 18, 80
	if toDo != "" {
		if !strings.HasSuffix(what, "?") {
			what += "."
		}
		what += " To do: " + toDo
	}

	lines := strings.Split(text.WrapSoft(what, width-indent), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}

	return fmt.Sprintf("%-6s%-12s%s\n", r, check,
		strings.Join(lines, "\n"+strings.Repeat(" ", indent)))
}
