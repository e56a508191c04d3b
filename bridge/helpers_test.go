package bridge_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq"
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
