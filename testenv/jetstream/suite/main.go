// Suite runs tests that nats.go has for JetStream's pull consumers and messages against a bridge:
// make jetstream-suite. It takes them from the module cache as they are, adapts names of streams and
// subjects, and builds them together with package test, whose helpers start a bridge where theirs
// start a server with JetStream. Nothing of them is kept. The client library is that of go.mod.
//
// expected.txt lists what is expected to fail, and why. Any other failure is an error, and so is a test in
// the list that passes. Some of the tests give what happens only milliseconds, or count pulls that depend on
// which of two gets a message, so one that fails unexpectedly is run again, alone.
package main

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// The last version whose tests start a server in their process, and the hash of that module.
const (
	version = "github.com/nats-io/nats.go@v1.52.0"
	sum     = "h1:n3avV4VBsCgsdwh71TppsTwtv+QdPs7ntSKM8qJLGsc="
)

// home is where the tests are built, relative to the module.
const home = "testenv/jetstream/suite/test"

// files are those with tests, relative to jetstream/test in the module.
var files = []string{"pull_test.go", "message_test.go", "consumer_test.go"}

// replacements adapt the text of the tests: the domain, and one queue in place of their streams. A
// queue takes items at one subject, and needs no other configuration. Limits in bytes are those of as
// many items, since one of ten bytes takes about 310 with its headers and the subject for its
// acknowledgement, and a message of theirs takes 60.
var replacements = []struct {
	pattern *regexp.Regexp
	text    string
}{
	{regexp.MustCompile(`jetstream\.New\(nc\)`), `jetstream.NewWithDomain(nc, "pq")`},
	{regexp.MustCompile(`\$JS\.API\.`), `$$JS.pq.API.`},
	{regexp.MustCompile(`(Subjects:\s*\[\]string)\{"[^"]*"\}`), `$1{"pq.foo.push"}`},
	{regexp.MustCompile(`"FOO\.[^"]*"`), `"pq.foo.push"`},
	{regexp.MustCompile(`(Publish\(ctx, )"foo"`), `$1"pq.foo.push"`},
	{regexp.MustCompile(`(Name:\s*|CreateOrUpdateConsumer\(ctx, |name := )"(FOO|TEST|test|test-stream|cluster)"`), `$1"foo"`},
	{regexp.MustCompile(`(Consumer\(ctx, )"TEST"`), `$1"foo"`},
	{regexp.MustCompile(`PullMaxBytes\(60\)`), `PullMaxBytes(400)`},
	{regexp.MustCompile(`PullMaxBytes\(150\)`), `PullMaxBytes(800)`},
	{regexp.MustCompile(`FetchBytes\(250\)`), `FetchBytes(1400)`},
	{regexp.MustCompile(`FetchBytes\(1000,`), `FetchBytes(2000,`},
	{regexp.MustCompile(`(PullMaxMessagesWithBytesLimit\(10, |"max_bytes":)1024`), `${1}4096`},
	{regexp.MustCompile(`(make\(\[\]byte, )950\)`), `${1}3700)`},
}

//go:embed expected.txt
var expectedText string

func main() {
	run := flag.String("run", "", "only tests that match this, as with go test; what is expected is then not checked for completeness")
	verbose := flag.Bool("v", false, "show what all tests that fail print")
	flag.Parse()
	if err := suite(*run, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func suite(run string, verbose bool) error {
	expected, err := parseExpected(expectedText)
	if err != nil {
		return err
	}
	source, err := download()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "jetstream-suite-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // only a temporary folder

	overlay, err := adapt(source, dir)
	if err != nil {
		return err
	}
	tests, err := runTests(overlay, run)
	if err != nil {
		return err
	}
	for range 2 {
		if err := again(tests, expected, overlay); err != nil {
			return err
		}
	}
	return compare(tests, expected, run == "", verbose)
}

// parseExpected reads lines of the name of a test and the reason why it fails.
func parseExpected(text string) (map[string]string, error) {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, reason, ok := strings.Cut(line, " ")
		if _, twice := all[name]; !ok || twice {
			return nil, fmt.Errorf("expected.txt: %q: want the name of a test and a reason, each once", line)
		}
		all[name] = strings.TrimSpace(reason)
	}
	return all, nil
}

// download returns the folder of the module that has the tests.
func download() (string, error) {
	out, err := exec.Command("go", "mod", "download", "-json", version).Output()
	var module struct{ Dir, Sum, Error string }
	if broken := json.Unmarshal(out, &module); broken != nil {
		return "", fmt.Errorf("go mod download %s: %w", version, errors.Join(err, broken))
	}
	switch {
	case module.Error != "":
		return "", fmt.Errorf("go mod download %s: %s", version, module.Error)
	case module.Sum != sum:
		return "", fmt.Errorf("%s has the hash %s, want %s", version, module.Sum, sum)
	}
	return module.Dir, nil
}

// adapt writes the tests with the replacements into a folder, and a file for go test -overlay that
// puts them into package test. It returns the name of that.
func adapt(source, dir string) (string, error) {
	root, err := filepath.Abs(home)
	if err != nil {
		return "", err
	}
	var overlay struct{ Replace map[string]string }
	overlay.Replace = map[string]string{}
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(source, "jetstream", "test", name))
		if err != nil {
			return "", err
		}
		for _, r := range replacements {
			text = r.pattern.ReplaceAll(text, []byte(r.text))
		}
		to := filepath.Join(dir, name)
		if err := os.WriteFile(to, text, 0o600); err != nil {
			return "", err
		}
		overlay.Replace[filepath.Join(root, name)] = to
	}

	list, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, list, 0o600)
}

