package harness

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"go.uber.org/goleak"
)

// Main runs the tests of a package for its TestMain, and exits. It fails if a goroutine is left at
// the end. If the tests take longer than -timeout, it names the tests that still run, and a file
// with the stacks of all goroutines, instead of printing thousands of lines.
func Main(m goleak.TestingM, options ...goleak.Option) {
	flag.Parse()
	limit, _ := flag.Lookup("test.timeout").Value.(flag.Getter).Get().(time.Duration)
	if limit > 0 {
		time.AfterFunc(limit-min(limit/10, 10*time.Second), func() { timedOut(limit) })
	}

	goleak.VerifyTestMain(m, options...)
}

// timedOut ends the process, shortly before package testing would.
func timedOut(limit time.Duration) {
	stacks := make([]byte, 64<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	fmt.Printf("the tests took longer than %v; still running: %s; goroutines: %s\n",
		limit, strings.Join(running(string(stacks)), ", "), save("goroutines", stacks))
	os.Exit(2)
}

var testFrame = regexp.MustCompile(`(?m)^\S+\.((?:Test|Fuzz|Example)\w*)(?:\(|\.func)`)

// running returns the names of the test functions that stacks show.
func running(stacks string) (names []string) {
	for _, found := range testFrame.FindAllStringSubmatch(stacks, -1) {
		names = append(names, found[1])
	}
	slices.Sort(names)
	return slices.Compact(names)
}
