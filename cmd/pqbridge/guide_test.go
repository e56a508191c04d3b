package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// block is a block of a document: its language and the comment <!-- test: ... --> before it, if
// there is one, and its text. A block of sh without a comment is commands, and one of text after
// it what they print.
type block struct{ kind, text string }

// blocksOf returns the blocks of a document that a test follows.
func blocksOf(t *testing.T, document string) []block {
	t.Helper()
	return blocksIn(t, readFile(t, "docs", document))
}

// blocksIn returns the blocks of a document, or of a chapter.
func blocksIn(t *testing.T, text string) (blocks []block) {
	t.Helper()
	pattern := regexp.MustCompile("(?s)(?:<!-- test: ([^\n]*) -->\n)?```([a-z]+)\n(.*?)```")
	for _, m := range pattern.FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, block{strings.TrimSpace(m[2] + " " + m[1]), m[3]})
	}
	if len(blocks) == 0 {
		t.Fatalf("no blocks: does the test still see them?\n%s", text)
	}

	return blocks
}

// blockOf returns the only block of a kind in a document.
func blockOf(t *testing.T, document, kind string) string {
	t.Helper()
	blocks := slices.DeleteFunc(blocksOf(t, document), func(b block) bool { return b.kind != kind })
	if len(blocks) != 1 {
		t.Fatalf("%s has %d blocks %q, want one", document, len(blocks), kind)
	}

	return blocks[0].text
}

// Programs that documents show are parts of the examples, which their own tests run, whatever
// their indentation.
func TestDocumentsShowTheExamples(t *testing.T) {
	indent := regexp.MustCompile(`(?m)^\s+`)
	flat := func(text string) string { return indent.ReplaceAllString(text, "") }
	examples := map[string]string{
		"js": flat(readFile(t, "docs", "example", "javascript", "jetstream.js") +
			readFile(t, "client", "javascript", "README.md")),
		"python": flat(readFile(t, "client", "python", "README.md")),
	}
	programs, err := filepath.Glob(filepath.Join(root, "docs", "example", "*", "main*.go"))
	must(t, err)

	programs = append(programs, filepath.Join(root, "docs", "example", "example_test.go"))
	for _, name := range programs {
		program, err := os.ReadFile(name)
		must(t, err)
		examples["go"] += flat(string(program))
	}

	for _, document := range []string{"guide.md", "jetstream.md", "foundationdb.md"} {
		for _, b := range blocksOf(t, document) {
			example, shown := examples[b.kind]
			if shown && !strings.Contains(example, flat(b.text)) {
				t.Errorf("%s: no program has these lines:\n%s", document, b.text)
			}
		}
	}
}

// follow does what a document says. Kinds of blocks that it does not know are left to others,
// with what the next block says is printed.
func (g *guide) follow(document string, others func(b block, want string)) {
	g.Helper()
	blocks := blocksOf(g.T, document)

	for i, b := range blocks {
		want := ""
		if i+1 < len(blocks) && blocks[i+1].kind == "text" {
			want = blocks[i+1].text
		}

		switch b.kind {
		case "text", "go", "js", "python", "sh the system is running":
		case "sh":
			if got := g.sh(b.text); !same(got, want) {
				g.Errorf("%s\nprinted %q, want %q", b.text, got, want)
			}
		case "sh third terminal":
			g.start(b.text)
		case "text third terminal":
			g.prints(b.text, "")
		default:
			others(b, want)
		}

		if g.Failed() {
			g.FailNow() // the rest depends on it
		}
	}
}

// guide is a reader of the guide.
type guide struct {
	*testing.T
	variables []string // of the system
	system    *command
	bin       string
	env       []string

	terminal *exec.Cmd // the third one; nil if nothing runs there
	printed  chan string
}

func newGuide(t *testing.T) *guide {
	port := strconv.Itoa(harness.Port(t))
	g := &guide{
		T:         t,
		bin:       t.TempDir(),
		variables: []string{"PQ_DATA_DIR=" + t.TempDir(), "PQ_DEV_NATS_PORT=" + port},
	}

	g.system = startDev(t, g.variables...)
	g.env = append(os.Environ(), "NATS_URL="+g.system.nats, "TMPDIR="+t.TempDir())
	g.sh("go build -o bin/ ./cmd/pq\n")
	t.Cleanup(g.kill)

	return g
}

