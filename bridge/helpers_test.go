package bridge_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest"
	"github.com/pqbridge/pqbridge/testenv"
)

// metricIs returns an error unless the series has the value.
func metricIs(b *testenv.Bridge, series string, want float64) error {
	got, err := metric(b, series)
	if err == nil && got != want {
		err = fmt.Errorf("%s is %v, want %v", series, got, want)
	}
	return err
}

func metric(b *testenv.Bridge, series string) (float64, error) {
	_, body, err := b.Get("/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(body)) {
		if value, found := strings.CutPrefix(line, series+" "); found {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("no series %s", series)
}

func wantMetric(t *testing.T, b *testenv.Bridge, series string, want float64) {
	t.Helper()
	// The counter may change only after the reply has arrived.
	testenv.Eventually(t, func() error { return metricIs(b, series, want) })
}

// each runs a test on a system with each engine. changes are of the options of its bridge.
func each(t *testing.T, test func(t *testing.T, e *testenv.Env), changes ...func(*bridge.Options)) {
	testenv.Each(t, func(t *testing.T, engine testenv.Engine) {
		test(t, testenv.New(t, testenv.Options{Engine: engine, Bridge: func(o *bridge.Options) {
			for _, change := range changes {
				change(o)
			}
		}}))
	})
}

// withAccounts returns a system whose NATS has these accounts. The bridge is their user bridge, the test
// their user client.
func withAccounts(t *testing.T, accounts string) *testenv.Env {
	e := testenv.New(t, testenv.Options{
		Stopped: true,
		NATS:    testenv.ServerOptions(t, accounts+"\nno_auth_user: client"),
		Bridge:  func(o *bridge.Options) { o.NATSOptions = append(o.NATSOptions, nats.UserInfo("bridge", "p")) },
	})
	e.NATS.Start()
	e.Bridge = e.StartBridge()
	e.Bridge.WaitReady()
	e.Conn = e.Connect()
	return e
}

// restart stops the bridge, which then has done and confirmed everything, and starts another.
func restart(t *testing.T, e *testenv.Env) {
	t.Helper()
	if err := e.Bridge.Stop(); err != nil {
		t.Fatal(err)
	}
	e.Bridge = e.StartBridge()
	e.Bridge.WaitReady()
}

// together waits until these bridges share the queues.
func together(t *testing.T, bridges ...*testenv.Bridge) {
	t.Helper()
	for _, b := range bridges {
		wantMetric(t, b, "pq_bridges", float64(len(bridges)))
	}
}

// pushAll pushes items one after the other.
func pushAll(t *testing.T, e *testenv.Env, subject string, values ...string) {
	t.Helper()
	for _, value := range values {
		push(t, e, subject, nil, value)
	}
}

// consistent checks every key of the store against the layout.
func consistent(t *testing.T, e *testenv.Env) {
	t.Helper()
	if _, err := fdbpqtest.CheckInvariants(t.Context(), e.DB, "pq", "q"); err != nil {
		t.Error(err)
	}
}

func newKeyspace(t testing.TB, priority, fifo string) *fdbpq.Keyspace {
	t.Helper()
	k, err := fdbpq.NewKeyspace(priority, fifo, fdbpq.RawValues)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// syncLog is a log that the test reads while it is written.
type syncLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *syncLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *syncLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *syncLog) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// says returns an error unless the words are in the log.
func (l *syncLog) says(words string) error {
	if text := l.String(); !strings.Contains(text, words) {
		return fmt.Errorf("%q is not in the log:\n%s", words, text)
	}
	return nil
}