// test is what became of one.
type test struct {
	action string // pass, fail or skip; empty if it did not end
	output bytes.Buffer
}

// runTests runs the tests, and returns them by name.
func runTests(overlay, run string) (map[string]*test, error) {
	cmd := exec.Command("go", "test", "-json", "-count=1", "-timeout", "20m", "-tags", "natsgo", "-overlay", overlay, "-run", run, "./"+home)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}

	tests := map[string]*test{}
	var other bytes.Buffer // what belongs to no test
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		var event struct{ Action, Test, Output string }
		if json.Unmarshal(line, &event) == nil {
			note(tests, &other, event.Action, event.Test, event.Output)
		}
		if err != nil {
			break
		}
	}
	err = cmd.Wait() // an error also if tests failed
	if len(tests) == 0 {
		return nil, fmt.Errorf("no test ran: %w\n%s", errors.Join(err), other.Bytes())
	}
	return tests, nil
}

// note takes up what go test says.
func note(tests map[string]*test, other *bytes.Buffer, action, name, output string) {
	if name == "" {
		other.WriteString(output)
		return
	}
	t := tests[name]
	if t == nil {
		t = new(test)
		tests[name] = t
	}
	switch action {
	case "pass", "fail", "skip":
		t.action = action
	case "output":
		t.output.WriteString(output)
	}
}

// own returns the tests that count: those without tests in them, and those that failed although
// all in them passed.
func own(tests map[string]*test) (names []string) {
	parents, failing := map[string]bool{}, map[string]bool{}
	for name, t := range tests {
		for i, c := range name {
			if c == '/' {
				parents[name[:i]] = true
				failing[name[:i]] = failing[name[:i]] || t.action != "pass"
			}
		}
	}
	for name, t := range tests {
		if !parents[name] || t.action != "pass" && !failing[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// again runs the tests that failed unexpectedly once more, and takes the new results.
func again(tests map[string]*test, expected map[string]string, overlay string) error {
	for _, name := range own(tests) {
		if _, listed := expected[name]; listed || tests[name].action == "pass" {
			continue
		}
		fmt.Printf("again, because it failed: %s\n", name)
		parts := strings.Split(name, "/")
		for i, part := range parts {
			parts[i] = "^" + regexp.QuoteMeta(part) + "$"
		}
		results, err := runTests(overlay, strings.Join(parts, "/"))
		if err != nil {
			return err
		}
		maps.Copy(tests, results)
	}
	return nil
}

// compare prints what happened, and returns an error if that is not what is expected.
func compare(tests map[string]*test, expected map[string]string, complete, verbose bool) error {
	passed, asExpected := 0, 0
	var wrong []string
	left := maps.Clone(expected)
	for _, name := range own(tests) {
		t := tests[name]
		reason, listed := expected[name]
		delete(left, name)
		switch ok := t.action == "pass"; {
		case ok && listed:
			wrong = append(wrong, name+": passes, but expected.txt says that it fails")
		case ok:
			passed++
		case listed:
			asExpected++
			fmt.Printf("fails as expected: %s: %s\n", name, reason)
		default:
			wrong = append(wrong, name+": fails")
		}
		if t.action != "pass" && (!listed || verbose) {
			fmt.Printf("%s", t.output.Bytes())
		}
	}
	if complete {
		for _, name := range slices.Sorted(maps.Keys(left)) {
			wrong = append(wrong, name+": in expected.txt, but did not run")
		}
	}

	fmt.Printf("%d tests of %s passed, %d failed as expected, %d did not do what is expected\n", passed, version, asExpected, len(wrong))
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "\n"))
	}
	return nil
}
