// Suite runs tests that nats.go has for JetStream's pull consumers and messages against a bridge:
// make jetstream-suite. It takes them from the module cache as they are, adapts names of streams
// and subjects, and builds them together with package test, whose helpers start a bridge where
// theirs start a server with JetStream. Nothing of them is kept. The version of the client library
// comes from go.mod.
//
// skipped.txt lists the tests that a queue cannot pass, and why; they are not run. Some of the
// others wait only milliseconds, or count pulls that depend on which of two gets a message, so
// failed tests are run again, alone.
package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
// queue takes items at one subject, and needs no other configuration. Limits in bytes are converted
// to leave room for as many items, since one of ten bytes takes about 310 with its headers and the
// subject for its acknowledgement, and a message of theirs takes 60.
var replacements = []struct {
	pattern *regexp.Regexp
	text    string
}{
	{regexp.MustCompile(`jetstream\.New\(nc\)`), `jetstream.NewWithDomain(nc, "pq")`},
	{regexp.MustCompile(`\$JS\.API\.`), `$$JS.pq.API.`},
	{regexp.MustCompile(`(Subjects:\s*\[\]string)\{"[^"]*"\}`), `$1{"pq.foo.push"}`},
	{regexp.MustCompile(`"FOO\.[^"]*"`), `"pq.foo.push"`},
	{regexp.MustCompile(`(Publish\(ctx, )"foo"`), `$1"pq.foo.push"`},
	{regexp.MustCompile(`(Name:\s*|CreateOrUpdateConsumer\(ctx, |name := )` +
		`"(FOO|TEST|test|test-stream|cluster)"`), `$1"foo"`},
	{regexp.MustCompile(`(Consumer\(ctx, )"TEST"`), `$1"foo"`},
	{regexp.MustCompile(`PullMaxBytes\(60\)`), `PullMaxBytes(400)`},
	{regexp.MustCompile(`PullMaxBytes\(150\)`), `PullMaxBytes(800)`},
	{regexp.MustCompile(`FetchBytes\(250\)`), `FetchBytes(1400)`},
	{regexp.MustCompile(`FetchBytes\(1000,`), `FetchBytes(2000,`},
	{regexp.MustCompile(`(PullMaxMessagesWithBytesLimit\(10, |"max_bytes":)1024`), `${1}4096`},
	{regexp.MustCompile(`(make\(\[\]byte, )950\)`), `${1}3700)`},
}

//go:embed skipped.txt
var skippedText string

func main() {
	run := flag.String("run", "", "only tests that match this, as with go test")
	flag.Parse()
	if err := suite(*run); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func suite(run string) error {
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

	failed, err := runTests(overlay, "-run", run, "-skip", matching(skipped()))
	for attempt := 0; attempt < 2 && len(failed) > 0; attempt++ {
		fmt.Printf("again, because they failed: %s\n", strings.Join(failed, ", "))
		failed, err = runTests(overlay, "-run", matching(failed))
	}

	return err
}

// skipped returns the first word of each line, the name of a test. The rest is the reason.
func skipped() (names []string) {
	for line := range strings.Lines(skippedText) {
		if name, _, ok := strings.Cut(line, " "); ok && name != "#" {
			names = append(names, name)
		}
	}
	return names
}

// matching returns the pattern of go test for the tests with these names.
func matching(names []string) string {
	var patterns []string
	for _, name := range names {
		parts := strings.Split(name, "/")
		for i, part := range parts {
			parts[i] = "^" + regexp.QuoteMeta(part) + "$"
		}
		patterns = append(patterns, strings.Join(parts, "/"))
	}

	return strings.Join(patterns, "|")
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

	replaced := map[string]string{}
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

		replaced[filepath.Join(root, name)] = to
	}

	list, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", err
	}

	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, list, 0o600)
}

var failure = regexp.MustCompile(`(?m)^ *--- FAIL: (\S+)`)

// runTests runs tests, and returns the names of the failed ones, without the tests that contain
// them.
func runTests(overlay string, args ...string) (failed []string, err error) {
	test := []string{"test", "-count=1", "-timeout", "20m", "-tags", "natsgo"}
	test = append(test, "-overlay", overlay, "./"+home)
	cmd := exec.Command("go", append(test, args...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.MultiWriter(os.Stdout, &out), os.Stderr
	err = cmd.Run()
	if bytes.Contains(out.Bytes(), []byte("\npanic: ")) {
		return nil, err // the tests after it did not run
	}

	for _, found := range failure.FindAllStringSubmatch(out.String(), -1) {
		// A test comes right before the first of its parts.
		if n := len(failed); n > 0 && strings.HasPrefix(found[1], failed[n-1]+"/") {
			failed = failed[:n-1]
		}
		failed = append(failed, found[1])
	}

	return failed, err
}
