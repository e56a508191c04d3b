package client_test

import (
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/pqbridge/pqbridge/testenv"

	"github.com/pqbridge/pqbridge/testenv/harness"
)

func TestMain(m *testing.M) { harness.Main(withSystem{m}) }

// url is where the examples find a NATS server, with a bridge.
var url string

// withSystem runs the tests with a system for the examples.
type withSystem struct{ *testing.M }

func (m withSystem) Run() int {
	t := &exampleTB{}
	defer t.end()
	url = testenv.New(t, testenv.Options{}).NATS.URL()
	return m.M.Run()
}

// exampleTB is what package testenv needs of a test.
type exampleTB struct {
	testing.TB
	cleanups []func()
}

func (t *exampleTB) Helper()           {}
func (t *exampleTB) Failed() bool      { return false } // Errorf panics
func (t *exampleTB) Cleanup(f func())  { t.cleanups = append(t.cleanups, f) }
func (t *exampleTB) Output() io.Writer { return io.Discard }
func (t *exampleTB) Errorf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}
func (t *exampleTB) Fatalf(format string, args ...any) { t.Errorf(format, args...) }

func (t *exampleTB) end() {
	for _, f := range slices.Backward(t.cleanups) {
		f()
	}
}
