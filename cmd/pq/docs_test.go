package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/login"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
	"github.com/pqbridge/pqbridge/testenv"
)

const root = "../.."

// Each command line of pq in the documents and in its help has a command with valid flags and
// arguments.
func TestExamplesParse(t *testing.T) {
	found := 0
	check := func(where, text string) {
		for _, line := range commandLines(text) {
			found++
			if err := parse(line); err != nil {
				t.Errorf("%s: %s: %v", where, strings.Join(line, " "), err)
			}
		}
	}

	for name, text := range testenv.Documents(t, root) {
		for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(text,
			-1) {
			check(name, block[1])
		}
	}

	for _, args := range pages() {
		check("pq "+strings.Join(args, " "), examples((&cli{t: t}).ok("", args...)))
	}
	if found < 15 {
		t.Errorf("found %d command lines only: does the test still see them?", found)
	}
}

// commandLines returns the arguments of each command in text that runs pq.
func commandLines(text string) [][]string {
	var lines [][]string
	for line := range strings.Lines(text) {
		for _, command := range strings.Split(line, "|") {
			words := shellWords(command)
			if len(words) > 1 && words[0] == "pq" {
				lines = append(lines, words[1:])
			}
		}
	}

	return lines
}

// shellWords splits a line into words as a shell does, as far as the examples need:
// it knows double quotes and leaves out redirections and comments.
func shellWords(line string) []string {
	line, _, _ = strings.Cut(line, "  # ")
	line, _, _ = strings.Cut(line, " < ")
	line, _, _ = strings.Cut(line, " > ")
	var words []string

	for _, m := range regexp.MustCompile(`"([^"]*)"|(\S+)`).FindAllStringSubmatch(line, -1) {
		words = append(words, m[1]+m[2])
	}

	return words
}

// parse parses a command line without running it.
func parse(args []string) error {
	tree, _ := newRoot()
	tree.PersistentPreRunE = nil
	var disarm func(*cobra.Command)

	disarm = func(parent *cobra.Command) {
		for _, cmd := range parent.Commands() {
			if disarm(cmd); cmd.Runnable() {
				cmd.RunE = func(*cobra.Command, []string) error { return nil }
			}
		}
	}

	disarm(tree)
	tree.SetArgs(priorityLast(tree, args))
	tree.SetOut(new(strings.Builder))
	_, err := tree.ExecuteC()

	return err
}

// runs finds what containers of Compose and Kubernetes run of pq, with their variables, and what a
// unit of systemd and command lines of documents run.
var runs = regexp.MustCompile(`(?sm)(?:entrypoint: \["/usr/local/bin/pq"\]\s+command:|` +
	`command: \[/usr/local/bin/pq\]\s+args:)(.*?)(?:mem_limit|env):(.*?)ports:|` +
	`(?:^ExecStart=/usr/local/bin/pq|^ +docker run [^\n]* --entrypoint pq pqbridge) ([^\n]*)$`)

// The files to deploy run pq with command lines and variables that it takes.
func TestDeploymentsRunTheDashboard(t *testing.T) {
	known := map[string]bool{}
	for _, v := range login.Variables {
		known[v.Variable] = true
	}

	found := 0
	for _, path := range testenv.Files(t, root) {
		isTemplate := strings.Contains(path, "/templates/")
		if isTemplate ||
			!slices.Contains([]string{".yml", ".yaml", ".service", ".md"}, filepath.Ext(path)) {
			continue
		}

		text, err := os.ReadFile(path)
		must(t, err)
		text = bytes.ReplaceAll(text, []byte("\\\n"), nil)

		for _, m := range runs.FindAllStringSubmatch(string(text), -1) {
			found++
			args := strings.FieldsFunc(m[1]+m[3],
				func(r rune) bool { return strings.ContainsRune("\"[], \n", r) })

			args = slices.DeleteFunc(args, func(word string) bool { return word == "-" })
			if err := parse(args); err != nil || args[0] != "dashboard" {
				t.Errorf("%s runs pq %q: %v", path, args, err)
			}

			for _, name := range regexp.MustCompile(`NATS_\w+`).FindAllString(m[2], -1) {
				if !known[name] {
					t.Errorf("%s: pq does not know %s", path, name)
				}
			}
		}
	}
	if found != 7 {
		t.Errorf("%d dashboards: does the test still see one unit, and two of Compose, chart and "+
			"documents?", found)
	}
}

// words are bounds and defaults of settings as the protocol has them.
var words = map[any]string{
	time.Duration(0):                "0",
	settings.MinLease:               "100 ms",
	settings.MinTTL:                 "1 s",
	settings.MaxLease:               "12 h",
	settings.MaxDelay:               "ten years",
	settings.DefaultLease:           "30 s",
	settings.DefaultDuplicateWindow: "2 min",
	settings.DiscardNew:             "`\"new\"`",

	int64(settings.DefaultKeepItems): "10000",
}

// The protocol has every endpoint, header and setting.
func TestProtocolIsComplete(t *testing.T) {
	text := testenv.Documents(t, root)[filepath.Join(root, "docs/protocol.md")]
	grammar, err := subjects.New(subjects.DefaultPriorityPrefix, subjects.DefaultFIFOPrefix)
	must(t, err)

	for _, e := range grammar.Endpoints() {
		if !strings.Contains(text, fmt.Sprintf("| `%s` | `%s` |", e.Name, e.Subject)) {
			t.Errorf("endpoint %s with subject %s is missing", e.Name, e.Subject)
		}
	}

	for _, header := range []string{
		subjects.HeaderPriority, subjects.HeaderID, subjects.HeaderPushedAt,
		subjects.HeaderError, subjects.HeaderErrorCode, subjects.HeaderOutcome,
		subjects.HeaderDeliveries, subjects.HeaderLeaseUntil, subjects.HeaderBatchCount,
		subjects.HeaderState,
	} {
		if !strings.Contains(text, "`"+header+"`") {
			t.Errorf("header %s is missing", header)
		}
	}

	_, text, _ = strings.Cut(text, "\n## Settings\n")
	for s := range settings.All() {
		var bounds string
		switch s.Field(&settings.Settings{}).(type) {
		case *int64:
			bounds = fmt.Sprintf("%d to %d", s.Least, s.Most)
		case *time.Duration, *[]time.Duration:
			bounds = words[time.Duration(s.Least)] + " to " + words[time.Duration(s.Most)]
		}

		row := regexp.MustCompile("(?m)^\\| `" + s.Name + "` \\| .*" + bounds +
			".* \\| (.*) \\| .* \\|$").FindStringSubmatch(text)
		if row == nil || s.Default != nil && row[1] != words[s.Default] {
			t.Errorf("setting %s with bounds %q and default %v is missing: %q", s.Name, bounds,
				s.Default, row)
		}
	}
}