// bash returns a command that runs lines of the guide, in the root of the repository but with
// another folder bin.
func (g *guide) bash(code string) *exec.Cmd {
	code = strings.NewReplacer(
		"$PWD/bin", g.bin,
		" bin/", " "+g.bin+"/",
		"\nbin/", "\nexec "+g.bin+"/",
		"\npq work", "\nexec pq work",
		" &\n", "\n",
	).Replace("\n" + code)

	cmd := harness.CommandContext(g.Context(), "bash", "-e", "-o", "pipefail", "-c",
		"PATH="+g.bin+":$PATH"+code)
	cmd.Dir, cmd.Env = root, g.env
	return cmd
}

func (g *guide) sh(code string) string {
	g.Helper()
	out, err := g.try(code)
	must(g, err)
	return out
}

// eventually repeats commands until they print what they should, or nothing new for too long: a
// thousand jobs take their time on a busy machine.
func (g *guide) eventually(code, want string) {
	g.Helper()
	var last string

	for changed := time.Now(); ; {
		got, err := g.try(code)
		switch {
		case err == nil && same(got, want):
			return
		case got != last:
			last, changed = got, time.Now()
		case time.Since(changed) > testenv.Patience:
			g.Fatalf("%s\nprints %q, want %q: %v", code, got, want, err)
		}

		<-time.After(50 * time.Millisecond) // what is waited for needs the processors, too
	}
}

func (g *guide) try(code string) (string, error) {
	cmd := g.bash(code)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s%w\n%s", code, err, &stderr)
	}

	return string(out), err
}

// start runs a program in the third terminal, the last command of a block, whose first one may stop
// another program there.
func (g *guide) start(code string) {
	g.Helper()
	code, stops := strings.CutPrefix(code, "kill %%\n")
	switch {
	case stops:
		g.stop()
	case g.terminal != nil:
		g.Fatalf("another program still runs in the third terminal: %s", code)
	}

	if code != "" {
		g.run(g.bash(code))
	}
}

// run runs a command in the third terminal.
func (g *guide) run(cmd *exec.Cmd) {
	g.Helper()
	g.terminal = cmd
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	must(g, err)
	g.printed = make(chan string, 10_000)

	go func() {
		defer close(g.printed)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			g.printed <- lines.Text()
		}
	}()
}

// prints waits for lines in the third terminal, and skips lines that do not begin with about.
func (g *guide) prints(text, about string) {
	g.Helper()
	for want := range strings.Lines(text) {
		for printed := false; !printed; {
			select {
			case got := <-g.printed:
				if printed = same(got, want); !printed && strings.HasPrefix(got, about) {
					g.Fatalf("the third terminal printed %q, want %q", got, want)
				}
			case <-time.After(testenv.Patience):
				g.Fatalf("the third terminal does not print %q", want)
			}
		}
	}
}

// stop ends what runs in the third terminal as a container would. It must end well.
func (g *guide) stop() {
	g.Helper()
	if err := g.end(syscall.SIGTERM); err != nil {
		g.Errorf("after SIGTERM: %v", err)
	}
}

func (g *guide) kill() { _ = g.end(syscall.SIGKILL) }

// end sends a signal to what runs in the third terminal, and returns how that ended.
func (g *guide) end(signal os.Signal) error {
	if g.terminal == nil {
		return nil
	}

	_ = g.terminal.Process.Signal(signal) // unless it has ended
	for range g.printed {
	}
	err := g.terminal.Wait()
	g.terminal = nil
	return err
}

// same reports whether a command printed what the guide says. An ellipsis there stands for the rest
// of the line.
func same(got, want string) bool {
	pattern := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(want)), "…", ".*")
	return regexp.MustCompile("^" + pattern + "$").MatchString(strings.TrimSpace(got))
}
