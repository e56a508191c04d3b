package clients_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/testenv/harness"
)

// With bridges of this version, clients of the version before do what the table says.
// PQ_TEST_BEFORE is the revision of the version before. Rows that it did not have, or that ask its
// drivers for what they do not know, are left out by name; so is Java, where it had none.
func TestBefore(t *testing.T) {
	harness.OnlyClients(t)
	revision := os.Getenv("PQ_TEST_BEFORE")
	if revision == "" {
		t.Skip("skipped: PQ_TEST_BEFORE has to name the revision of the clients")
	}

	source := harness.Checkout(t, "../..", revision)
	known := rowsOf(filepath.Join(source, "testenv", "clients"))
	for _, of := range []struct {
		language
		build func(*testing.T, string) []string
	}{
		{inGo, goBefore}, {inJavaScript, javaScriptBefore}, {inPython, pythonBefore},
		{inJava, javaBefore},
	} {
		t.Run(of.name, func(t *testing.T) {
			of.mustRun(t)
			of.program = of.build(t, source)
			of.known = known
			tellRows(t, of.language)
		})
	}
}

// rowsOf returns a function that reports whether a folder with a table has the row.
func rowsOf(folder string) func(name string) bool {
	var text strings.Builder
	for _, file := range must(filepath.Glob(filepath.Join(folder, "*_test.go"))) {
		text.Write(must(os.ReadFile(file)))
	}
	return func(name string) bool { return strings.Contains(text.String(), strconv.Quote(name)) }
}

func goBefore(t *testing.T, source string) []string {
	program := filepath.Join(t.TempDir(), "driver")
	harness.Do(t, source, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-o", program,
		"./testenv/clients")
	return []string{program}
}

// javaScriptBefore builds the client with the packages of this version.
func javaScriptBefore(t *testing.T, source string) []string {
	packages := must(filepath.Abs(clients + "/javascript/node_modules"))
	folder := filepath.Join(source, "client", "javascript")
	if err := os.Symlink(packages, filepath.Join(folder, "node_modules")); err != nil {
		t.Fatal(err)
	}
	harness.Do(t, folder, "node", "node_modules/typescript/bin/tsc")
	return []string{"node", filepath.Join(folder, "driver", "driver.mjs")}
}

func pythonBefore(_ *testing.T, source string) []string {
	folder := filepath.Join(source, "client", "python")
	return []string{
		"env", "PYTHONPATH=" + filepath.Join(folder, "src"),
		python, filepath.Join(folder, "driver", "driver.py"),
	}
}

func javaBefore(t *testing.T, source string) []string {
	const folder = "client/java/driver/target"
	if _, err := os.Stat(filepath.Join(source, "client", "java", "driver")); err != nil {
		t.Skip("left out: the version before has no driver in Java")
	}
	harness.Do(t, source, "make", folder+"/driver.jar", "JAVA="+java)
	return javaProgram(filepath.Join(source, folder))
}
