package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
)

// pages returns the command lines that print a help text.
func pages() [][]string {
	root, _ := newRoot()
	all := [][]string{nil, {"--help"}, {"help"}}
	var walk func(*cobra.Command, []string)

	walk = func(cmd *cobra.Command, path []string) {
		for _, c := range cmd.Commands() {
			path := append(path[:len(path):len(path)], c.Name())
			all = append(all, append([]string{"help"}, path...),
				append(path[:len(path):len(path)], "--help"))
			walk(c, path)
		}
	}

	walk(root, nil)
	return all
}

// examples returns the examples of a help text.
func examples(help string) string {
	_, after, _ := strings.Cut(help, "\nExamples")
	_, after, _ = strings.Cut(after, ":\n")
	before, _, _ := strings.Cut(after, "\n\n")
	return before
}

// 80 columns and 24 lines, one of them for the prompt. Each command, page and flag that
// help names is there.
func TestHelp(t *testing.T) {
	c := &cli{t: t, server: "nats://127.0.0.1:1"}
	root, _ := newRoot()
	all := pages()

	for _, args := range all {
		page, text := "pq "+strings.Join(args, " "), c.ok("", args...)
		if n := strings.Count(text, "\n"); n > 23 {
			t.Errorf("%s: %d lines", page, n)
		}

		for line := range strings.Lines(text) {
			if utf8.RuneCountInString(line) > 81 || strings.ContainsRune(line, '\t') {
				t.Errorf("%s: a line of %d columns: %s", page, utf8.RuneCountInString(line)-1, line)
			}
		}
		// It leads on: to an example, and to more help.
		if len(commandLines(examples(text))) == 0 {
			t.Errorf("%s has no example", page)
		}

		for _, m := range regexp.MustCompile(`pq help ([a-z]+)`).FindAllStringSubmatch(text, -1) {
			c.ok("", "help", m[1])
		}

		path := slices.DeleteFunc(slices.Clone(args),
			func(word string) bool { return strings.Contains(word, "help") })
		cmd, _, err := root.Find(path)
		must(t, err)

		for _, name := range regexp.MustCompile(`--([a-z-]+)`).FindAllStringSubmatch(text, -1) {
			local, inherited := cmd.Flags().Lookup(name[1]), cmd.InheritedFlags().Lookup(name[1])
			// Of another command, which TestExamplesParse checks.
			example := strings.Contains(cmd.Example, "--"+name[1])
			if local == nil && inherited == nil && !example && name[1] != "help" {
				t.Errorf("%s names %s", page, name[0])
			}
		}
	}
	if len(all) < 16 {
		t.Errorf("%d pages of help only: does the test still see them?", len(all))
	}
}

// The command lines that pq shows without arguments work as they stand.
func TestFirstSteps(t *testing.T) {
	c, _ := newCLI(t)
	var printed string

	for _, args := range commandLines(examples(c.ok(""))) {
		printed = c.ok("", args...)
	}
	if printed != "write the report" {
		t.Errorf("the last command printed %q", printed)
	}
}

// People get large numbers in groups of three digits, and durations in milliseconds,
// seconds or minutes.
func TestNumbersForPeople(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := terminal.Grouped(n); got != want {
			t.Errorf("%d is printed as %s", n, got)
		}
	}
	for d, want := range map[time.Duration]string{
		340 * time.Millisecond:    "340 ms",
		1500 * time.Millisecond:   "1.5 s",
		125400 * time.Millisecond: "2m5s",
	} {
		if got := terminal.InWords(d); got != want {
			t.Errorf("%v is printed as %s", d, got)
		}
	}
}
