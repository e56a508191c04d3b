package clients_test

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/testenv/clients/godriver"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// driverVariable makes the test binary the driver in Go, or with the value asWorker its worker for
// BenchmarkWorkers.
const (
	driverVariable = "TEST_DRIVER"
	asWorker       = "worker"
)

func TestMain(m *testing.M) {
	if is := os.Getenv(driverVariable); is != "" {
		run := godriver.Main
		if is == asWorker {
			run = work
		}
		if err := run(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}

	// Scenarios mostly wait for other processes, so more than one for each processor run at a time.
	flag.Parse()
	if given := flag.Lookup("test.parallel"); given.Value.String() == given.DefValue {
		_ = given.Value.Set("8") // it is a number
	}
	harness.Main(m)
}

// scenario is a row of the table. Its story says what happens, and what must come of it in every
// language.
type scenario struct {
	name string
	tell func(*story)
}

// table has all scenarios.
var table = [][]scenario{
	working, failing, leasing, stopping, joining, trailing, outages, rights, values, managing,
	arguments,
}

// language is one in which there is a driver.
type language struct {
	name    string
	program []string              // that is the driver
	worker  []string              // that BenchmarkWorkers measures
	needs   []string              // files and programs without which it cannot run
	known   func(row string) bool // by the driver; nil if it knows all
}

var (
	inGo         = language{name: "Go", program: []string{os.Args[0]}, worker: []string{os.Args[0]}}
	inJavaScript = language{
		name:    "JavaScript",
		program: []string{"node", clients + "/javascript/driver/driver.mjs"},
		worker:  []string{"node", clients + "/javascript/driver/worker.mjs"},
		needs: []string{
			"node", clients + "/javascript/dist/index.js", clients + "/javascript/node_modules",
		},
	}
	inPython = language{
		name:    "Python",
		program: []string{python, clients + "/python/driver/driver.py"},
		worker:  []string{python, clients + "/python/driver/worker.py"},
		needs:   []string{python},
	}
	inJava = language{
		name:    "Java",
		program: javaProgram(javaDriver),
		worker: []string{
			java, "-cp", javaDriver + "/driver.jar", "io.github.pqbridge.driver.Bench",
		},
		needs: []string{java, javaDriver + "/driver.jar"},
	}
)

const clients = "../../client"

// javaDriver is the folder of the driver in Java.
var javaDriver = must(filepath.Abs(clients + "/java/driver/target"))

// javaProgram runs the driver in a folder. Its archive of classes knows it by its full name.
func javaProgram(folder string) []string {
	return []string{
		java, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx64m", "-Xlog:disable",
		"-XX:SharedArchiveFile=" + folder + "/driver.jsa", "-jar", folder + "/driver.jar",
	}
}

// python has the client's packages.
var python = cmp.Or(os.Getenv("PQ_TEST_PYTHON"), "../../bin/python/bin/python")

// java runs the driver in Java.
var java = cmp.Or(os.Getenv("PQ_TEST_JAVA"), "java")

// missing returns what the language needs and this machine does not have.
func (l language) missing() (names []string) {
	for _, name := range l.needs {
		_, err := exec.LookPath(name)
		if _, there := os.Stat(name); err != nil && there != nil {
			names = append(names, filepath.Clean(name))
		}
	}
	return names
}

// mustRun skips a test without what the language needs, or fails it with PQ_TEST_CLIENTS=all.
func (l language) mustRun(t testing.TB) {
	t.Helper()
	missing := l.missing()
	if missing == nil {
		return
	}

	text := fmt.Sprintf("the client in %s needs %s, which make test-clients builds if it can",
		l.name, strings.Join(missing, ", "))
	if harness.AllClients {
		t.Fatal(text)
	}
	t.Skip("skipped: " + text)
}

// Every scenario has the same outcome in every language.
func TestGo(t *testing.T) { tellAll(t, inGo) }

func TestJavaScript(t *testing.T) { tellAll(t, inJavaScript) }

func TestPython(t *testing.T) { tellAll(t, inPython) }

func TestJava(t *testing.T) { tellAll(t, inJava) }

func tellAll(t *testing.T, l language) {
	if l.name != inGo.name {
		harness.OnlyClients(t)
		l.mustRun(t)
	}

	t.Parallel()
	tellRows(t, l)
}

func tellRows(t *testing.T, l language) {
	for _, topic := range table {
		for _, c := range topic {
			t.Run(c.name, func(t *testing.T) {
				if l.known != nil && !l.known(c.name) {
					t.Skip("left out: the version before has no such row")
				}
				t.Parallel()
				s := &story{T: t, language: l}
				c.tell(s)
				s.end()
			})
		}
	}
}
